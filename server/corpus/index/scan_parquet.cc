#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/index/file_scan.h"
#include "server/corpus/index/image_facts.h"
#include "server/corpus/index/image_probe.h"
#include "server/corpus/index/probe_media.h"
#include "server/corpus/index/probe_videos.h"
#include "server/corpus/jsonl/conversation_json.h"
#include "server/corpus/limits.h"
#include "server/corpus/parquet/parquet_file.h"
#include "server/corpus/source_files.h"

namespace ballast {
namespace {

absl::StatusOr<ImageFacts> ProbeImages(const std::vector<ParquetImage>& images,
                                       const IndexOptions& options,
                                       ImagesHash* hash) {
  ImageFacts facts;
  for (const ParquetImage& image : images) {
    const absl::StatusOr<ProbedImage> probed = ProbeImage(
        image.bytes, options.read_image_size, options.judge_image, hash);
    if (!probed.ok()) {
      return Annotate(probed.status(),
                      absl::StrCat("image ", facts.sizes.size() + 1));
    }
    facts.sizes.push_back(probed->size);
    facts.marks.push_back(probed->mark);
  }
  return facts;
}

// The clips that the parts of a row's turns give, one for each of `videos`;
// empty if none gives any.
absl::StatusOr<std::vector<JsonVideo>> ClipsOf(absl::string_view text,
                                               size_t videos) {
  std::vector<JsonVideo> clips;
  if (videos == 0) return clips;
  BALLAST_ASSIGN_OR_RETURN(clips, ReadVideoParts(text));
  const bool any =
      std::any_of(clips.begin(), clips.end(), [](const JsonVideo& clip) {
        return clip.start.has_value() || clip.end.has_value() || clip.fps > 0;
      });
  if (!any) clips.clear();
  if (clips.empty() || clips.size() == videos) return clips;
  return absl::InvalidArgumentError(absl::StrCat(
      clips.size(), " parts of type video, one with a clip or a rate, and ",
      videos, " videos; wanted as many"));
}

// The facts of a row's videos, with their clips; adds them to `hash`.
absl::StatusOr<std::vector<IndexedVideo>> ProbeVideos(
    const std::vector<ParquetVideo>& videos,
    const std::vector<JsonVideo>& clips, const std::string& name,
    const MediaRoot& media, const IndexOptions& options, ImagesHash* hash) {
  std::vector<IndexedVideo> facts;
  uint64_t left = kMaxSampleBytes;
  for (const ParquetVideo& video : videos) {
    JsonVideo named = clips.empty() ? JsonVideo() : clips[facts.size()];
    named.path = video.path;
    absl::StatusOr<IndexedVideo> probed;
    if (video.path.empty()) {
      probed = ProbeVideo(video.bytes, name, named, options, hash);
      if (!probed.ok()) {
        return Annotate(probed.status(),
                        absl::StrCat("video ", facts.size() + 1));
      }
    } else {
      // Its reason has the path.
      BALLAST_ASSIGN_OR_RETURN(
          probed, ProbeNamedVideo(named, media, options, &left, hash));
    }
    facts.push_back(*probed);
  }
  return facts;
}

// Adds the row to the scan, or returns why it is bad.
absl::Status AddRow(const ParquetRows& rows, uint64_t row,
                    const ParquetGroup& group, const MediaRoot& media,
                    FileScanner& scanner) {
  BALLAST_ASSIGN_OR_RETURN(ParquetRow found, rows.Row(row));
  // With videos the text's marks are counted when it is measured.
  if (found.videos.empty()) {
    BALLAST_RETURN_IF_ERROR(CheckConversation(found.text));
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<JsonVideo> clips,
                           ClipsOf(found.text, found.videos.size()));
  ImagesHash image_hash;
  BALLAST_ASSIGN_OR_RETURN(
      ImageFacts images,
      ProbeImages(found.images, scanner.options(), &image_hash));
  const uint64_t number = group.first_row + row + 1;
  BALLAST_ASSIGN_OR_RETURN(
      images.videos, ProbeVideos(found.videos, clips,
                                 ParquetSampleName(scanner.name(), number),
                                 media, scanner.options(), &image_hash));
  IndexSampleRecord record = {};
  record.offset = group.offset;
  record.text_check = Checksum(found.text);
  record.image_check = image_hash.value();
  record.line = static_cast<uint32_t>(number);
  RawSample sample;
  sample.name = ParquetSampleName(scanner.name(), number);
  sample.text = std::move(found.text);
  sample.video_facts = images.videos;
  return scanner.Add(record, absl::StrCat(number), sample, images.view());
}

}  // namespace

absl::Status ScanParquet(const File& file, const ParquetColumns& columns,
                         const MediaRoot& media, FileScanner& scanner) {
  const auto opened = OpenParquetFile(&file, columns);
  if (absl::IsFailedPrecondition(opened.status()) ||
      absl::IsUnimplemented(opened.status())) {
    // A fault of the configuration or the build, not of the data.
    return Annotate(opened.status(), scanner.name());
  }
  if (!opened.ok()) return scanner.AddBad(0, "", opened.status());
  // As ProbeImages: what this reads is all that the images are looked at.
  const IndexOptions& options = scanner.options();
  const auto read_head = [&](uint64_t size, ReadImageBytes read) {
    (void)ProbeImage(read, size, options.read_image_size, options.judge_image);
  };
  for (size_t i = 0; i < (*opened)->groups().size(); ++i) {
    const ParquetGroup& group = (*opened)->groups()[i];
    const auto rows = file.object() != nullptr
                          ? (*opened)->ReadHeads(file, i, read_head)
                          : (*opened)->Read(&file, i);
    if (!rows.ok()) {
      BALLAST_RETURN_IF_ERROR(scanner.AddBad(
          group.offset, "",
          Annotate(rows.status(),
                   absl::StrCat("row group of rows ", group.first_row + 1,
                                " to ", group.first_row + group.num_rows))));
      continue;
    }
    for (uint64_t row = 0; row < (*rows)->size(); ++row) {
      if (!(*rows)->Passes(row)) {
        scanner.AddFiltered();
        continue;
      }
      const absl::Status added = AddRow(**rows, row, group, media, scanner);
      if (added.ok()) continue;
      BALLAST_RETURN_IF_ERROR(scanner.AddBad(
          group.offset, absl::StrCat(group.first_row + row + 1), added));
    }
    scanner.Advance(group.offset);
  }
  return absl::OkStatus();
}

}  // namespace ballast
