#include "server/data/parquet/parquet_parser.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/data/index/file_scan.h"
#include "server/data/index/image_probe.h"
#include "server/data/index/probe_media.h"
#include "server/data/jsonl/conversation_json.h"
#include "server/data/parquet/parquet_file.h"
#include "server/files/path_pattern.h"
#include "server/sample/data_fault.h"
#include "server/sample/index_format.h"

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

// Gives the videos the bounds and rates of the parts of a row's turns, one for
// each, if any part has some.
absl::Status NameRowBounds(Record* record) {
  if (record->text_format != RawSample::TextFormat::kConversation) {
    return absl::OkStatus();
  }
  BALLAST_RETURN_IF_ERROR(NameClips(MediumKind::kAudio, record));
  const size_t videos = record->count(MediumKind::kVideo);
  if (videos == 0) return absl::OkStatus();
  BALLAST_ASSIGN_OR_RETURN(std::vector<NamedMedium> parts,
                           ReadVideoParts(record->text));
  const bool any =
      std::any_of(parts.begin(), parts.end(), [](const NamedMedium& part) {
        return part.start.has_value() || part.end.has_value() || part.fps > 0;
      });
  if (!any) return absl::OkStatus();
  if (parts.size() != videos) {
    return DataFaultError(absl::StrCat(
        parts.size(), " parts of type video, one with a clip or a rate, and ",
        videos, " videos; wanted as many"));
  }
  auto part = parts.begin();
  for (RecordMedium& medium : record->media) {
    if (medium.kind == MediumKind::kVideo) medium.named = std::move(*part++);
  }
  return absl::OkStatus();
}

// The rows of Parquet files, read by row groups.
class RowReader {
 public:
  RowReader(ParquetColumns columns, std::shared_ptr<RowGroupCache> row_groups)
      : columns_(std::move(columns)), row_groups_(std::move(row_groups)) {}
  ~RowReader() { row_groups_->DropSource(this); }
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  // A row, and the row group that it is in.
  struct Place {
    std::shared_ptr<const ParquetRows> rows;
    uint64_t row = 0;  // in `rows`
    uint64_t group_offset = 0;
  };

  // Passes each row that passes the filters to `add`, whose error ends the
  // scan. `scan` is a FileScanner or a RawRecordSink. `read` reads a row group.
  template <typename Scan>
  absl::Status ScanRows(
      const File& file, Scan& scan,
      absl::FunctionRef<absl::StatusOr<std::shared_ptr<const ParquetRows>>(
          const ParquetFile& opened, size_t group)>
          read,
      absl::FunctionRef<absl::Status(const Place& place)> add) const;

  // The row of `entry`. Errors: as RecordParser::Read.
  absl::StatusOr<Place> ReadRow(const IndexSampleRecord& entry, FileView file,
                                bool images) const;
  // Ranges of its row group, unless all that is wanted of that is in memory.
  absl::StatusOr<std::vector<ByteRange>> Ranges(const IndexSampleRecord& entry,
                                                FileView file,
                                                bool images) const;
  void Forget(const IndexSampleRecord& entry, const FileView& file) const {
    row_groups_->Drop(GetKey(entry, file));
    row_groups_->Drop({this, entry.file, /*offset=*/0, file.stamp().mtime_ns});
  }

 private:
  // The row group of a record in row_groups_.
  ParquetPartKey GetKey(const IndexSampleRecord& entry,
                        const FileView& file) const {
    return {this, entry.file, entry.offset, file.stamp().mtime_ns};
  }
  // Its rows, or null if they are not decoded.
  std::shared_ptr<const ParquetRows> FindRows(const IndexSampleRecord& entry,
                                              const FileView& file) const {
    return std::static_pointer_cast<const ParquetRows>(
        row_groups_->Find(GetKey(entry, file)));
  }
  // The footer of a file, and the number of its row group at `offset`. From
  // memory: ABORTED if the footer is not decoded.
  struct GroupPlace {
    std::shared_ptr<const ParquetFile> file;
    size_t number = 0;
  };
  absl::StatusOr<GroupPlace> FindGroup(uint32_t file_number, uint64_t offset,
                                       FileView file) const;
  // The row group of the record, from row_groups_ or the file, with images that
  // can be read there, if they are wanted.
  absl::StatusOr<std::shared_ptr<const ParquetRows>> RowsAt(
      const IndexSampleRecord& entry, FileView file, bool images) const;

