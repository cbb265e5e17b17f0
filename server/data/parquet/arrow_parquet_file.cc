// Parquet files through Arrow C++.
#include <arrow/api.h>
#include <arrow/type.h>
#include <arrow/type_fwd.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>
#include <parquet/statistics.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/data/jsonl/media_root.h"
#include "server/data/parquet/arrow_file.h"
#include "server/data/parquet/arrow_group.h"
#include "server/data/parquet/arrow_stream_file.h"
#include "server/data/parquet/arrow_values.h"
#include "server/data/parquet/image_heads.h"
#include "server/data/parquet/image_pages.h"
#include "server/data/parquet/mapped_rows.h"
#include "server/data/parquet/page_body.h"
#include "server/data/parquet/parquet_file.h"
#include "server/data/parquet/row_mapping.h"
#include "server/data/parquet/whole_rows.h"
#include "server/files/store_reader.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

// The leaves of a file's schema that samples are read from: numbers of columns,
// as Parquet counts them.
struct SampleLeaves {
  std::vector<int> all;
  // Those that place a row group: indexes hold the first byte of them.
  std::vector<int> placing;
  // The bytes of images; -1: none.
  int image = -1;
  // Whether images may be read by pages, as their type goes.
  bool may_page = false;
};

// Whether the field of a part that names its image: a text.
bool NamesImage(const arrow::Field& field, const std::string& column,
                const RowMapping& mapping) {
  return column == mapping.turns && field.name() == "image";
}

// Whether all of a field of a turn is read.
bool IsWhole(const std::string& name) {
  return name != "reasoning_content" &&
         std::find(std::begin(kTurnKeys), std::end(kTurnKeys), name) !=
             std::end(kTurnKeys);
}

// Adds the leaves of `field`, part of column `column`, that samples need; all
// of them with `whole`.
void AddLeaves(const parquet::arrow::SchemaField& field,
               const std::string& column, const RowMapping& mapping, bool whole,
               SampleLeaves* leaves) {
  if (field.is_leaf()) {
    leaves->all.push_back(field.column_index);
    // They were not read when the first indexes were made.
    if (!whole && !NamesImage(*field.field, column, mapping)) {
      leaves->placing.push_back(field.column_index);
    }
    return;
  }
  const bool is_struct = field.field->type()->id() == arrow::Type::STRUCT;
  for (const parquet::arrow::SchemaField& child : field.children) {
    const arrow::Field& inner = *child.field;
    const bool in_whole = whole || (is_struct && IsWhole(inner.name()));
    if (is_struct && !whole && !IsRead(mapping, column, inner.name())) continue;
    if (is_struct && !in_whole && NamesImage(inner, column, mapping) &&
        !IsTextType(*inner.type())) {
      continue;
    }
    AddLeaves(child, column, mapping, in_whole, leaves);
  }
}

int FindImage(const parquet::SchemaDescriptor& schema,
              const RowMapping& mapping, const std::vector<int>& leaves) {
  if (mapping.images.empty()) return -1;
  for (const int leaf : leaves) {
    const parquet::ColumnDescriptor& column = *schema.Column(leaf);
    if (schema.GetColumnRoot(leaf)->name() == mapping.images &&
        column.physical_type() == parquet::Type::BYTE_ARRAY &&
        column.name() != "path") {
      return leaf;
    }
  }
  return -1;
}

// Lists of a fixed size are checked by the decoder; filters compare decoded
// values.
bool MayPage(const arrow::Schema& schema, const RowMapping& mapping) {
  const auto images = schema.GetFieldByName(mapping.images);
  return images != nullptr &&
         images->type()->id() != arrow::Type::FIXED_SIZE_LIST &&
         std::none_of(mapping.filters.begin(), mapping.filters.end(),
                      [&](const RowFilter& filter) {
                        return filter.column == mapping.images;
                      });
}

