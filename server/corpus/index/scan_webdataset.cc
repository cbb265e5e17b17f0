#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "server/corpus/data_path.h"
#include "server/corpus/index/compressed_file.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/index/file_scan.h"
#include "server/corpus/index/probe_videos.h"
#include "server/corpus/jsonl/conversation_json.h"
#include "server/corpus/limits.h"
#include "server/corpus/source_files.h"
#include "server/corpus/tar/webdataset_reader.h"

namespace ballast {
namespace {

absl::StatusOr<std::string> ReadText(const File& file,
                                     const WebDatasetSample& sample) {
  BALLAST_ASSIGN_OR_RETURN(std::string text,
                           file.ReadAt(sample.text.data, sample.text.size));
  absl::Status status;
  // With videos the text's marks are counted when it is measured.
  if (!sample.videos.empty()) return text;
  if (sample.text_format == RawSample::TextFormat::kConversation) {
    status = CheckConversation(text);
  } else if (sample.text_format == RawSample::TextFormat::kPlain) {
    status = CheckNoVideoMark(text);
  }
  if (!status.ok()) return Annotate(status, sample.text.name);
  return text;
}

absl::StatusOr<IndexedVideo> ReadVideo(const File& file,
                                       const WebDatasetVideo& video,
                                       const JsonVideo& named,
                                       const IndexOptions& options,
                                       ImagesHash* hash) {
  if (!video.is_list) {
    const TarMember& member = video.members[0];
    const absl::StatusOr<IndexedVideo> facts =
        ProbeVideo(file, member.data, member.size, named, options, hash);
    if (!facts.ok()) return Annotate(facts.status(), member.name);
    return facts;
  }
  BALLAST_RETURN_IF_ERROR(CheckTakesVideos(options));
  ListProbe list(named);
  for (const TarMember& member : video.members) {
    const absl::StatusOr<ProbedImage> image =
        ProbeImage(file, member.data, member.size, options.read_image_size,
                   options.judge_image, hash);
    if (!image.ok()) return Annotate(image.status(), member.name);
    BALLAST_RETURN_IF_ERROR(list.Add(member.name, image->size));
  }
  return list.video();
}

absl::StatusOr<ImageFacts> ReadImages(const File& file,
                                      const WebDatasetSample& sample,
                                      absl::Span<const JsonVideo> named,
                                      const IndexOptions& options,
                                      ImagesHash* hash) {
  ImageFacts images;
  for (const TarMember& member : sample.images) {
    const absl::StatusOr<ProbedImage> image =
        ProbeImage(file, member.data, member.size, options.read_image_size,
                   options.judge_image, hash);
    if (!image.ok()) return Annotate(image.status(), member.name);
    images.sizes.push_back(image->size);
    images.marks.push_back(image->mark);
  }
  for (size_t i = 0; i < sample.videos.size(); ++i) {
    BALLAST_ASSIGN_OR_RETURN(
        const IndexedVideo video,
        ReadVideo(file, sample.videos[i],
                  named.empty() ? JsonVideo() : named[i], options, hash));
    images.videos.push_back(video);
  }
  return images;
}

// Adds the sample to the scan, or returns why it is bad.
absl::Status AddSample(const File& file, const WebDatasetSample& sample,
                       FileScanner& scanner) {
  BALLAST_RETURN_IF_ERROR(sample.fault);
  RawSample raw;
  raw.name = WebDatasetSampleName(scanner.name(), sample.key);
  raw.text_format = sample.text_format;
  BALLAST_ASSIGN_OR_RETURN(raw.text, ReadText(file, sample));
  const uint64_t span = sample.end - sample.begin;
  if (span > kMaxSampleSpan) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its members span ", span, " bytes, wanted at most ", kMaxSampleSpan));
  }
  std::vector<size_t> pictures;
  for (const WebDatasetVideo& video : sample.videos) {
    pictures.push_back(video.is_list ? video.members.size() : 0);
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<JsonVideo> clips,
                           ReadClips(sample.text_format, raw.text, pictures));
  ImagesHash image_hash;
  BALLAST_ASSIGN_OR_RETURN(
      const ImageFacts images,
      ReadImages(file, sample, clips, scanner.options(), &image_hash));
  raw.video_facts = images.videos;
  IndexSampleRecord record = {};
  record.offset = sample.begin;
  record.length = static_cast<uint32_t>(span);
  record.text_check = TextHash(sample.key, raw.text);
  record.image_check = image_hash.value();
  return scanner.Add(record, Printable(sample.key), raw, images.view());
}

// Whether the last sample before damage has all its members, as far as one can
// tell: as many as the sample before it. Measuring its text compares its images
// with their marks.
bool IsWhole(const WebDatasetSample& last,
             const std::optional<WebDatasetSample>& before) {
  return before.has_value() && last.fault.ok() && before->fault.ok() &&
         last.text_format == before->text_format &&
         last.images.size() == before->images.size() &&
         last.videos.size() == before->videos.size();
}

absl::Status ScanSamples(const File& file, WebDatasetReader& reader,
                         FileScanner& scanner) {
  // Digests of the keys so far. They have 128 bits, since a collision would
  // lose a sample.
  absl::flat_hash_set<Digest> seen;
  const auto add = [&](const WebDatasetSample& sample) {
    const absl::Status added =
        seen.insert(DigestOf(sample.key)).second
            ? AddSample(file, sample, scanner)
            : absl::InvalidArgumentError(
                  "duplicate key; its members do not stand together");
    return added.ok()
               ? added
               : scanner.AddBad(sample.begin, Printable(sample.key), added);
  };
  std::optional<WebDatasetSample> before;
  while (true) {
    auto sample = reader.Next();
    if (sample.status().code() == absl::StatusCode::kDataLoss) {
      std::string lost;
      if (const auto last = reader.TakePending()) {
        if (IsWhole(*last, before)) {
          BALLAST_RETURN_IF_ERROR(add(*last));
        } else {
          lost = Printable(last->key);
        }
      }
      return scanner.AddDamage(reader.offset(), lost, sample.status());
    }
    BALLAST_RETURN_IF_ERROR(sample.status());
    if (!*sample) return absl::OkStatus();
    BALLAST_RETURN_IF_ERROR(add(**sample));
    scanner.Advance((*sample)->end);
    before = *std::move(sample);
  }
}

}  // namespace

absl::Status ScanWebDataset(const File& file, FileScanner& scanner) {
  BALLAST_RETURN_IF_ERROR(CheckNotCompressed(file, scanner.name()));
  // Read only where a model takes videos, since servers read them only where
  // the index has one.
  const bool lists = scanner.options().read_video != nullptr;
  WebDatasetReader reader(&file, 0, file.stamp().size, /*whole=*/true, lists);
  const absl::Status status = ScanSamples(file, reader, scanner);
  for (const auto& [extension, count] : reader.ignored()) {
    scanner.AddIgnored(Printable(extension), count);
  }
  return status;
}

}  // namespace ballast
