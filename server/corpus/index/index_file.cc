#include "server/corpus/index/index_file.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/align.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// Returns whether `count` records of `size` bytes at `offset` end exactly at
// `end`.
bool Fills(uint64_t offset, uint64_t count, uint64_t size, uint64_t end) {
  return offset <= end && count <= (end - offset) / size &&
         offset + count * size == end;
}

// Samples between calls of `progress`: about one second of work.
constexpr uint64_t kSamplesOfProgress = 1 << 23;

// The header of version 4 in the form of the version in force.
IndexHeader Converted(const IndexHeaderV4& old) {
  IndexHeader header = {};
  header.magic = old.magic;
  header.version = old.version;
  header.format = old.format;
  header.total_bytes = old.total_bytes;
  header.num_files = old.num_files;
  header.num_samples = old.num_samples;
  header.num_left_out = old.num_left_out;
  header.num_images = old.num_images;
  header.file_table = old.file_table;
  header.table_checksums = old.table_checksums;
  header.names = old.names;
  header.sample_table = old.sample_table;
  header.image_table = old.image_table;
  header.page_checksums = old.page_checksums;
  for (int half = 0; half < 2; ++half) {
    header.sizes_digest[half] = old.sizes_digest[half];
    header.lengths_digest[half] = old.lengths_digest[half];
    header.limits_digest[half] = old.limits_digest[half];
    header.data_digest[half] = old.data_digest[half];
  }
  header.head_checksum = old.head_checksum;
  header.header_checksum = old.header_checksum;
  return header;
}

Digest DigestAt(const uint64_t (&halves)[2]) { return {halves[0], halves[1]}; }

}  // namespace

absl::StatusOr<std::shared_ptr<const IndexFile>> IndexFile::Open(
    const std::string& path, EncodedRule rule) {
  return Open(path, rule, kIndexVersion);
}

absl::StatusOr<std::shared_ptr<const IndexFile>> IndexFile::OpenToReuse(
    const std::string& path) {
  return Open(path, EncodedRule::kNone, kOldestReusedVersion);
}

absl::StatusOr<std::shared_ptr<const IndexFile>> IndexFile::Open(
    const std::string& path, EncodedRule rule, uint32_t oldest_version) {
  BALLAST_ASSIGN_OR_RETURN(const File file, File::Open(path));
  const uint64_t size = file.stamp().size;
  // Headers of other versions may have other sizes.
  if (size < offsetof(IndexHeader, total_bytes)) {
    return absl::DataLossError(absl::StrCat(
        path, ": index of ", size, " bytes, wanted at least ",
        offsetof(IndexHeader, total_bytes), "; it is damaged or not an index"));
  }
  BALLAST_ASSIGN_OR_RETURN(const char* data, file.Map());
  auto index = absl::WrapUnique(
      new IndexFile(path, absl::string_view(data, size), rule));
  BALLAST_RETURN_IF_ERROR(index->CheckHead(oldest_version));
  return std::shared_ptr<const IndexFile>(std::move(index));
}

IndexFile::IndexFile(std::string path, absl::string_view mapped,
                     EncodedRule rule)
    : path_(std::move(path)), mapped_(mapped), rule_(rule) {}

IndexFile::~IndexFile() {
  munmap(const_cast<char*>(mapped_.data()), mapped_.size());
}

void IndexFile::Advise(int advice) const {
  // Ignores a failure: the pages are read all the same.
  madvise(const_cast<char*>(mapped_.data()), mapped_.size(), advice);
}

absl::Status IndexFile::Damaged(absl::string_view reason) const {
  return absl::DataLossError(absl::StrCat(path_, ": damaged index: ", reason));
}