SampleLeaves FindLeaves(const parquet::arrow::SchemaManifest& manifest,
                        const arrow::Schema& schema,
                        const RowMapping& mapping) {
  SampleLeaves leaves;
  if (!mapping.whole.empty()) {
    for (const auto& field : manifest.schema_fields) {
      AddLeaves(field, field.field->name(), mapping, /*whole=*/true, &leaves);
    }
    leaves.placing = leaves.all;
    return leaves;
  }
  for (const std::string& name : ColumnsToRead(mapping)) {
    const auto is_name = [&name](const auto& each) { return each == name; };
    // A filter's column is as it was.
    const bool whole =
        std::any_of(mapping.beside.begin(), mapping.beside.end(), is_name) &&
        std::none_of(
            mapping.filters.begin(), mapping.filters.end(),
            [&](const RowFilter& filter) { return filter.column == name; });
    for (const auto& field : manifest.schema_fields) {
      if (field.field->name() != name) continue;
      AddLeaves(field, name, mapping, whole, &leaves);
    }
  }
  if (mapping.is_pair) leaves.placing = leaves.all;  // all are whole
  leaves.image = FindImage(*manifest.descr, mapping, leaves.all);
  leaves.may_page = leaves.image >= 0 && MayPage(schema, mapping);
  return leaves;
}

// The first byte of a column chunk.
int64_t GetBegin(const parquet::ColumnChunkMetaData& chunk) {
  return chunk.has_dictionary_page() ? std::min(chunk.dictionary_page_offset(),
                                                chunk.data_page_offset())
                                     : chunk.data_page_offset();
}

arrow::Result<std::unique_ptr<parquet::arrow::FileReader>> MakeReader(
    std::shared_ptr<ArrowFile> file, arrow::MemoryPool* pool,
    std::shared_ptr<parquet::FileMetaData> metadata, bool checksums = true) {
  parquet::ReaderProperties properties(pool);
  properties.set_page_checksum_verification(checksums);
  // Decoded where it is called: no threads, no reads ahead.
  parquet::ArrowReaderProperties arrow_properties(/*use_threads=*/false);
  arrow_properties.set_pre_buffer(false);
  parquet::arrow::FileReaderBuilder builder;
  ARROW_RETURN_NOT_OK(
      builder.Open(std::move(file), properties, std::move(metadata)));
  builder.memory_pool(pool);
  builder.properties(arrow_properties);
  return builder.Build();
}

// Whether there is nothing to map: writers that go by the values give the
// columns of such a file no types.
bool HasNoRows(const parquet::FileMetaData& metadata) {
  for (int i = 0; i < metadata.num_row_groups(); ++i) {
    if (metadata.RowGroup(i)->num_rows() != 0) return false;
  }
  return true;
}

class ArrowParquetFile final : public ParquetFile {
 public:
  ArrowParquetFile(std::shared_ptr<parquet::FileMetaData> metadata,
                   RowMapping mapping, SampleLeaves leaves)
      : metadata_(std::move(metadata)),
        mapping_(std::move(mapping)),
        leaves_(std::move(leaves)) {}

  // Finds the row groups in the footer.
  absl::Status FindGroups(uint64_t file_size) {
    file_size_ = file_size;
    uint64_t row = 0;
    for (int i = 0; i < metadata_->num_row_groups(); ++i) {
      const auto group = metadata_->RowGroup(i);
      if (group->num_rows() < 0 ||
          static_cast<uint64_t>(group->num_rows()) > kMaxLineNumber - row) {
        return DamagedTable(
            absl::StrCat("row group ", i, " has ", group->num_rows(),
                         " rows; a file has at most ", kMaxLineNumber));
      }
      if (group->num_rows() == 0) continue;
      int64_t begin = static_cast<int64_t>(file_size);
      for (const int leaf : leaves_.placing) {
        begin = std::min(begin, GetBegin(*group->ColumnChunk(leaf)));
      }
      const int64_t least = groups_.empty() ? 0 : groups_.back().offset;
      if (begin <= least || begin >= static_cast<int64_t>(file_size)) {
        return DamagedTable(absl::StrCat("row group ", i, " begins at byte ",
                                         begin, " of ", file_size,
                                         ", the one before it at ", least));
      }
      groups_.push_back({row, static_cast<uint64_t>(group->num_rows()),
                         static_cast<uint64_t>(begin)});
      numbers_.push_back(i);
      row += group->num_rows();
    }
    return absl::OkStatus();
  }

