#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/index/compressed_file.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/index/file_scan.h"
#include "server/corpus/index/probe_media.h"
#include "server/corpus/jsonl/conversation_json.h"
#include "server/corpus/jsonl/element_reader.h"
#include "server/corpus/jsonl/line_reader.h"
#include "server/corpus/limits.h"
#include "server/corpus/source_files.h"

namespace ballast {
namespace {

absl::StatusOr<JsonSample> ReadSample(const Line& line) {
  if (line.length > kMaxTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "object of ", line.length, " bytes, wanted at most ", kMaxTextBytes));
  }
  if (line.number > kMaxLineNumber) {
    return absl::InvalidArgumentError(
        absl::StrCat("object ", line.number, ", wanted at most ",
                     kMaxLineNumber, " in a file; split the file"));
  }
  return ParseJsonSample(line.text);
}

// Reads the headers of the images and videos that a line of `bytes` names.
absl::StatusOr<ImageFacts> ReadImages(const JsonSample& sample, uint64_t bytes,
                                      const MediaRoot& media,
                                      const IndexOptions& options,
                                      ImagesHash* hash) {
  ImageFacts facts;
  uint64_t left = kMaxSampleBytes - bytes;
  BALLAST_RETURN_IF_ERROR(
      ProbeNamedImages(sample.images, media, options, &left, hash, &facts));
  for (const JsonVideo& named : sample.videos) {
    BALLAST_ASSIGN_OR_RETURN(
        const IndexedVideo video,
        ProbeNamedVideo(named, media, options, &left, hash));
    facts.videos.push_back(video);
  }
  return facts;
}

// Reads lines, or the elements of an array.
class ObjectReader {
 public:
  ObjectReader(const File* file, bool is_array) {
    if (is_array) {
      elements_.emplace(file, kMaxTextBytes);
    } else {
      lines_.emplace(file, kMaxTextBytes);
    }
  }
  absl::StatusOr<std::optional<Line>> Next() {
    return elements_ ? elements_->Next() : lines_->Next();
  }
  // Where an array is damaged.
  uint64_t offset() const { return elements_ ? elements_->offset() : 0; }

 private:
  std::optional<LineReader> lines_;
  std::optional<ElementReader> elements_;
};

// Adds the object to the scan, or lists it as bad.
absl::Status AddObject(const Line& line, const MediaRoot& media,
                       FileScanner& scanner) {
  const std::string key = absl::StrCat(line.number);
  const absl::StatusOr<JsonSample> found = ReadSample(line);
  if (!found.ok()) return scanner.AddBad(line.offset, key, found.status());
  ImagesHash image_hash;
  const absl::StatusOr<ImageFacts> images =
      ReadImages(*found, line.length, media, scanner.options(), &image_hash);
  if (!images.ok()) return scanner.AddBad(line.offset, key, images.status());
  RawSample sample;
  sample.name = JsonlSampleName(scanner.name(), line.number);
  sample.text_format = found->text_format;
  sample.text = std::string(line.text);
  sample.video_facts = images->videos;
  IndexSampleRecord record = {};
  record.offset = line.offset;
  record.length = static_cast<uint32_t>(line.length);
  record.text_check = Checksum(line.text);
  record.image_check = image_hash.value();
  record.line = static_cast<uint32_t>(line.number);
  return scanner.Add(record, key, sample, images->view());
}

}  // namespace

absl::Status ScanJsonl(const File& file, const MediaRoot& media,
                       FileScanner& scanner) {
  BALLAST_RETURN_IF_ERROR(CheckNotCompressed(file, scanner.name()));
  BALLAST_ASSIGN_OR_RETURN(const bool is_array, IsJsonArray(file));
  ObjectReader objects(&file, is_array);
  while (true) {
    const absl::StatusOr<std::optional<Line>> line = objects.Next();
    if (is_array && absl::IsDataLoss(line.status())) {
      return scanner.AddDamage(objects.offset(), "", line.status());
    }
    BALLAST_RETURN_IF_ERROR(line.status());
    if (!line->has_value()) return absl::OkStatus();
    const bool blank = (*line)->length <= kMaxTextBytes &&
                       absl::StripLeadingAsciiWhitespace((*line)->text).empty();
    if (blank) continue;
    BALLAST_RETURN_IF_ERROR(AddObject(**line, media, scanner));
    scanner.Advance((*line)->offset + (*line)->length);
  }
}

}  // namespace ballast