absl::Status IndexFile::CheckHead(uint32_t oldest_version) {
  // Look-ups are spread over the file, so only the pages that Prefetch requests
  // are read, without their neighbours.
  Advise(MADV_RANDOM);
  BALLAST_RETURN_IF_ERROR(ReadHeader(oldest_version));
  BALLAST_RETURN_IF_ERROR(CheckHeader());
  const auto at = [&](uint64_t offset) { return mapped_.data() + offset; };
  files_ = absl::MakeConstSpan(
      reinterpret_cast<const IndexFileRecord*>(at(header_->file_table)),
      header_->num_files);
  samples_ = absl::MakeConstSpan(
      reinterpret_cast<const IndexSampleRecord*>(at(header_->sample_table)),
      header_->num_samples + header_->num_left_out);
  images_ = absl::MakeConstSpan(
      reinterpret_cast<const ImageSize*>(at(header_->image_table)),
      header_->num_images);
  if (marks_header_ != nullptr) {
    marks_ = absl::MakeConstSpan(
        reinterpret_cast<const ImageMark*>(at(marks_header_->mark_table)),
        header_->num_images);
    hashes_ = absl::MakeConstSpan(
        reinterpret_cast<const uint64_t*>(at(marks_header_->hash_table)),
        marks_header_->num_hashes);
  }
  digests_.sizes = DigestAt(header_->sizes_digest);
  digests_.lengths = DigestAt(header_->lengths_digest);
  digests_.limits = DigestAt(header_->limits_digest);
  const auto* checksums =
      reinterpret_cast<const uint64_t*>(at(header_->table_checksums));
  pages_ = IndexPages(
      mapped_, header_->sample_table, header_->page_checksums,
      absl::MakeConstSpan(
          checksums, reinterpret_cast<const uint64_t*>(at(header_->names))));
  return CheckFiles();
}

absl::Status IndexFile::ReadHeader(uint32_t oldest_version) {
  // Versions have the magic number and the version in common.
  header_ = reinterpret_cast<const IndexHeader*>(mapped_.data());
  if (header_->magic != kIndexMagic) return Damaged("this is no index");
  const uint32_t version = header_->version;
  if (version < oldest_version || version > kIndexVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        path_, ": index of version ", version, ", wanted ", kIndexVersion,
        version < kIndexVersion ? ", which says what JPEG engines may decode"
                                : ""));
  }
  const bool is_old = version < kIndexVersion;
  const uint64_t size = is_old ? sizeof(IndexHeaderV4) : kIndexHeaderBytes;
  if (mapped_.size() < size) {
    return Damaged(absl::StrCat("it has ", mapped_.size(), " bytes, wanted ",
                                size, " for its header alone"));
  }
  const size_t sealed = is_old ? offsetof(IndexHeaderV4, header_checksum)
                               : offsetof(IndexHeader, header_checksum);
  uint64_t checksum;
  std::memcpy(&checksum, mapped_.data() + sealed, sizeof(checksum));
  if (checksum != Checksum(mapped_.substr(0, sealed))) {
    return Damaged("the header's checksum differs");
  }
  if (is_old) {
    converted_ =
        Converted(*reinterpret_cast<const IndexHeaderV4*>(mapped_.data()));
    header_ = &converted_;
  } else {
    marks_header_ = reinterpret_cast<const IndexMarksHeader*>(
        mapped_.data() + sizeof(IndexHeader));
  }
  return absl::OkStatus();
}

absl::Status IndexFile::CheckHeader() const {
  const IndexHeader& header = *header_;
  if (header.total_bytes != mapped_.size()) {
    return Damaged(absl::StrCat("it has ", mapped_.size(), " bytes, wanted ",
                                header.total_bytes));
  }
  if (!TablesFit()) return Damaged("its tables do not lie one after another");
  ReadAhead(mapped_.substr(0, header.sample_table));
  const uint64_t begin =
      marks_header_ == nullptr ? header_bytes() : sizeof(IndexHeader);
  if (header.head_checksum !=
      Checksum(mapped_.substr(begin, header.sample_table - begin))) {
    return Damaged("the checksum of its files and names differs");
  }
  return absl::OkStatus();
}

std::optional<uint64_t> IndexFile::EndOfRecords() const {
  const IndexHeader& header = *header_;
  const uint64_t end = header.page_checksums;
  if (header.image_table > end ||
      header.num_images > (end - header.image_table) / sizeof(ImageSize)) {
    return std::nullopt;
  }
  const uint64_t images_end =
      header.image_table + header.num_images * sizeof(ImageSize);
  const IndexMarksHeader* const marks = marks_header_;
  if (marks == nullptr) return images_end;
  const bool has_hashes = marks->num_hashes != 0;
  if (marks->hash_table != images_end || marks->mark_table > end ||
      (has_hashes && marks->num_hashes != header.num_images) ||
      !Fills(images_end, marks->num_hashes, sizeof(uint64_t),
             marks->mark_table) ||
      header.num_images > (end - marks->mark_table) / sizeof(ImageMark)) {
    return std::nullopt;
  }
  return marks->mark_table + header.num_images * sizeof(ImageMark);
}

