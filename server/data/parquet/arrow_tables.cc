// parquet_tables.h through Arrow C++.
#include <cstdint>
#include <exception>
#include <limits>
#include <new>
#include <optional>
#include <utility>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "server/data/parquet/arrow_values.h"
#include "server/data/parquet/parquet_tables.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

constexpr const char* kColumns[] = {"step",   "micro_batch", "pack",  "source",
                                    "sample", "repeat",      "epoch", "check"};
constexpr int kSource = 3;
constexpr int kSample = 4;
// The others are required.
constexpr int kRepeat = 5;
constexpr int kEpoch = 6;
constexpr int kCheck = 7;

// Runs `call`, which returns an arrow::Status, and makes errors and exceptions
// of the library ours.
template <typename Call>
absl::Status Guard(const std::string& path, Call call) {
  arrow::Status status;
  try {
    status = call();
  } catch (const std::bad_alloc&) {
    status = arrow::Status::OutOfMemory("");
  } catch (const std::exception& error) {
    status = arrow::Status::Invalid(error.what());
  }
  if (status.ok()) return absl::OkStatus();
  const std::string reason = Printable(status.message());
  if (status.IsIOError()) {
    return absl::UnavailableError(
        absl::StrCat(path, ": cannot be read: ", reason));
  }
  if (status.IsOutOfMemory()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path,
        ": no memory to decode a row group; write smaller ones (pyarrow: "
        "row_group_size)"));
  }
  return absl::DataLossError(
      absl::StrCat(path, ": damaged or not Parquet: ", reason));
}

std::string NameColumns(const arrow::Schema& schema) {
  return absl::StrJoin(schema.fields(), ", ",
                       [](std::string* out, const auto& field) {
                         absl::StrAppend(out, Printable(field->name()), " (",
                                         field->type()->ToString(), ")");
                       });
}

// Whether the values are whole numbers.
bool IsWhole(const arrow::DataType& type) {
  return arrow::is_integer(type.id());
}

// A column's value; nullopt if it is null. Values of 2^63 and more are -2.
std::optional<int64_t> WholeAt(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return std::nullopt;
  switch (array.type_id()) {
    case arrow::Type::INT64:
      return static_cast<const arrow::Int64Array&>(array).Value(i);
    case arrow::Type::INT32:
      return static_cast<const arrow::Int32Array&>(array).Value(i);
    case arrow::Type::UINT64: {
      const uint64_t value =
          static_cast<const arrow::UInt64Array&>(array).Value(i);
      return value > std::numeric_limits<int64_t>::max()
                 ? -2
                 : static_cast<int64_t>(value);
    }
    default: {  // narrow enough for a double
      const std::optional<double> value = NumberAt(array, i);
      if (!value.has_value()) return std::nullopt;
      return static_cast<int64_t>(*value);
    }
  }
}

class ArrowPlanTable final : public PlanTable {
 public:
  explicit ArrowPlanTable(std::string path) : path_(std::move(path)) {}