  uint64_t bytes() const override {
    // Structures of the library take several times the encoded footer.
    return sizeof(*this) + uint64_t{8} * metadata_->size() +
           groups_.size() * (sizeof(ParquetGroup) + sizeof(int));
  }
  absl::Span<const ParquetGroup> groups() const override { return groups_; }

  std::vector<ByteRange> Ranges(size_t number) const override {
    return GetRanges(number, leaves_.all);
  }

  absl::StatusOr<std::shared_ptr<const ParquetRows>> Read(
      FileView file, size_t number) const override {
    auto memory = std::make_shared<GroupMemory>();
    BALLAST_ASSIGN_OR_RETURN(
        std::optional<ImagePages> images,
        FindImages(number, [&](const ImageChunk& chunk, absl::Status& error) {
          const auto in = std::make_shared<ArrowFile>(file, &memory->pool);
          // Also if the library throws.
          const absl::Cleanup keeps_error = [&] { error = in->error(); };
          return ReadImagePages(in, chunk, &memory->pool);
        }));
    return ReadOthers(file, number, std::move(images), memory);
  }

  absl::StatusOr<std::shared_ptr<const ParquetRows>> ReadPlaces(
      FileView file, size_t number) const override {
    auto memory = std::make_shared<GroupMemory>();
    BALLAST_ASSIGN_OR_RETURN(
        std::optional<ImagePages> images,
        FindImages(number, [&](const ImageChunk& chunk, absl::Status& error) {
          file.ReadSoon(chunk.range);
          return PlaceImages(file, chunk, &memory->pool, &error);
        }));
    if (!images.has_value()) return Read(file, number);
    return ReadOthers(file, number, std::move(images), memory);
  }

  absl::StatusOr<std::shared_ptr<const ParquetRows>> ReadHeads(
      const File& file, size_t number, ReadHead read_head) const override {
    FileView view(&file);
    const auto read_all =
        [&]() -> absl::StatusOr<std::shared_ptr<const ParquetRows>> {
      BALLAST_RETURN_IF_ERROR(view.Load(Ranges(number)));
      return Read(view, number);
    };
    if (leaves_.image < 0) return read_all();
    const auto chunk =
        metadata_->RowGroup(numbers_[number])->ColumnChunk(leaves_.image);
    const auto range = GetRange(*chunk);
    bool has_heads = false;
    // A codec that nobody knows is an exception; the decoder says so.
    const absl::Status none;
    (void)GuardArrow(none, [&] {
      has_heads = HasImageHeads(*chunk);
      return arrow::Status::OK();
    });
    if (!has_heads || !range.has_value()) return read_all();
    auto memory = std::make_shared<GroupMemory>();
    PartialBytes partial(&file, *range);
    absl::Status failed;
    const absl::Status read = GuardArrow(failed, [&] {
      return ReadImageHeads(*chunk, *metadata_->schema()->Column(leaves_.image),
                            read_head, &memory->pool, &partial, &failed);
    });
    BALLAST_RETURN_IF_ERROR(failed);
    // Damaged pages: the decoder says what is wrong.
    if (!read.ok()) return read_all();
    const auto [of_images, others] = SplitLeaves();
    BALLAST_RETURN_IF_ERROR(view.Load(GetRanges(number, others)));
    BALLAST_ASSIGN_OR_RETURN(const auto table,
                             Decode(view, number, others, *memory));
    BALLAST_ASSIGN_OR_RETURN(
        const auto heads, Decode(view, number, of_images, *memory, &partial));
    const auto joined = table->AddColumn(
        table->num_columns(), heads->schema()->field(0), heads->column(0));
    if (!joined.ok()) return DamagedTable(joined.status().message());
    return MapTable(*joined, std::nullopt, mapping_, groups_[number], memory);
  }

 private:
  // The bytes of a column chunk; nullopt if it does not begin within the file.
  std::optional<ByteRange> GetRange(
      const parquet::ColumnChunkMetaData& chunk) const {
    const uint64_t begin = static_cast<uint64_t>(GetBegin(chunk));
    const int64_t size = chunk.total_compressed_size();
    if (size < 0 || begin >= file_size_) return std::nullopt;
    // Sizes come from the file: never more than it has bytes.
    return ByteRange{begin, std::min<uint64_t>(size, file_size_ - begin)};
  }