  const ParquetColumns columns_;
  const std::shared_ptr<RowGroupCache> row_groups_;
};

template <typename Scan>
absl::Status RowReader::ScanRows(
    const File& file, Scan& scan,
    absl::FunctionRef<absl::StatusOr<std::shared_ptr<const ParquetRows>>(
        const ParquetFile& opened, size_t group)>
        read,
    absl::FunctionRef<absl::Status(const Place& place)> add) const {
  const auto opened = OpenParquetFile(&file, columns_);
  if (absl::IsFailedPrecondition(opened.status()) ||
      absl::IsUnimplemented(opened.status())) {
    // A fault of the configuration or the build, not of the data.
    return Annotate(opened.status(), scan.name());
  }
  if (!opened.ok()) return scan.AddBad(0, "", opened.status());
  for (size_t i = 0; i < (*opened)->groups().size(); ++i) {
    const ParquetGroup& group = (*opened)->groups()[i];
    const auto rows = read(**opened, i);
    if (!rows.ok()) {
      BALLAST_RETURN_IF_ERROR(scan.AddBad(
          group.offset, "",
          Annotate(rows.status(),
                   absl::StrCat("row group of rows ", group.first_row + 1,
                                " to ", group.first_row + group.num_rows))));
      continue;
    }
    for (uint64_t row = 0; row < (*rows)->size(); ++row) {
      if (!(*rows)->Passes(row)) {
        scan.AddFiltered();
        continue;
      }
      BALLAST_RETURN_IF_ERROR(add({*rows, row, group.offset}));
    }
    scan.Advance(group.offset);
  }
  return absl::OkStatus();
}