bool IndexFile::TablesFit() const {
  const IndexHeader& header = *header_;
  // Each is below 2^63, so that the sum does not wrap.
  if (header.num_samples > header.total_bytes ||
      header.num_left_out > header.total_bytes) {
    return false;
  }
  const uint64_t records = header.num_samples + header.num_left_out;
  if (header.sample_table % kIndexPageBytes != 0 ||
      header.page_checksums % kIndexPageBytes != 0 ||
      header.names > header.sample_table ||
      header.sample_table > header.page_checksums ||
      header.page_checksums > header.total_bytes) {
    return false;
  }
  const std::optional<uint64_t> records_end = EndOfRecords();
  if (!records_end.has_value()) return false;
  const uint64_t pages =
      (header.page_checksums - header.sample_table) / kIndexPageBytes;
  const uint64_t pages_of_table =
      AlignUp(pages * sizeof(uint64_t), kIndexPageBytes) / kIndexPageBytes;
  return header.file_table == header_bytes() &&
         Fills(header.file_table, header.num_files, sizeof(IndexFileRecord),
               header.table_checksums) &&
         Fills(header.table_checksums, pages_of_table, sizeof(uint64_t),
               header.names) &&
         Fills(header.sample_table, records, sizeof(IndexSampleRecord),
               header.image_table) &&
         header.page_checksums - *records_end < kIndexPageBytes &&
         Fills(header.page_checksums, pages, sizeof(uint64_t),
               header.total_bytes);
}

absl::Status IndexFile::CheckFiles() const {
  const uint64_t bytes = header_->sample_table - header_->names;
  for (uint64_t i = 0; i < files_.size(); ++i) {
    const IndexFileRecord& file = files_[i];
    if (file.name > bytes || file.name_bytes > bytes - file.name) {
      return Damaged(absl::StrCat("file ", i, " has its name outside"));
    }
  }
  return absl::OkStatus();
}

absl::Status IndexFile::TouchPagesAnew(Range range) const {
  const absl::Status status = pages_.Touch(range.offset, range.size);
  if (status.ok()) return status;
  return Damaged(absl::StrCat(
      status.message(),
      "; was it written to or copied in part, or does its disk fail? "
      "`ballast-server index --config F --verify` reads all of it and builds "
      "it anew"));
}

absl::Status IndexFile::CheckRecord(uint64_t number) const {
  const IndexSampleRecord& sample = samples_[number];
  if (LeadsInside(sample)) return absl::OkStatus();
  if (sample.file >= files_.size()) {
    return Damaged(absl::StrCat("sample ", number, " in file ", sample.file,
                                " of ", files_.size()));
  }
  const uint64_t size = files_[sample.file].size;
  if (sample.offset > size || sample.length > size - sample.offset) {
    return Damaged(absl::StrCat("sample ", number, " lies outside its file"));
  }
  return Damaged(absl::StrCat("sample ", number, " has images ",
                              sample.first_image, " and ", sample.num_images,
                              " more, of ", images_.size()));
}