  absl::Status Open() {
    std::shared_ptr<arrow::Schema> schema;
    BALLAST_RETURN_IF_ERROR(Guard(path_, [&]() -> arrow::Status {
      ARROW_ASSIGN_OR_RAISE(file_, arrow::io::ReadableFile::Open(path_));
      ARROW_ASSIGN_OR_RAISE(const auto reader, MakeReader());
      metadata_ = reader->parquet_reader()->metadata();
      return reader->GetSchema(&schema);
    }));
    for (int number = 0; number <= kCheck; ++number) {
      const char* const name = kColumns[number];
      const int at = schema->GetFieldIndex(name);
      const bool is_source = number == kSource;
      const bool is_sample = number == kSample;
      if (at >= 0) {
        const arrow::DataType& type = PlainType(*schema->field(at)->type());
        if (is_source ? IsBytes(type)
                      : IsWhole(type) || (is_sample && IsBytes(type))) {
          has_keys_ |= is_sample && IsBytes(type);
          leaves_.push_back(metadata_->schema()->ColumnIndex(name));
          continue;
        }
      }
      if (at < 0 && number >= kRepeat) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          path_, ": ", at < 0 ? "has no column " : "cannot use column ", name,
          "; wanted step, micro_batch, pack (whole numbers; pack -1: none), "
          "source (text), sample (whole numbers or text); its columns: ",
          NameColumns(*schema)));
    }
    for (int i = 0; i < metadata_->num_row_groups(); ++i) {
      const int64_t rows = metadata_->RowGroup(i)->num_rows();
      if (rows < 0 || static_cast<uint64_t>(rows) > kMaxGroupRows) {
        return absl::FailedPreconditionError(absl::StrCat(
            path_, ": row group ", i, " has ", rows, " rows; wanted at most ",
            kMaxGroupRows, ": write smaller ones (pyarrow: row_group_size)"));
      }
      rows_.push_back(rows);
    }
    return absl::OkStatus();
  }

  absl::Span<const uint64_t> group_rows() const override { return rows_; }

  absl::StatusOr<PlanColumns> Read(size_t group) const override {
    std::shared_ptr<arrow::Table> table;
    BALLAST_RETURN_IF_ERROR(Guard(path_, [&]() -> arrow::Status {
      ARROW_ASSIGN_OR_RAISE(const auto reader, MakeReader());
      ARROW_ASSIGN_OR_RAISE(
          table, reader->ReadRowGroup(static_cast<int>(group), leaves_));
      ARROW_ASSIGN_OR_RAISE(table, table->CombineChunks());
      return table->Validate();
    }));
    uint64_t first_row = 0;
    for (size_t g = 0; g < group; ++g) first_row += rows_[g];
    PlanColumns columns;
    if (rows_[group] == 0) return columns;
    if (static_cast<uint64_t>(table->num_rows()) != rows_[group]) {
      return absl::DataLossError(absl::StrCat(
          path_, ": damaged: row group ", group, " has ", table->num_rows(),
          " rows, and its footer says ", rows_[group]));
    }
    BALLAST_ASSIGN_OR_RETURN(columns.step, Numbers(*table, 0, first_row));
    BALLAST_ASSIGN_OR_RETURN(columns.micro_batch,
                             Numbers(*table, 1, first_row));
    BALLAST_ASSIGN_OR_RETURN(columns.pack, Numbers(*table, 2, first_row));
    BALLAST_RETURN_IF_ERROR(ReadSources(*table, first_row, &columns));
    for (const auto& [number, values] : {std::pair(kRepeat, &columns.repeat),
                                         std::pair(kEpoch, &columns.epoch),
                                         std::pair(kCheck, &columns.check)}) {
      if (table->GetColumnByName(kColumns[number]) == nullptr) continue;
      BALLAST_ASSIGN_OR_RETURN(*values, Numbers(*table, number, first_row));
    }
    if (!has_keys_) {
      BALLAST_ASSIGN_OR_RETURN(columns.sample,
                               Numbers(*table, kSample, first_row));
      return columns;
    }
    const arrow::Array& keys = GetColumn(*table, kSample);
    columns.key.reserve(keys.length());
    for (int64_t i = 0; i < keys.length(); ++i) {
      const auto key = BytesAt(keys, i);
      if (!key.has_value()) return NoValue(kSample, first_row + i);
      columns.key.emplace_back(*key);
    }
    return columns;
  }

 private:
  arrow::Result<std::unique_ptr<parquet::arrow::FileReader>> MakeReader()
      const {
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(
        builder.Open(file_, parquet::default_reader_properties(), metadata_));
    // Decoded where it is called: no threads, no reads ahead.
    parquet::ArrowReaderProperties properties(/*use_threads=*/false);
    properties.set_pre_buffer(false);
    builder.properties(properties);
    return builder.Build();
  }

  // The column `kColumns[number]`, in one chunk.
  static const arrow::Array& GetColumn(const arrow::Table& table, int number) {
    return *table.GetColumnByName(kColumns[number])->chunk(0);
  }

  absl::Status NoValue(int number, uint64_t row) const {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": row ", row, ": ", kColumns[number],
                     " is null; wanted a value in every row"));
  }

  absl::StatusOr<std::vector<int64_t>> Numbers(const arrow::Table& table,
                                               int number,
                                               uint64_t first_row) const {
    const arrow::Array& array = GetColumn(table, number);
    std::vector<int64_t> values(array.length());
    for (int64_t i = 0; i < array.length(); ++i) {
      const std::optional<int64_t> value = WholeAt(array, i);
      if (!value.has_value()) return NoValue(number, first_row + i);
      values[i] = *value;
    }
    return values;
  }

  absl::Status ReadSources(const arrow::Table& table, uint64_t first_row,
                           PlanColumns* columns) const {
    const arrow::Array& array = GetColumn(table, kSource);
    columns->source.resize(array.length());
    uint32_t last = 0;
    for (int64_t i = 0; i < array.length(); ++i) {
      const auto name = BytesAt(array, i);
      if (!name.has_value()) return NoValue(kSource, first_row + i);
      if (columns->names.empty() || columns->names[last] != *name) {
        last = 0;
        while (last < columns->names.size() && columns->names[last] != *name) {
          ++last;
        }
        if (last == columns->names.size()) {
          // Bounds the search for names that no configuration has.
          constexpr size_t kMaxNames = 65536;
          if (last == kMaxNames) {
            return absl::InvalidArgumentError(absl::StrCat(
                path_, ": row ", first_row + i, ": found more than ", kMaxNames,
                " sources in a row group; wanted names of sources[]"));
          }
          columns->names.emplace_back(*name);
        }
      }
      columns->source[i] = last;
    }
    return absl::OkStatus();
  }

  const std::string path_;
  std::shared_ptr<arrow::io::ReadableFile> file_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  std::vector<int> leaves_;  // of kColumns, as Parquet counts columns
  std::vector<uint64_t> rows_;
  bool has_keys_ = false;
};