absl::StatusOr<RowReader::GroupPlace> RowReader::FindGroup(
    uint32_t file_number, uint64_t offset, FileView file) const {
  const ParquetPartKey key = {this, file_number, /*offset=*/0,
                              file.stamp().mtime_ns};
  RowGroupCache::Ptr footer;
  if (file.from() == ReadFrom::kMemory) {
    footer = row_groups_->Find(key);
    if (footer == nullptr) return absl::AbortedError("footer not decoded");
  } else {
    const auto open = [&]() -> absl::StatusOr<RowGroupCache::Ptr> {
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
    return DataFaultError("no row group begins there");
  }
  place.number = group - place.file->groups().data();
  return place;
}

absl::StatusOr<std::vector<ByteRange>> RowReader::Ranges(
    const IndexSampleRecord& entry, FileView file, bool images) const {
  const auto rows = FindRows(entry, file);
  if (rows != nullptr && !(images && rows->ImagesInFile())) {
    return std::vector<ByteRange>();
  }
  // The footer, too, is of the version that was opened.
  BALLAST_RETURN_IF_ERROR(file.Load({}));
  BALLAST_ASSIGN_OR_RETURN(const GroupPlace place,
                           FindGroup(entry.file, entry.offset, file));
  return place.file->Ranges(place.number);
}

absl::StatusOr<std::shared_ptr<const ParquetRows>> RowReader::RowsAt(
    const IndexSampleRecord& entry, FileView file, bool images) const {
  const ParquetPartKey key = GetKey(entry, file);
  const auto load = [&]() -> absl::StatusOr<RowGroupCache::Ptr> {
    BALLAST_ASSIGN_OR_RETURN(const GroupPlace place,
                             FindGroup(entry.file, entry.offset, file));
    auto rows = file.object() == nullptr || file.IsInCache()
                    ? place.file->ReadPlaces(file, place.number)
                    : place.file->Read(file, place.number);
    // Nothing that was decoded while the file changed is kept for others.
    if (rows.ok()) BALLAST_RETURN_IF_ERROR(file.CheckUnchanged());
    return rows;
  };
  BALLAST_ASSIGN_OR_RETURN(RowGroupCache::Ptr rows,
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

absl::StatusOr<RowReader::Place> RowReader::ReadRow(
    const IndexSampleRecord& entry, FileView file, bool images) const {
  Place place;
  if (file.from() == ReadFrom::kMemory) {
    place.rows = FindRows(entry, file);
    if (place.rows == nullptr) {
      return absl::AbortedError("row group not decoded");
    }
  } else {
    auto read = RowsAt(entry, file, images);
    if (absl::IsFailedPrecondition(read.status())) {
      // The columns were there when the file was indexed.
      return DataFaultError(read.status().message());
    }
    BALLAST_RETURN_IF_ERROR(read.status());
    place.rows = *std::move(read);
  }
  place.group_offset = entry.offset;
  place.row = uint64_t{entry.line} - 1 - place.rows->first_row();
  if (place.row >= place.rows->size()) {
    return DataFaultError(
        absl::StrCat("row ", entry.line, ": not in its row group"));
  }
  return place;
}

// The record of a row, without its text and media.
Record PlaceRecord(const RowReader::Place& place, absl::string_view file_name) {
  const uint64_t number = place.rows->first_row() + place.row + 1;
  Record record;
  record.key = absl::StrCat(number);
  record.where = absl::StrCat("row ", number);
  record.name = absl::StrCat(file_name, ": ", record.where);
  record.entry.offset = place.group_offset;
  record.entry.line = static_cast<uint32_t>(number);
  record.bytes = place.rows;
  return record;
}

// The record of a row. Errors: as ParquetRows::Row.
absl::StatusOr<Record> GetRecord(const RowReader::Place& place,
                                 absl::string_view file_name) {
  BALLAST_ASSIGN_OR_RETURN(ParquetRow found, place.rows->Row(place.row));
  Record record = PlaceRecord(place, file_name);
  record.entry.text_check =
      found.fields.empty() ? Checksum(found.text)
                           : Checksum(absl::StrCat(found.text, found.fields));
  record.text = std::move(found.text);
  record.fields = std::move(found.fields);
  if (found.is_document) record.text_format = RawSample::TextFormat::kPlain;
  for (const ParquetImage& image : found.images) {
    Medium medium = {absl::StrCat("image ", record.media.size() + 1), {}};
    if (image.pieces.empty()) {
      medium.place = image.bytes;
    } else {
      medium.place = MediumPieces{image.size, image.pieces, image.others};
    }
    record.Add(MediumKind::kImage, std::move(medium));
  }
  const auto add = [&record](std::vector<ParquetVideo>& media,
                             MediumKind kind) {
    for (size_t i = 0; i < media.size(); ++i) {
      Medium medium;
      if (media[i].path.empty()) {
        medium.name = absl::StrCat(MediumName(kind), " ", i + 1);
        medium.place = media[i].bytes;
      } else {
        medium.place = MediumPath{std::move(media[i].path)};
      }
      record.Add(kind, std::move(medium));
    }
  };
  add(found.videos, MediumKind::kVideo);
  add(found.audios, MediumKind::kAudio);
  return record;
}

// The base of both parsers of rows.
template <typename Parser>
class RowParser : public Parser {
 public:
  RowParser(ParquetColumns columns, MediaRoot media,
            std::shared_ptr<RowGroupCache> row_groups)
      : reader_(std::move(columns), std::move(row_groups)),
        media_(std::move(media)) {}

  const MediaRoot* media() const override { return &media_; }
  absl::StatusOr<std::vector<ByteRange>> Ranges(const IndexSampleRecord& entry,
                                                FileView file,
                                                bool images) const override {
    return reader_.Ranges(entry, file, images);
  }
  void Forget(const IndexSampleRecord& entry,
              const FileView& file) const override {
    reader_.Forget(entry, file);
  }

 protected:
  const RowReader reader_;
  const MediaRoot media_;  // of videos that a row names by path
};

class ParquetParser final : public RowParser<RecordParser> {
 public:
  ParquetParser(ParquetColumns columns, MediaRoot media,
                std::shared_ptr<RowGroupCache> row_groups)
      : RowParser(std::move(columns), std::move(media), std::move(row_groups)) {
  }

  absl::Status Scan(const File& file, FileScanner& scanner) const override {
    // As ProbeImages: what this reads is all that the images are looked at.
    const IndexOptions& options = scanner.options();
    const auto read_head = [&](uint64_t size, ReadImageBytes read) {
      (void)ProbeImage(read, size, options.read_image_size, options.judge_image,
                       options.decode_image);
    };
    return reader_.ScanRows(
        file, scanner,
        [&](const ParquetFile& opened, size_t group) {
          // A content hash needs more than the images' headers.
          return file.object() != nullptr && !options.hash
                     ? opened.ReadHeads(file, group, read_head)
                     : opened.Read(&file, group);
        },
        [&](const RowReader::Place& place) {
          return scanner.Listed(
              place.group_offset,
              absl::StrCat(place.rows->first_row() + place.row + 1),
              AddRow(place, file, scanner));
        });
  }

  absl::StatusOr<Record> Read(const IndexSampleRecord& entry, FileView file,
                              absl::string_view file_name,
                              const ReadParts& parts,
                              const IndexedKinds& /*kinds*/) const override {
    BALLAST_ASSIGN_OR_RETURN(const RowReader::Place place,
                             reader_.ReadRow(entry, file, parts.images));
    auto record = GetRecord(place, file_name);
    if (record.ok()) return record;
    return Annotate(record.status(), absl::StrCat("row ", entry.line));
  }

 private:
  // Adds the row to the scan, or returns why it is bad.
  absl::Status AddRow(const RowReader::Place& place, const File& file,
                      FileScanner& scanner) const {
    BALLAST_ASSIGN_OR_RETURN(Record record, GetRecord(place, scanner.name()));
    BALLAST_RETURN_IF_ERROR(CheckMarks(record));
    BALLAST_RETURN_IF_ERROR(NameRowBounds(&record));
    return scanner.AddRecord(std::move(record), file, &media_);
  }
};

// Rows with all their columns, for a recipe. Their bytes are in memory.
class RawParquetParser final : public RowParser<RawRecordParser> {
 public:
  RawParquetParser(ParquetColumns columns, MediaRoot media)
      : RowParser(std::move(columns), std::move(media),
                  RowGroupCache::OfProcess()) {}

  absl::Status Scan(const File& file, RawRecordSink& sink) const override {
    return reader_.ScanRows(
        file, sink,
        [&](const ParquetFile& opened, size_t group) {
          return opened.Read(&file, group);
        },
        [&](const RowReader::Place& place) {
          auto raw = GetRawRecord(place, sink.name());
          if (raw.ok()) return sink.Add(*std::move(raw));
          return sink.AddBad(
              place.group_offset,
              absl::StrCat(place.rows->first_row() + place.row + 1),
              raw.status());
        });
  }

  absl::StatusOr<RawRecord> Read(const IndexSampleRecord& entry, FileView file,
                                 absl::string_view file_name) const override {
    BALLAST_ASSIGN_OR_RETURN(const RowReader::Place place,
                             reader_.ReadRow(entry, file, /*images=*/true));
    auto raw = GetRawRecord(place, file_name);
    if (raw.ok()) return raw;
    return Annotate(raw.status(), absl::StrCat("row ", entry.line));
  }

 private:
  static absl::StatusOr<RawRecord> GetRawRecord(const RowReader::Place& place,
                                                absl::string_view file_name) {
    BALLAST_ASSIGN_OR_RETURN(ParquetRow row, place.rows->Row(place.row));
    RawRecord raw;
    raw.record = PlaceRecord(place, file_name);
    raw.given.kind = RecipeRecord::Kind::kRow;
    raw.given.text = std::move(row.text);
    for (size_t i = 0; i < row.images.size(); ++i) {
      raw.given.parts.push_back(
          {row.columns[i], row.images[i].size, std::nullopt});
      raw.media.push_back({row.columns[i], row.images[i].bytes});
    }
    return raw;
  }
};

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

std::unique_ptr<RecordParser> MakeParquetParser(
    ParquetColumns columns, MediaRoot media,
    std::shared_ptr<RowGroupCache> row_groups) {
  return std::make_unique<ParquetParser>(std::move(columns), std::move(media),
                                         std::move(row_groups));
}

const RecordFormat kParquetFormat = {
    v1::Source::FORMAT_PARQUET,
    CheckParquetIsBuiltIn,
    /*list_files=*/nullptr,
    [](const v1::Source& source, absl::string_view) {
      return ParquetColumnsKey(source) + "\n";
    },
    /*names_media=*/true,
    /*in_groups=*/true,
    [](const v1::Source& source, absl::string_view directory)
        -> absl::StatusOr<std::unique_ptr<RecordParser>> {
      BALLAST_ASSIGN_OR_RETURN(MediaRoot media,
                               MediaRoot::Create(source, directory));
      return MakeParquetParser(GetParquetColumns(source), std::move(media),
                               RowGroupCache::OfProcess());
    },
    [](const v1::Source& source, absl::string_view directory)
        -> absl::StatusOr<std::unique_ptr<RawRecordParser>> {
      BALLAST_ASSIGN_OR_RETURN(MediaRoot media,
                               MediaRoot::Create(source, directory));
      return std::make_unique<RawParquetParser>(GetParquetColumns(source),
                                                std::move(media));
    }};

}  // namespace ballast
