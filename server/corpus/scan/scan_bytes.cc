#include "server/corpus/scan/scan_bytes.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/scan/scan_record.pb.h"

namespace ballast {
namespace {

template <typename Entry>
std::string BytesOf(const std::vector<Entry>& entries) {
  return std::string(reinterpret_cast<const char*>(entries.data()),
                     entries.size() * sizeof(Entry));
}

// False if the bytes are no whole number of entries.
template <typename Entry>
bool TakeEntries(const std::string& bytes, std::vector<Entry>* entries) {
  if (bytes.size() % sizeof(Entry) != 0) return false;
  entries->resize(bytes.size() / sizeof(Entry));
  if (!bytes.empty()) {
    std::memcpy(static_cast<void*>(entries->data()), bytes.data(),
                bytes.size());
  }
  return true;
}

void Put(const std::vector<IndexSampleRecord>& records,
         const ImageFacts& images, v1::ScanRecord::Samples* out) {
  out->set_records(BytesOf(records));
  out->set_sizes(BytesOf(images.sizes));
  out->set_marks(BytesOf(images.marks));
  out->set_hashes(BytesOf(images.content_hashes));
  out->set_videos(BytesOf(images.videos));
  out->set_video_samples(BytesOf(images.video_samples));
}

absl::Status Take(const v1::ScanRecord::Samples& from,
                  std::vector<IndexSampleRecord>* records, ImageFacts* images) {
  if (!TakeEntries(from.records(), records) ||
      !TakeEntries(from.sizes(), &images->sizes) ||
      !TakeEntries(from.marks(), &images->marks) ||
      !TakeEntries(from.hashes(), &images->content_hashes) ||
      !TakeEntries(from.videos(), &images->videos) ||
      !TakeEntries(from.video_samples(), &images->video_samples) ||
      images->video_samples.size() != images->videos.size() ||
      !std::is_sorted(images->video_samples.begin(),
                      images->video_samples.end()) ||
      (!images->video_samples.empty() &&
       images->video_samples.back() >= records->size()) ||
      images->marks.size() != images->sizes.size() ||
      images->content_hashes.size() > images->sizes.size()) {
    return absl::DataLossError("samples that no scan writes");
  }
  for (const IndexSampleRecord& record : *records) {
    const uint64_t all = images->sizes.size();
    if (record.first_image > all ||
        record.num_images > all - record.first_image) {
      return absl::DataLossError("a sample whose images are not there");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> WriteScan(uint64_t file, const FileScan& scan) {
  v1::ScanRecord record;
  record.set_file(file);
  record.set_name(scan.name);
  record.set_size(scan.stamp.size);
  record.set_mtime_ns(scan.stamp.mtime_ns);
  Put(scan.samples, scan.images, record.mutable_samples());
  Put(scan.left_out, scan.left_out_images, record.mutable_left_out());
  record.set_unreadable(scan.unreadable);
  record.set_skipped(scan.report.skipped);
  record.set_reused_files(scan.report.reused_files);
  record.set_reused_samples(scan.report.reused_samples);
  record.set_reused_lengths(scan.report.reused_lengths);
  record.set_known_bad(scan.report.known_bad);
  record.set_filtered(scan.report.filtered);
  for (const auto& [extension, count] : scan.report.ignored) {
    v1::ScanRecord::Ignored& ignored = *record.add_ignored();
    ignored.set_extension(extension);
    ignored.set_count(count);
  }
  for (const BadSample& bad : scan.report.bad) {
    v1::ScanRecord::Bad& out = *record.add_bad();
    out.set_offset(bad.offset);
    out.set_key(bad.key);
    out.set_reason(bad.reason);
    out.set_kind(bad.kind);
  }
  if (record.ByteSizeLong() > INT_MAX) {
    return absl::FailedPreconditionError(absl::StrCat(
        scan.name, ": ", scan.samples.size(),
        " samples, too many of one file for a shard; split the file, or index "
        "without --shard"));
  }
  return record.SerializeAsString();
}

absl::StatusOr<NumberedScan> ReadScan(absl::string_view bytes) {
  v1::ScanRecord record;
  if (bytes.size() > INT_MAX ||
      !record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError("not a scan");
  }
  NumberedScan result;
  result.file = record.file();
  FileScan& scan = result.scan;
  scan.name = record.name();
  scan.stamp.size = record.size();
  scan.stamp.mtime_ns = record.mtime_ns();
  BALLAST_RETURN_IF_ERROR(Take(record.samples(), &scan.samples, &scan.images));
  BALLAST_RETURN_IF_ERROR(
      Take(record.left_out(), &scan.left_out, &scan.left_out_images));
  scan.unreadable = record.unreadable();
  scan.report.skipped = record.skipped();
  scan.report.reused_files = record.reused_files();
  scan.report.reused_samples = record.reused_samples();
  scan.report.reused_lengths = record.reused_lengths();
  scan.report.known_bad = record.known_bad();
  scan.report.filtered = record.filtered();
  for (const v1::ScanRecord::Ignored& ignored : record.ignored()) {
    scan.report.ignored[ignored.extension()] += ignored.count();
  }
  for (const v1::ScanRecord::Bad& bad : record.bad()) {
    scan.report.bad.push_back(
        {scan.name, bad.offset(), bad.key(), bad.reason(), bad.kind()});
  }
  return result;
}

}  // namespace ballast