absl::Status IndexFile::TouchAnew(uint64_t number) const {
  BALLAST_RETURN_IF_ERROR(TouchRecord(number));
  BALLAST_RETURN_IF_ERROR(TouchPages(ImagesRange(number)));
  for (const ImageSize& image : images(number)) {
    if (image.width == 0 || image.height == 0) {
      return Damaged(
          absl::StrCat("an image of sample ", number, " has a side of 0"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<IndexedSample> IndexFile::sample(uint64_t ordinal) const {
  BALLAST_RETURN_IF_ERROR(Touch(ordinal));
  const IndexSampleRecord& record = samples_[ordinal];
  IndexedSample sample = {record.text_tokens, record.label_tokens,
                          images(ordinal)};
  if (GivesMarks() && record.num_images > 0) {
    BALLAST_RETURN_IF_ERROR(TouchPages(MarksRange(ordinal)));
    sample.marks = marks(ordinal);
    sample.rule = rule_;
  }
  return sample;
}

absl::StatusOr<absl::Span<const uint64_t>> IndexFile::content_hashes(
    uint64_t ordinal) const {
  if (hashes_.empty()) return absl::Span<const uint64_t>();
  BALLAST_RETURN_IF_ERROR(TouchRecord(ordinal));
  if (samples_[ordinal].num_images == 0) return absl::Span<const uint64_t>();
  BALLAST_RETURN_IF_ERROR(TouchPages(TableRange(hashes_, samples_[ordinal])));
  return hashes(ordinal);
}

void IndexFile::Prefetch(absl::Span<const uint64_t> ordinals) const {
  std::vector<uint64_t> untouched;
  // Fetches pages in memory into the processor's cache, others into memory.
  const auto fetch = [&](Range range) {
    const char* begin = mapped_.data() + header_->sample_table + range.offset;
    __builtin_prefetch(begin);
    __builtin_prefetch(begin + range.size - 1);
    pages_.AddUntouched(range.offset, range.size, &untouched);
  };
  for (const uint64_t ordinal : ordinals) fetch(RecordRange(ordinal));
  pages_.Prefetch(std::move(untouched));
  untouched.clear();
  for (const uint64_t ordinal : ordinals) {
    // Skips a damaged record: its look-up reports the damage.
    if (!TouchRecord(ordinal).ok()) continue;
    const Range range = ImagesRange(ordinal);
    if (range.size == 0) continue;
    fetch(range);
    if (GivesMarks()) fetch(MarksRange(ordinal));
  }
  pages_.Prefetch(std::move(untouched));
}

absl::Status IndexFile::Verify(
    const std::function<void(uint64_t samples)>& progress) const {
  Advise(MADV_NORMAL);
  const absl::Cleanup random = [this] { Advise(MADV_RANDOM); };
  uint64_t images = 0;
  for (uint64_t i = 0; i < samples_.size(); ++i) {
    if (progress && i % kSamplesOfProgress == 0) progress(i);
    BALLAST_RETURN_IF_ERROR(Touch(i));
    BALLAST_RETURN_IF_ERROR(CheckPlace(i, images));
    images += samples_[i].num_images;
  }
  if (images != images_.size()) {
    return Damaged(
        absl::StrCat(images_.size(), " images, its samples have ", images));
  }
  // The padding of the last page belongs to no record.
  return TouchPages({0, header_->page_checksums - header_->sample_table});
}

absl::Status IndexFile::CheckPlace(uint64_t number,
                                   uint64_t first_image) const {
  const IndexSampleRecord& sample = samples_[number];
  if (sample.first_image != first_image) {
    return Damaged(absl::StrCat("sample ", number, " has images from ",
                                sample.first_image, ", wanted from ",
                                first_image));
  }
  // Samples left out are ordered among themselves.
  if (number == 0 || number == header_->num_samples) return absl::OkStatus();
  const IndexSampleRecord& before = samples_[number - 1];
  if (sample.file < before.file ||
      (sample.file == before.file && sample.offset < before.offset)) {
    return Damaged(absl::StrCat("sample ", number,
                                " stands after one that lies behind it"));
  }
  return absl::OkStatus();
}

std::string IndexFile::digest() const {
  return absl::StrFormat("%016x%016x", header_->data_digest[0],
                         header_->data_digest[1]);
}

std::string IndexFile::encoded_digest() const {
  if (!GivesMarks()) return "";
  const auto& halves = rule_ == EncodedRule::kUnchecked
                           ? marks_header_->unchecked_digest
                           : marks_header_->checked_digest;
  return absl::StrFormat("%016x%016x", halves[0], halves[1]);
}

ImageMarkCounts IndexFile::mark_counts() const {
  ImageMarkCounts counts;
  if (marks_header_ == nullptr) return counts;
  std::copy_n(marks_header_->checks, counts.checks.size(),
              counts.checks.begin());
  std::copy_n(marks_header_->refusals, counts.refusals.size(),
              counts.refusals.begin());
  counts.images = counts.marked();
  for (const uint64_t refused : counts.refusals) counts.images += refused;
  return counts;
}

absl::string_view IndexFile::file_name(uint64_t number) const {
  const IndexFileRecord& file = files_[number];
  return mapped_.substr(header_->names + file.name, file.name_bytes);
}

FileStamp IndexFile::file_stamp(uint64_t number) const {
  return {files_[number].size, files_[number].mtime_ns};
}

}  // namespace ballast