  std::vector<ByteRange> GetRanges(size_t number,
                                   const std::vector<int>& leaves) const {
    // Readers look after chunks of old writers for what the writers left out
    // of the footer.
    constexpr uint64_t kBehind = 128;
    std::vector<ByteRange> ranges;
    const auto group = metadata_->RowGroup(numbers_[number]);
    for (const int leaf : leaves) {
      std::optional<ByteRange> range = GetRange(*group->ColumnChunk(leaf));
      if (!range.has_value()) continue;
      range->size = std::min(range->size + kBehind, file_size_ - range->offset);
      ranges.push_back(*range);
    }
    return Coalesce(std::move(ranges));
  }

  // The leaves of the column of images, and the others.
  std::pair<std::vector<int>, std::vector<int>> SplitLeaves() const {
    std::pair<std::vector<int>, std::vector<int>> split;
    for (const int leaf : leaves_.all) {
      const bool is_image =
          metadata_->schema()->GetColumnRoot(leaf)->name() == mapping_.images;
      (is_image ? split.first : split.second).push_back(leaf);
    }
    return split;
  }

  // What `find` finds of a row group's images; nullopt if they have to be
  // decoded otherwise. Of pages that are damaged the decoder says what is
  // wrong.
  template <typename Find>
  absl::StatusOr<std::optional<ImagePages>> FindImages(size_t number,
                                                       Find find) const {
    std::optional<ImagePages> images;
    if (!leaves_.may_page) return images;
    absl::Status error;
    const absl::Status found = GuardArrow(error, [&]() -> arrow::Status {
      const auto chunk =
          metadata_->RowGroup(numbers_[number])->ColumnChunk(leaves_.image);
      const parquet::ColumnDescriptor& column =
          *metadata_->schema()->Column(leaves_.image);
      const auto range = GetRange(*chunk);
      if (!range.has_value() ||
          !MayHaveImagePages(*metadata_, *chunk, column)) {
        return arrow::Status::OK();
      }
      return find(ImageChunk{*metadata_, *chunk, column, *range}, error)
          .Value(&images);
    });
    BALLAST_RETURN_IF_ERROR(error);
    if (!found.ok() || !images.has_value() ||
        images->num_rows() != groups_[number].num_rows) {
      images.reset();
    }
    return images;
  }

  // The rows of a group, with `images` unless these have to be decoded.
  absl::StatusOr<std::shared_ptr<const ParquetRows>> ReadOthers(
      FileView file, size_t number, std::optional<ImagePages> images,
      const std::shared_ptr<GroupMemory>& memory) const {
    std::vector<int> leaves = leaves_.all;
    if (images.has_value()) std::erase(leaves, leaves_.image);
    BALLAST_ASSIGN_OR_RETURN(auto table, Decode(file, number, leaves, *memory));
    const auto others =
        images.has_value() ? table->GetColumnByName(mapping_.images) : nullptr;
    if (others != nullptr &&
        (others->num_chunks() != 1 ||
         !RowImages::FitPages(*others->chunk(0), *images))) {
      images.reset();
      BALLAST_ASSIGN_OR_RETURN(table,
                               Decode(file, number, leaves_.all, *memory));
    }
    return MapTable(table, std::move(images), mapping_, groups_[number],
                    memory);
  }

  // The columns of `leaves`; the bytes of `partial` in place of the file's.
  absl::StatusOr<std::shared_ptr<arrow::Table>> Decode(
      FileView file, size_t number, const std::vector<int>& leaves,
      GroupMemory& memory, const PartialBytes* partial = nullptr) const {
    std::shared_ptr<arrow::Table> table;
    const auto in = std::make_shared<ArrowFile>(file, &memory.pool, partial);
    BALLAST_RETURN_IF_ERROR(GuardArrow(in->error(), [&]() -> arrow::Status {
      ARROW_ASSIGN_OR_RAISE(
          const auto reader,
          MakeReader(in, &memory.pool, metadata_, partial == nullptr));
      ARROW_ASSIGN_OR_RAISE(table,
                            reader->ReadRowGroup(numbers_[number], leaves));
      ARROW_ASSIGN_OR_RAISE(table, table->CombineChunks(&memory.pool));
      // Not ValidateFull, which refuses all rows for a text that is not UTF-8.
      // The reader makes its own offsets, and BytesAt checks the indices of
      // dictionaries, which it takes from the file.
      return table->Validate();
    }));
    return table;
  }

