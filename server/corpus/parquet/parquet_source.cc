#include "server/corpus/parquet/parquet_source.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/limits.h"
#include "server/corpus/read_image.h"
#include "server/corpus/read_videos.h"
#include "server/corpus/source_files.h"

namespace ballast {
namespace {

// The row group at `offset`, or nothing.
const ParquetGroup* GroupAt(absl::Span<const ParquetGroup> groups,
                            uint64_t offset) {
  const auto found = std::partition_point(
      groups.begin(), groups.end(),
      [&](const ParquetGroup& group) { return group.offset < offset; });
  return found != groups.end() && found->offset == offset ? &*found : nullptr;
}

}  // namespace

uint64_t EstimateBytesOfGroups(const IndexFile& index, uint64_t groups) {
  const uint64_t all = index.group_starts().size();
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < index.num_files(); ++i) {
    bytes += index.file_stamp(i).size;
  }
  if (groups >= all) return bytes;
  return static_cast<uint64_t>(static_cast<double>(bytes) / all * groups);
}

absl::StatusOr<ParquetSource::GroupPlace> ParquetSource::FindGroup(
    uint32_t file_number, uint64_t offset, FileView file) const {
  const RowGroupCache::Key key = {this, file_number, /*offset=*/0,
                                  file.stamp().mtime_ns};
  RowGroupCache::Part footer;
  if (file.from() == ReadFrom::kMemory) {
    footer = row_groups_->Find(key);
    if (footer == nullptr) return absl::AbortedError("footer not decoded");
  } else {
    const auto open = [&]() -> absl::StatusOr<RowGroupCache::Part> {
      auto opened = OpenParquetFile(file, columns_);
      if (opened.ok()) BALLAST_RETURN_IF_ERROR(file.CheckUnchanged());
      return opened;
    };
    BALLAST_ASSIGN_OR_RETURN(footer, row_groups_->Get(key, open));
  }
  GroupPlace place;
  place.file = std::static_pointer_cast<const ParquetFile>(footer);
  const ParquetGroup* group = GroupAt(place.file->groups(), offset);
  if (group == nullptr) {
    return AsDataFault(absl::DataLossError("no row group begins there"));
  }
  place.number = group - place.file->groups().data();
  return place;
}

absl::StatusOr<std::vector<ByteRange>> ParquetSource::RangesOf(
    const IndexSampleRecord& record, FileView file, bool images) const {
  const auto rows = FindRows(record, file);
  if (rows != nullptr && !(images && rows->ImagesInFile())) {
    return std::vector<ByteRange>();
  }
  // The footer, too, is of the version that was opened.
  BALLAST_RETURN_IF_ERROR(file.Load({}));
  BALLAST_ASSIGN_OR_RETURN(const GroupPlace place,
                           FindGroup(record.file, record.offset, file));
  return place.file->Ranges(place.number);
}

absl::StatusOr<std::shared_ptr<const ParquetRows>> ParquetSource::RowsAt(
    const IndexSampleRecord& record, FileView file, bool images) const {
  const RowGroupCache::Key key = KeyOf(record, file);
  const auto load = [&]() -> absl::StatusOr<RowGroupCache::Part> {
    BALLAST_ASSIGN_OR_RETURN(const GroupPlace place,
                             FindGroup(record.file, record.offset, file));
    auto rows = file.object() == nullptr || file.IsInCache()
                    ? place.file->ReadPlaces(file, place.number)
                    : place.file->Read(file, place.number);
    // Nothing that was decoded while the file changed is kept for others.
    if (rows.ok()) BALLAST_RETURN_IF_ERROR(file.CheckUnchanged());
    return rows;
  };
  BALLAST_ASSIGN_OR_RETURN(RowGroupCache::Part rows,
                           row_groups_->Get(key, load));
  const auto in_file = [&] {
    return static_cast<const ParquetRows&>(*rows).ImagesInFile();
  };
  if (file.object() != nullptr && images && in_file() && !file.IsInCache()) {
    // The cache has lost the row group, which came from the store as a whole:
    // its images stay in memory, or each would fetch it again.
    if (row_groups_->Find(key) == rows) row_groups_->Drop(key);
    BALLAST_ASSIGN_OR_RETURN(rows, row_groups_->Get(key, load));
  }
  return std::static_pointer_cast<const ParquetRows>(rows);
}

