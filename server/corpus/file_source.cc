#include "server/corpus/file_source.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "server/corpus/data_path.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/jsonl/conversation_json.h"
#include "server/corpus/limits.h"
#include "server/corpus/tar/webdataset_reader.h"

namespace ballast {
namespace {

template <typename... Piece>
absl::Status Differs(const Piece&... pieces) {
  return absl::DataLossError(
      absl::StrCat(pieces..., "; the file is not the one that was indexed"));
}

bool IsFaultOfData(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsOutOfRange(status);
}

absl::Status CheckImages(size_t found, const IndexSampleRecord& record) {
  if (found == record.num_images) return absl::OkStatus();
  return Differs(found, " images, the index has ", record.num_images);
}

}  // namespace

absl::StatusOr<RawSample> FileSource::Read(uint64_t ordinal,
                                           ReadParts parts) const {
  if (ordinal >= index_->size()) {
    return absl::OutOfRangeError(absl::StrCat(index_->path(), ": no sample ",
                                              ordinal, " of ", index_->size()));
  }
  return ReadNumber(ordinal, parts);
}

absl::StatusOr<RawSample> FileSource::ReadNumber(uint64_t number,
                                                 ReadParts parts) const {
  if (parts.from == ReadFrom::kMemory && !index_->IsTouched(number)) {
    return absl::AbortedError(
        absl::StrCat(index_->path(), ": nobody has looked up sample ", number));
  }
  BALLAST_RETURN_IF_ERROR(index_->Touch(number));
  const IndexSampleRecord& record = index_->record(number);
  const absl::string_view name = index_->file_name(record.file);
  BALLAST_ASSIGN_OR_RETURN(
      const std::shared_ptr<const File> file,
      files_.Get(record.file, index_->file_stamp(record.file), parts.from));
  const FileView view(file.get(), parts.from);
  absl::StatusOr<RawSample> sample = ReadRecord(record, view, name, parts);
  if (sample.ok()) {
    // Looked at after the bytes: those of a file that has changed may be
    // anything, also where they read well.
    BALLAST_ASSIGN_OR_RETURN(const bool unchanged, view.IsUnchanged());
    if (unchanged) return sample;
    sample = absl::DataLossError(
        "the file has changed since it was indexed; is it being rewritten?");
  }
  const absl::Status status = Annotate(
      sample.status(), absl::StrCat(Printable(name), ": sample ", number,
                                    " at byte ", record.offset));
  return IsFaultOfData(status) ? absl::DataLossError(status.message()) : status;
}

SampleLocation FileSource::Locate(uint64_t ordinal) const {
  // Whoever asks has a disk that hangs, as likely as not.
  if (ordinal >= index_->size() || !index_->IsTouched(ordinal)) return {};
  const IndexSampleRecord& record = index_->record(ordinal);
  return {std::string(index_->file_name(record.file)), record.offset};
}

absl::StatusOr<RawSample> WebDatasetSource::ReadRecord(
    const IndexSampleRecord& record, FileView file, absl::string_view file_name,
    ReadParts parts) const {
  const uint64_t end = record.offset + record.length;
  WebDatasetReader reader(file, record.offset, end, /*whole=*/false);
  BALLAST_ASSIGN_OR_RETURN(const std::optional<WebDatasetSample> found,
                           reader.Next());
  if (!found || found->begin != record.offset || found->end != end) {
    return Differs("no sample of ", record.length, " bytes");
  }
  if (Checksum(found->key) != record.check) {
    return Differs("key \"", Printable(found->key), "\" is not the index's");
  }
  RawSample sample;
  sample.name = WebDatasetSampleName(file_name, found->key);
  const auto at_key = [&](const absl::Status& status) {
    return Annotate(status, absl::StrCat("key ", Printable(found->key)));
  };
  if (!found->fault.ok()) return at_key(found->fault);
  BALLAST_RETURN_IF_ERROR(at_key(CheckImages(found->images.size(), record)));
  sample.text_format = found->text_format;
  if (parts.text) {
    BALLAST_ASSIGN_OR_RETURN(sample.text,
                             file.ReadAt(found->text.data, found->text.size));
  }
  if (!parts.images) return sample;
  for (const TarMember& image : found->images) {
    BALLAST_ASSIGN_OR_RETURN(std::string bytes,
                             file.ReadAt(image.data, image.size));
    sample.images.push_back(std::move(bytes));
  }
  return sample;
}

absl::StatusOr<RawSample> JsonlSource::ReadRecord(
    const IndexSampleRecord& record, FileView file, absl::string_view file_name,
    ReadParts parts) const {
  if (record.length > kMaxTextBytes) {
    return Differs("line of ", record.length, " bytes");
  }
  BALLAST_ASSIGN_OR_RETURN(std::string line,
                           file.ReadAt(record.offset, record.length));
  if (Checksum(line) != record.check) {
    return Differs("line ", record.line, " is another");
  }
  RawSample sample;
  sample.name = JsonlSampleName(file_name, record.line);
  const auto at_line = [&](const absl::Status& status) {
    return Annotate(status, absl::StrCat("line ", record.line));
  };
  const absl::StatusOr<JsonSample> found = ParseJsonSample(line);
  if (!found.ok()) return at_line(found.status());
  BALLAST_RETURN_IF_ERROR(at_line(CheckImages(found->images.size(), record)));
  sample.text_format = found->text_format;
  uint64_t left = kMaxSampleBytes - line.size();
  if (parts.text) sample.text = std::move(line);
  if (!parts.images) return sample;
  for (const std::string& path : found->images) {
    const absl::StatusOr<File> image = media_.Open(path, parts.from);
    if (!image.ok()) return at_line(image.status());
    const uint64_t size = image->stamp().size;
    if (size > left) {
      return at_line(Differs("over ", kMaxSampleBytes, " bytes in all"));
    }
    left -= size;
    BALLAST_ASSIGN_OR_RETURN(std::string bytes,
                             image->ReadAt(0, size, parts.from));
    sample.images.push_back(std::move(bytes));
  }
  return sample;
}

}  // namespace ballast
