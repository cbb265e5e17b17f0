#include "server/data/parquet/whole_rows.h"

#include <cmath>
#include <string>
#include <utility>

#include <arrow/array.h>
#include <arrow/extension_type.h>
#include <arrow/scalar.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <arrow/util/checked_cast.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "server/data/parquet/arrow_values.h"
#include "server/data/parquet/mapped_rows.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using ::arrow::Type;
using ::arrow::internal::checked_cast;

// Bytes that are not UTF-8 stay as they are: Python says so.
void AppendText(absl::string_view text, std::string* json) {
  json->push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json->push_back('\\');
      json->push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(json, "\\u%04x", c);
    } else {
      json->push_back(c);
    }
  }
  json->push_back('"');
}

// As Python's JSON has them.
void AppendNumber(double value, std::string* json) {
  if (std::isnan(value)) {
    json->append("NaN");
  } else if (std::isinf(value)) {
    json->append(value < 0 ? "-Infinity" : "Infinity");
  } else {
    absl::StrAppendFormat(json, "%.17g", value);
  }
}

// Writes a row's values as JSON.
class RowWriter {
 public:
  explicit RowWriter(ParquetRow* row) : row_(*row) {}

  absl::Status Add(const std::string& column, const arrow::Array& values,
                   int64_t i) {
    json_.push_back(json_.empty() ? '{' : ',');
    AppendText(column, &json_);
    json_.push_back(':');
    column_ = &column;
    return AddValue(values, i);
  }

  void Finish() && {
    if (json_.empty()) json_.push_back('{');
    json_.push_back('}');
    row_.text = std::move(json_);
  }

 private:
  absl::Status AddValue(const arrow::Array& array, int64_t i) {
    if (json_.size() > kMaxTextBytes) {
      return DataFaultError(
          absl::StrCat("its columns have over ", kMaxTextBytes,
                       " bytes beside images; filter or split the row"));
    }
    if (array.IsNull(i)) {
      json_.append("null");
      return absl::OkStatus();
    }
    if (array.type_id() == Type::EXTENSION) {
      return AddValue(
          *checked_cast<const arrow::ExtensionArray&>(array).storage(), i);
    }
    if (IsBytes(*array.type())) return AddBytes(array, i);
    switch (array.type_id()) {
      case Type::FLOAT:
      case Type::DOUBLE:
        AppendNumber(*NumberAt(array, i), &json_);
        return absl::OkStatus();
      case Type::FIXED_SIZE_BINARY:
        AddMedium(
            checked_cast<const arrow::FixedSizeBinaryArray&>(array).GetView(i));
        return absl::OkStatus();
      case Type::STRUCT:
        return AddStruct(array, i);
      case Type::MAP:
        return AddItems(checked_cast<const arrow::ListArray&>(array), i);
      default:
        break;
    }
    if (const auto items = ListAt(array, i); items.has_value()) {
      return AddList(*items);
    }
    return AddOther(array, i);
  }

  absl::Status AddBytes(const arrow::Array& array, int64_t i) {
    const auto bytes = BytesAt(array, i);
    if (!bytes.has_value()) {
      json_.append("null");
    } else if (IsTextType(*array.type())) {
      AppendText(*bytes, &json_);
    } else {
      AddMedium({bytes->data(), bytes->size()});
    }
    return absl::OkStatus();
  }

  void AddMedium(std::string_view bytes) {
    absl::StrAppend(&json_, "{\"$ballast.media\":", row_.images.size(), "}");
    row_.images.push_back(
        {bytes.size(), absl::string_view(bytes.data(), bytes.size()), {}, {}});
    row_.columns.push_back(*column_);
  }

  absl::Status AddStruct(const arrow::Array& array, int64_t i) {
    const auto& type = *array.type();
    json_.push_back('{');
    for (int k = 0; k < type.num_fields(); ++k) {
      if (k > 0) json_.push_back(',');
      AppendText(type.field(k)->name(), &json_);
      json_.push_back(':');
      BALLAST_RETURN_IF_ERROR(AddValue(
          *checked_cast<const arrow::StructArray&>(array).field(k), i));
    }
    json_.push_back('}');
    return absl::OkStatus();
  }

  absl::Status AddItems(const arrow::ListArray& list, int64_t i) {
    const int64_t begin = list.value_offset(i);
    return AddList({list.values(), begin, begin + list.value_length(i)});
  }

  absl::Status AddList(const ListItems& items) {
    json_.push_back('[');
    for (int64_t i = items.begin; i < items.end; ++i) {
      if (i > items.begin) json_.push_back(',');
      BALLAST_RETURN_IF_ERROR(AddValue(*items.values, i));
    }
    json_.push_back(']');
    return absl::OkStatus();
  }

  // Integers and booleans as they are, all else as its text.
  absl::Status AddOther(const arrow::Array& array, int64_t i) {
    const auto scalar = array.GetScalar(i);
    if (!scalar.ok()) {
      return DataFaultError(
          absl::StrCat("column ", *column_, ": ", scalar.status().message()));
    }
    const std::string text = (*scalar)->ToString();
    const Type::type id = PlainType(*array.type()).id();
    if (id == Type::BOOL || arrow::is_integer(id)) {
      json_.append(text);
    } else {
      AppendText({text.data(), text.size()}, &json_);
    }
    return absl::OkStatus();
  }

  ParquetRow& row_;
  std::string json_;
  const std::string* column_ = nullptr;
};

class WholeRows final : public ParquetRows {
 public:
  WholeRows(std::shared_ptr<const void> owner,
            std::shared_ptr<const arrow::Table> table,
            const RowMapping& mapping, uint64_t first_row, uint64_t bytes)
      : owner_(std::move(owner)),
        table_(std::move(table)),
        filters_(*table_, mapping.filters),
        first_row_(first_row),
        bytes_(bytes) {}

  uint64_t bytes() const override { return bytes_; }
  bool ImagesInFile() const override { return false; }
  uint64_t size() const override { return table_->num_rows(); }
  uint64_t first_row() const override { return first_row_; }
  bool Passes(uint64_t row) const override { return filters_.Passes(row); }

  absl::StatusOr<ParquetRow> Row(uint64_t row) const override {
    ParquetRow whole;
    RowWriter writer(&whole);
    for (int i = 0; i < table_->num_columns(); ++i) {
      BALLAST_RETURN_IF_ERROR(writer.Add(table_->field(i)->name(),
                                         *table_->column(i)->chunk(0), row));
    }
    std::move(writer).Finish();
    return whole;
  }

 private:
  const std::shared_ptr<const void> owner_;  // outlives the table
  const std::shared_ptr<const arrow::Table> table_;
  const TableFilters filters_;
  const uint64_t first_row_;
  const uint64_t bytes_;
};

}  // namespace

std::shared_ptr<const ParquetRows> MapWholeRows(
    std::shared_ptr<const arrow::Table> table, const RowMapping& mapping,
    uint64_t first_row, uint64_t bytes, std::shared_ptr<const void> owner) {
  return std::make_shared<const WholeRows>(std::move(owner), std::move(table),
                                           mapping, first_row, bytes);
}

}  // namespace ballast