// A Parquet file on its way to the disk, compressed with Snappy. Errors:
// UNAVAILABLE, naming the file.
class TableFile {
 public:
  explicit TableFile(std::string path) : path_(std::move(path)) {}

  absl::Status Open(std::shared_ptr<arrow::Schema> schema, bool checksums) {
    return Try([&]() -> arrow::Status {
      ARROW_ASSIGN_OR_RAISE(file_, arrow::io::FileOutputStream::Open(path_));
      parquet::WriterProperties::Builder builder;
      builder.compression(arrow::Compression::SNAPPY);
      if (checksums) builder.enable_page_checksum();
      schema_ = std::move(schema);
      ARROW_ASSIGN_OR_RAISE(writer_, parquet::arrow::FileWriter::Open(
                                         *schema_, arrow::default_memory_pool(),
                                         file_, builder.build()));
      return arrow::Status::OK();
    });
  }

  // Writes one row group; `fill(arrays)` appends its columns.
  template <typename Fill>
  absl::Status WriteGroup(uint64_t rows, Fill fill) {
    return Try([&]() -> arrow::Status {
      std::vector<std::shared_ptr<arrow::Array>> arrays;
      ARROW_RETURN_NOT_OK(fill(&arrays));
      return writer_->WriteTable(*arrow::Table::Make(schema_, arrays),
                                 static_cast<int64_t>(rows));
    });
  }

  absl::Status Finish() {
    return Try([&]() -> arrow::Status {
      ARROW_RETURN_NOT_OK(writer_->Close());
      return file_->Close();
    });
  }

 private:
  template <typename Call>
  absl::Status Try(Call call) const {
    std::string reason;
    try {
      const arrow::Status status = call();
      if (status.ok()) return absl::OkStatus();
      reason = status.message();
    } catch (const std::exception& error) {
      reason = error.what();
    }
    return absl::UnavailableError(
        absl::StrCat("cannot write ", path_, ": ", reason));
  }

  const std::string path_;
  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<arrow::io::FileOutputStream> file_;
  std::unique_ptr<parquet::arrow::FileWriter> writer_;
};

using Arrays = std::vector<std::shared_ptr<arrow::Array>>;

class ArrowPlanTableWriter final : public PlanTableWriter {
 public:
  ArrowPlanTableWriter(std::string path, bool with_keys)
      : file_(std::move(path)), with_keys_(with_keys) {}

  absl::Status Open() {
    std::vector<std::shared_ptr<arrow::Field>> fields;
    for (const char* const name : kColumns) {
      const bool is_text = name == kColumns[kSource] ||
                           (with_keys_ && name == kColumns[kSample]);
      fields.push_back(
          arrow::field(name, is_text ? arrow::utf8() : arrow::int64(), false));
    }
    return file_.Open(arrow::schema(fields), /*checksums=*/false);
  }

  absl::Status WriteGroup(const PlanColumns& columns) override {
    return file_.WriteGroup(
        columns.size(), [&](Arrays* arrays) -> arrow::Status {
          for (const auto* numbers :
               {&columns.step, &columns.micro_batch, &columns.pack}) {
            ARROW_RETURN_NOT_OK(AddNumbers(*numbers, arrays));
          }
          arrow::StringBuilder texts;
          for (const uint32_t source : columns.source) {
            ARROW_RETURN_NOT_OK(texts.Append(columns.names[source]));
          }
          ARROW_RETURN_NOT_OK(texts.Finish(&arrays->emplace_back()));
          if (with_keys_) {
            ARROW_RETURN_NOT_OK(texts.AppendValues(columns.key));
            ARROW_RETURN_NOT_OK(texts.Finish(&arrays->emplace_back()));
          } else {
            ARROW_RETURN_NOT_OK(AddNumbers(columns.sample, arrays));
          }
          for (std::vector<int64_t> numbers :
               {columns.repeat, columns.epoch, columns.check}) {
            numbers.resize(columns.size(), 0);
            ARROW_RETURN_NOT_OK(AddNumbers(numbers, arrays));
          }
          return arrow::Status::OK();
        });
  }

