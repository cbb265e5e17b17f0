#include "server/corpus/index_file.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// Whether `count` records of `size` bytes at `offset` end exactly at `end`.
bool Fills(uint64_t offset, uint64_t count, uint64_t size, uint64_t end) {
  return offset <= end && count <= (end - offset) / size &&
         offset + count * size == end;
}

Digest DigestAt(const uint64_t (&halves)[2]) { return {halves[0], halves[1]}; }

}  // namespace

absl::StatusOr<std::shared_ptr<const IndexFile>> IndexFile::Open(
    const std::string& path) {
  BALLAST_ASSIGN_OR_RETURN(const File file, File::Open(path));
  const uint64_t size = file.stamp().size;
  // Headers of other versions have other sizes.
  if (size < offsetof(IndexHeader, total_bytes)) {
    return absl::DataLossError(absl::StrCat(
        path, ": index of ", size, " bytes, wanted at least ",
        offsetof(IndexHeader, total_bytes), "; it is damaged or not an index"));
  }
  BALLAST_ASSIGN_OR_RETURN(const char* data, file.Map());
  auto index =
      absl::WrapUnique(new IndexFile(path, absl::string_view(data, size)));
  BALLAST_RETURN_IF_ERROR(index->Check());
  return std::shared_ptr<const IndexFile>(std::move(index));
}

IndexFile::IndexFile(std::string path, absl::string_view mapped)
    : path_(std::move(path)), mapped_(mapped) {}

IndexFile::~IndexFile() {
  munmap(const_cast<char*>(mapped_.data()), mapped_.size());
}

absl::Status IndexFile::Damaged(absl::string_view reason) const {
  return absl::DataLossError(absl::StrCat(path_, ": damaged index: ", reason));
}

absl::Status IndexFile::Check() {
  header_ = reinterpret_cast<const IndexHeader*>(mapped_.data());
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
  digests_.sizes = DigestAt(header_->sizes_digest);
  digests_.lengths = DigestAt(header_->lengths_digest);
  digests_.limits = DigestAt(header_->limits_digest);
  BALLAST_RETURN_IF_ERROR(CheckFiles());
  BALLAST_RETURN_IF_ERROR(CheckSamples());
  return CheckOrder();
}

absl::Status IndexFile::CheckHeader() const {
  const IndexHeader& header = *header_;
  if (header.magic != kIndexMagic) return Damaged("this is no index");
  if (header.version != kIndexVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": index of version ", header.version, ", wanted ",
                     kIndexVersion));
  }
  if (mapped_.size() < sizeof(IndexHeader)) {
    return Damaged(absl::StrCat("it has ", mapped_.size(), " bytes, wanted ",
                                sizeof(IndexHeader), " for its header alone"));
  }
  if (header.header_checksum !=
      Checksum(mapped_.substr(0, offsetof(IndexHeader, header_checksum)))) {
    return Damaged("the header's checksum differs");
  }
  if (header.total_bytes != mapped_.size()) {
    return Damaged(absl::StrCat("it has ", mapped_.size(), " bytes, wanted ",
                                header.total_bytes));
  }
  // Below 2^63, so that their sum is one.
  const uint64_t records = std::min(header.num_samples, header.total_bytes) +
                           std::min(header.num_left_out, header.total_bytes);
  if (header.file_table != sizeof(IndexHeader) ||
      header.num_samples > header.total_bytes ||
      header.num_left_out > header.total_bytes ||
      header.names > header.total_bytes ||
      !Fills(header.file_table, header.num_files, sizeof(IndexFileRecord),
             header.sample_table) ||
      !Fills(header.sample_table, records, sizeof(IndexSampleRecord),
             header.image_table) ||
      !Fills(header.image_table, header.num_images, sizeof(ImageSize),
             header.names)) {
    return Damaged("its tables do not lie one after another");
  }
  if (header.body_checksum != Checksum(mapped_.substr(sizeof(IndexHeader)))) {
    return Damaged("the checksum of its tables differs");
  }
  return absl::OkStatus();
}

absl::Status IndexFile::CheckFiles() const {
  const uint64_t bytes = header_->total_bytes - header_->names;
  for (uint64_t i = 0; i < files_.size(); ++i) {
    const IndexFileRecord& file = files_[i];
    if (file.name > bytes || file.name_bytes > bytes - file.name) {
      return Damaged(absl::StrCat("file ", i, " has its name outside"));
    }
  }
  return absl::OkStatus();
}

absl::Status IndexFile::CheckSamples() const {
  uint64_t images = 0;
  for (uint64_t i = 0; i < samples_.size(); ++i) {
    const IndexSampleRecord& sample = samples_[i];
    if (sample.file >= files_.size()) {
      return Damaged(absl::StrCat("sample ", i, " in file ", sample.file,
                                  " of ", files_.size()));
    }
    const uint64_t size = files_[sample.file].size;
    if (sample.offset > size || sample.length > size - sample.offset) {
      return Damaged(absl::StrCat("sample ", i, " lies outside its file"));
    }
    if (sample.first_image != images ||
        sample.num_images > images_.size() - images) {
      return Damaged(absl::StrCat(
          "sample ", i, " has images ", sample.first_image, " and ",
          sample.num_images, " more, wanted ", images, " of ", images_.size()));
    }
    images += sample.num_images;
  }
  if (images != images_.size()) {
    return Damaged(
        absl::StrCat(images_.size(), " images, its samples have ", images));
  }
  for (uint64_t i = 0; i < images_.size(); ++i) {
    if (images_[i].width == 0 || images_[i].height == 0) {
      return Damaged(absl::StrCat("image ", i, " has a side of 0"));
    }
  }
  return absl::OkStatus();
}

absl::Status IndexFile::CheckOrder() const {
  for (uint64_t i = 1; i < samples_.size(); ++i) {
    if (i == header_->num_samples) continue;  // of those left out the first
    const IndexSampleRecord& before = samples_[i - 1];
    const IndexSampleRecord& sample = samples_[i];
    if (sample.file < before.file ||
        (sample.file == before.file && sample.offset < before.offset)) {
      return Damaged(absl::StrCat("sample ", i,
                                  " stands after one that lies "
                                  "behind it"));
    }
  }
  return absl::OkStatus();
}

IndexedSample IndexFile::sample(uint64_t ordinal) const {
  const IndexSampleRecord& record = samples_[ordinal];
  return {record.text_tokens, record.label_tokens, images(ordinal)};
}

std::string IndexFile::digest() const {
  return absl::StrFormat("%016x%016x", header_->data_digest[0],
                         header_->data_digest[1]);
}

absl::string_view IndexFile::file_name(uint64_t number) const {
  const IndexFileRecord& file = files_[number];
  return mapped_.substr(header_->names + file.name, file.name_bytes);
}

FileStamp IndexFile::file_stamp(uint64_t number) const {
  return {files_[number].size, files_[number].mtime_ns};
}

}  // namespace ballast