absl::StatusOr<RawSample> ParquetSource::ReadRecord(
    const IndexSampleRecord& record, FileView file, absl::string_view file_name,
    ReadParts parts, bool /*lists*/) const {
  if (parts.from == ReadFrom::kMemory) {
    const auto rows = FindRows(record, file);
    if (rows == nullptr) return absl::AbortedError("row group not decoded");
    return ReadRow(record, *rows, file, file_name, parts);
  }
  absl::StatusOr<RawSample> sample = absl::UnknownError("not read");
  const auto found = RowsAt(record, file, parts.images);
  if (found.ok()) {
    sample = ReadRow(record, **found, file, file_name, parts);
  } else if (absl::IsFailedPrecondition(found.status())) {
    // The columns were there when the file was indexed.
    sample = AsDataFault(absl::DataLossError(found.status().message()));
  } else {
    sample = found.status();
  }
  if (!sample.ok() || !file.CheckUnchanged().ok()) {
    // The file may have been damaged, or another one, when it was decoded, and
    // be whole later, with the stamp that it had.
    const int64_t version = file.stamp().mtime_ns;
    row_groups_->Drop(KeyOf(record, file));
    row_groups_->Drop({this, record.file, /*offset=*/0, version});
  }
  return sample;
}

absl::StatusOr<RawSample> ParquetSource::ReadRow(
    const IndexSampleRecord& record, const ParquetRows& rows, FileView file,
    absl::string_view file_name, ReadParts parts) const {
  const auto at_row = [&](const absl::Status& status) {
    return Annotate(status, absl::StrCat("row ", record.line));
  };
  const uint64_t row = uint64_t{record.line} - 1 - rows.first_row();
  if (row >= rows.size()) {
    return at_row(AsDataFault(absl::DataLossError("not in its row group")));
  }
  absl::StatusOr<ParquetRow> found = rows.Row(row);
  if (!found.ok()) return at_row(found.status());
  if (Checksum(found->text) != record.text_check) {
    return at_row(
        AsDataFault(absl::DataLossError("its text is not the index's")));
  }
  RawSample sample;
  sample.name = ParquetSampleName(file_name, record.line);
  if (parts.text) sample.text = std::move(found->text);
  if (!parts.images) return sample;
  ImagesHash hash;
  for (const ParquetImage& image : found->images) {
    if (image.pieces.empty()) {
      CopyImage(image.bytes, found->images.size(), parts, &hash, &sample);
      continue;
    }
    BALLAST_RETURN_IF_ERROR(ReadImageBy(
        [&](char* to) {
          return ReadPieces(file, image.pieces, image.others, to);
        },
        image.size, found->images.size(), parts, &hash, &sample));
  }
  uint64_t left = kMaxSampleBytes;
  for (ParquetVideo& video : found->videos) {
    if (!video.path.empty()) {
      JsonVideo named;
      named.path = std::move(video.path);
      BALLAST_RETURN_IF_ERROR(
          at_row(ReadNamedVideo(named, media_, parts.from, FileOwner(record),
                                &left, &hash, &sample)));
      continue;
    }
    hash.Add(video.bytes.size(), video.bytes.substr(0, ImagesHash::kHeadBytes));
    BALLAST_ASSIGN_OR_RETURN(RawVideo opened,
                             VideoInMemory(video.bytes, sample.name));
    sample.videos.push_back(std::move(opened));
  }
  if (found->images.size() != record.num_images ||
      hash.value() != record.image_check) {
    return at_row(AsDataFault(
        absl::DataLossError("its images or videos are not the index's")));
  }
  return sample;
}

}  // namespace ballast