  absl::Status Finish() override { return file_.Finish(); }

 private:
  static arrow::Status AddNumbers(const std::vector<int64_t>& numbers,
                                  Arrays* arrays) {
    arrow::Int64Builder builder;
    ARROW_RETURN_NOT_OK(builder.AppendValues(numbers));
    return builder.Finish(&arrays->emplace_back());
  }

  TableFile file_;
  const bool with_keys_;
};

const std::shared_ptr<arrow::DataType>& ImageType() {
  static const auto& type = *new std::shared_ptr<arrow::DataType>(
      arrow::struct_({arrow::field("bytes", arrow::binary()),
                      arrow::field("path", arrow::utf8())}));
  return type;
}

const std::shared_ptr<arrow::DataType>& TurnType() {
  static const auto& type = *new std::shared_ptr<arrow::DataType>(
      arrow::struct_({arrow::field("from", arrow::utf8()),
                      arrow::field("value", arrow::utf8())}));
  return type;
}

std::string_view View(absl::string_view text) {
  return std::string_view(text.data(), text.size());
}

// A builder of lists of structs of two fields.
class PairLists {
 public:
  explicit PairLists(const std::shared_ptr<arrow::DataType>& type)
      : lists_(arrow::MakeBuilder(arrow::list(type)).ValueOrDie()) {}

  arrow::Status BeginList() { return lists().Append(); }
  template <typename First>
  arrow::Status Add(std::string_view first, std::string_view second) {
    auto& pairs = static_cast<arrow::StructBuilder&>(*lists().value_builder());
    ARROW_RETURN_NOT_OK(pairs.Append());
    ARROW_RETURN_NOT_OK(
        static_cast<First&>(*pairs.field_builder(0)).Append(first));
    return static_cast<arrow::StringBuilder&>(*pairs.field_builder(1))
        .Append(second);
  }
  arrow::Result<std::shared_ptr<arrow::Array>> Finish() {
    return lists_->Finish();
  }

 private:
  arrow::ListBuilder& lists() {
    return static_cast<arrow::ListBuilder&>(*lists_);
  }

  std::unique_ptr<arrow::ArrayBuilder> lists_;
};

class ArrowParquetWriter final : public ParquetWriter {
 public:
  explicit ArrowParquetWriter(std::string path) : file_(std::move(path)) {}

  absl::Status Open(bool checksums) {
    return file_.Open(
        arrow::schema({arrow::field("images", arrow::list(ImageType())),
                       arrow::field("conversations", arrow::list(TurnType()))}),
        checksums);
  }

  absl::Status WriteGroup(absl::Span<const Row> rows) override {
    return file_.WriteGroup(rows.size(), [&](Arrays* arrays) -> arrow::Status {
      PairLists images(ImageType());
      PairLists turns(TurnType());
      for (const Row& row : rows) {
        ARROW_RETURN_NOT_OK(images.BeginList());
        for (const Image& image : row.images) {
          ARROW_RETURN_NOT_OK(
              images.Add<arrow::BinaryBuilder>(View(image.bytes), image.path));
        }
        ARROW_RETURN_NOT_OK(turns.BeginList());
        for (const auto& [from, value] : row.turns) {
          ARROW_RETURN_NOT_OK(turns.Add<arrow::StringBuilder>(from, value));
        }
      }
      for (PairLists* const lists : {&images, &turns}) {
        ARROW_ASSIGN_OR_RAISE(arrays->emplace_back(), lists->Finish());
      }
      return arrow::Status::OK();
    });
  }

  absl::Status Finish() override { return file_.Finish(); }

 private:
  TableFile file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PlanTable>> PlanTable::Open(
    const std::string& path) {
  auto table = std::make_unique<ArrowPlanTable>(path);
  BALLAST_RETURN_IF_ERROR(table->Open());
  return std::unique_ptr<PlanTable>(std::move(table));
}

absl::StatusOr<std::unique_ptr<PlanTableWriter>> PlanTableWriter::Create(
    const std::string& path, bool with_keys) {
  auto writer = std::make_unique<ArrowPlanTableWriter>(path, with_keys);
  BALLAST_RETURN_IF_ERROR(writer->Open());
  return std::unique_ptr<PlanTableWriter>(std::move(writer));
}

absl::StatusOr<std::unique_ptr<ParquetWriter>> ParquetWriter::Create(
    const std::string& path, bool checksums) {
  auto writer = std::make_unique<ArrowParquetWriter>(path);
  BALLAST_RETURN_IF_ERROR(writer->Open(checksums));
  return std::unique_ptr<ParquetWriter>(std::move(writer));
}

}  // namespace ballast