  const std::shared_ptr<parquet::FileMetaData> metadata_;
  const RowMapping mapping_;
  const SampleLeaves leaves_;
  std::vector<ParquetGroup> groups_;
  std::vector<int> numbers_;  // of groups_, in the footer
  uint64_t file_size_ = 0;
};

// Refuses a file without media in which a column that nothing reads names files
// of media, by its least and its greatest text in the footer, if they are
// there: the text would be trained on without them. Errors:
// FAILED_PRECONDITION.
absl::Status CheckNoNamesOfMedia(const parquet::FileMetaData& metadata,
                                 const RowMapping& mapping) {
  if (metadata.num_row_groups() == 0 || !mapping.whole.empty() ||
      !mapping.images.empty() || !mapping.videos.empty() ||
      !mapping.audios.empty() || mapping.parts_hold_images) {
    return absl::OkStatus();
  }
  const std::vector<std::string> read = ColumnsToRead(mapping);
  const auto group = metadata.RowGroup(0);
  for (int i = 0; i < group->num_columns(); ++i) {
    const auto chunk = group->ColumnChunk(i);
    const std::string name = chunk->path_in_schema()->ToDotVector()[0];
    const auto range = chunk->statistics();
    if (std::count(read.begin(), read.end(), name) > 0 || range == nullptr ||
        range->physical_type() != parquet::Type::BYTE_ARRAY ||
        !range->HasMinMax() || !NamesMedia(range->EncodeMin()) ||
        !NamesMedia(range->EncodeMax())) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "column ", Printable(name), " names files, ",
        Printable(range->EncodeMin()),
        " among them, and is not read: the samples would be text alone. Write "
        "the files into a column `images`, or take a recipe "
        "(docs/recipes.md); name the columns in `columns` if it may be left "
        "out"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckParquetIsBuiltIn() { return absl::OkStatus(); }

absl::StatusOr<std::shared_ptr<const ParquetFile>> OpenParquetFile(
    FileView file, const ParquetColumns& columns) {
  BALLAST_ASSIGN_OR_RETURN(const bool is_arrow, IsArrowFile(file));
  if (is_arrow) return OpenArrowFile(file, columns);
  // The footer keeps the pool, so it is one that lives as long as the process.
  arrow::MemoryPool* const pool = arrow::default_memory_pool();
  const auto in = std::make_shared<ArrowFile>(file, pool);
  std::shared_ptr<parquet::FileMetaData> metadata;
  absl::StatusOr<RowMapping> mapping = absl::UnknownError("not read");
  std::shared_ptr<ArrowParquetFile> opened;
  absl::Status groups;
  BALLAST_RETURN_IF_ERROR(GuardArrow(in->error(), [&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const auto reader, MakeReader(in, pool, nullptr));
    metadata = reader->parquet_reader()->metadata();
    std::shared_ptr<arrow::Schema> schema;
    ARROW_RETURN_NOT_OK(reader->GetSchema(&schema));
    mapping = MapColumns(*schema, columns);
    if (!mapping.ok() && HasNoRows(*metadata)) mapping = RowMapping();
    if (mapping.ok() && !columns.named) {
      const absl::Status names = CheckNoNamesOfMedia(*metadata, *mapping);
      if (!names.ok()) mapping = names;
    }
    if (!mapping.ok()) return arrow::Status::OK();
    opened = std::make_shared<ArrowParquetFile>(
        metadata, *mapping, FindLeaves(reader->manifest(), *schema, *mapping));
    groups = opened->FindGroups(file.size());
    return arrow::Status::OK();
  }));
  BALLAST_RETURN_IF_ERROR(mapping.status());
  BALLAST_RETURN_IF_ERROR(groups);
  return opened;
}

}  // namespace ballast
