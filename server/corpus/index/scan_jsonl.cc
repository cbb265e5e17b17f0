#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/index/file_scan.h"
#include "server/corpus/jsonl/conversation_json.h"
#include "server/corpus/jsonl/line_reader.h"
#include "server/corpus/limits.h"
#include "server/corpus/source_files.h"

namespace ballast {
namespace {

absl::StatusOr<JsonSample> ReadSample(const Line& line) {
  if (line.length > kMaxTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "line of ", line.length, " bytes, wanted at most ", kMaxTextBytes));
  }
  if (line.number > kMaxLineNumber) {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", line.number, ", wanted at most ", kMaxLineNumber,
                     " lines in a file; split the file"));
  }
  return ParseJsonSample(line.text);
}

// Reads the headers of the images that a line of `bytes` names.
absl::StatusOr<ImageFacts> ReadImages(const std::vector<std::string>& paths,
                                      uint64_t bytes, const MediaRoot& media,
                                      const IndexOptions& options,
                                      ImagesHash* hash) {
  ImageFacts images;
  for (const std::string& path : paths) {
    BALLAST_ASSIGN_OR_RETURN(const File file, media.Open(path));
    const uint64_t size = file.stamp().size;
    if (size > kMaxSampleBytes - bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("over ", kMaxSampleBytes, " bytes in all"));
    }
    bytes += size;
    const absl::StatusOr<ProbedImage> image = ProbeImage(
        file, 0, size, options.read_image_size, options.judge_image, hash);
    if (!image.ok()) return Annotate(image.status(), file.path());
    images.sizes.push_back(image->size);
    images.marks.push_back(image->mark);
  }
  return images;
}

}  // namespace

absl::Status ScanJsonl(const File& file, const MediaRoot& media,
                       FileScanner& scanner) {
  LineReader lines(&file, kMaxTextBytes);
  while (true) {
    BALLAST_ASSIGN_OR_RETURN(const std::optional<Line> line, lines.Next());
    if (!line) return absl::OkStatus();
    const bool blank = line->length <= kMaxTextBytes &&
                       absl::StripLeadingAsciiWhitespace(line->text).empty();
    if (blank) continue;
    const std::string key = absl::StrCat(line->number);
    const absl::StatusOr<JsonSample> found = ReadSample(*line);
    ImagesHash image_hash;
    const absl::StatusOr<ImageFacts> images =
        found.ok() ? ReadImages(found->images, line->length, media,
                                scanner.options(), &image_hash)
                   : found.status();
    if (images.ok()) {
      RawSample sample;
      sample.name = JsonlSampleName(scanner.name(), line->number);
      sample.text_format = found->text_format;
      sample.text = std::string(line->text);
      IndexSampleRecord record = {};
      record.offset = line->offset;
      record.length = static_cast<uint32_t>(line->length);
      record.text_check = Checksum(line->text);
      record.image_check = image_hash.value();
      record.line = static_cast<uint32_t>(line->number);
      BALLAST_RETURN_IF_ERROR(scanner.Add(record, key, sample, images->view()));
    } else {
      BALLAST_RETURN_IF_ERROR(
          scanner.AddBad(line->offset, key, images.status()));
    }
    scanner.Advance(line->offset + line->length);
  }
}

}  // namespace ballast
