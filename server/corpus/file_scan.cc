#include "server/corpus/file_scan.h"

#include "absl/status/statusor.h"

namespace ballast {

FileScanner::FileScanner(std::string name, const File& file,
                         const IndexOptions* options, ProgressMeter* progress)
    : options_(options), progress_(progress) {
  scan_.name = std::move(name);
  scan_.stamp = file.stamp();
}

void FileScanner::Add(IndexSampleRecord record, absl::string_view key,
                      const RawSample& sample,
                      absl::Span<const ImageSize> images) {
  const absl::StatusOr<TextLengths> lengths = options_->measure(sample, images);
  if (!lengths.ok()) {
    scan_.report.bad.push_back({scan_.name, record.offset, std::string(key),
                                std::string(lengths.status().message())});
    return;
  }
  if (lengths->skip) {
    ++scan_.report.skipped;
    return;
  }
  record.first_image = scan_.images.size();
  record.num_images = static_cast<uint32_t>(images.size());
  record.text_tokens = lengths->text_tokens;
  record.label_tokens = lengths->label_tokens;
  scan_.samples.push_back(record);
  scan_.images.insert(scan_.images.end(), images.begin(), images.end());
}

absl::Status FileScanner::AddBad(uint64_t offset, absl::string_view key,
                                 const absl::Status& reason) {
  switch (reason.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kInternal:
      return reason;
    default:
      scan_.report.bad.push_back({scan_.name, offset, std::string(key),
                                  std::string(reason.message())});
      return absl::OkStatus();
  }
}

void FileScanner::AddIgnored(absl::string_view extension, uint64_t count) {
  scan_.report.ignored[std::string(extension)] += count;
}

void FileScanner::Advance(uint64_t offset) {
  constexpr uint64_t kStep = uint64_t{1} << 20;
  if (offset < reported_offset_ + kStep && offset != scan_.stamp.size) return;
  progress_->Add(offset - reported_offset_,
                 scan_.samples.size() - reported_samples_,
                 scan_.report.bad.size() - reported_bad_);
  reported_offset_ = offset;
  reported_samples_ = scan_.samples.size();
  reported_bad_ = scan_.report.bad.size();
}

FileScan FileScanner::Finish() && {
  Advance(scan_.stamp.size);
  return std::move(scan_);
}

}  // namespace ballast
