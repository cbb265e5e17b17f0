#include "server/corpus/parquet/row_mapping.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include <arrow/array.h>
#include <arrow/table.h>
#include <arrow/type.h>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_path.h"
#include "server/corpus/parquet/arrow_values.h"
#include "server/corpus/parquet/turns_json.h"

namespace ballast {
namespace {

// The fields of a turn, in the struct that a list of turns has.
struct TurnFields {
  const char* first;
  const char* second;
};

TurnFields FieldsOf(TurnShape shape) {
  switch (shape) {
    case TurnShape::kConversations:
      return {"from", "value"};
    case TurnShape::kMessages:
      return {"role", "content"};
    case TurnShape::kTexts:
      return {"user", "assistant"};
  }
  return {"", ""};
}

bool IsText(const arrow::DataType* type) {
  return type != nullptr && IsBytes(*type);
}

// A list of parts {type, text}.
bool IsParts(const arrow::DataType* type) {
  const arrow::DataType* item = type == nullptr ? nullptr : ItemType(*type);
  return item != nullptr && IsText(FieldType(*item, "type")) &&
         IsText(FieldType(*item, "text"));
}

bool FitsTurns(const arrow::DataType& type, TurnShape shape) {
  const arrow::DataType* item = ItemType(type);
  if (item == nullptr) return false;
  const TurnFields fields = FieldsOf(shape);
  const arrow::DataType* second = FieldType(*item, fields.second);
  return IsText(FieldType(*item, fields.first)) &&
         (IsText(second) || (shape == TurnShape::kMessages && IsParts(second)));
}

bool IsImage(const arrow::DataType& type) {
  // Text would be a path or an address.
  const arrow::DataType* bytes = FieldType(type, "bytes");
  if (bytes != nullptr) return IsBytes(*bytes);
  switch (PlainType(type).id()) {
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::BINARY_VIEW:
      return true;
    default:
      return false;
  }
}

bool FitsImages(const arrow::DataType& type) {
  const arrow::DataType* item = ItemType(type);
  return IsImage(item == nullptr ? type : *item);
}

std::string WantedTurns(TurnShape shape) {
  const TurnFields fields = FieldsOf(shape);
  return absl::StrCat("a list of structs with the texts `", fields.first,
                      "` and `", fields.second, "`",
                      shape == TurnShape::kMessages
                          ? ", or `content` as parts {type, text}"
                          : "");
}

constexpr char kWantedImages[] =
    "images in the file: a struct with `bytes`, or bytes, or a list of them "
    "(paths and addresses of images are not followed)";

absl::Status Mismatch(const std::string& column, const arrow::DataType& found,
                      absl::string_view wanted) {
  return absl::FailedPreconditionError(
      absl::StrCat("column ", Printable(column), ": found ",
                   Printable(found.ToString()), "; wanted ", wanted));
}

// The columns and their types, for messages.
std::string Listed(const arrow::Schema& schema) {
  constexpr int kShown = 20;
  std::string list;
  for (int i = 0; i < std::min(schema.num_fields(), kShown); ++i) {
    absl::StrAppend(&list, i == 0 ? "" : ", ",
                    Printable(schema.field(i)->name()));
  }
  if (schema.num_fields() > kShown) {
    absl::StrAppend(&list, " and ", schema.num_fields() - kShown, " more");
  }
  return list;
}

absl::StatusOr<const arrow::DataType*> TypeOf(const arrow::Schema& schema,
                                              const std::string& column) {
  const std::vector<int> found = schema.GetAllFieldIndices(column);
  if (found.size() == 1) return schema.field(found[0])->type().get();
  return absl::FailedPreconditionError(
      absl::StrCat(found.empty() ? "no column " : "several columns ",
                   Printable(column), "; the file has ", Listed(schema)));
}

// The only column of `names` whose type fits, "" if there is none.
absl::StatusOr<std::string> Recognise(
    const arrow::Schema& schema, std::initializer_list<const char*> names,
    bool (*fits)(const std::string& name, const arrow::DataType& type)) {
  std::string found;
  for (const std::string name : names) {
    for (const int i : schema.GetAllFieldIndices(name)) {
      if (!fits(name, *schema.field(i)->type())) continue;
      if (!found.empty()) {
        return absl::FailedPreconditionError(
            absl::StrCat("both ", found, " and ", name,
                         " may be meant; name the columns in `columns`"));
      }
      found = name;
    }
  }
  return found;
}

TurnShape ShapeNamed(const std::string& name) {
  if (name == NameOf(TurnShape::kTexts)) return TurnShape::kTexts;
  if (name == NameOf(TurnShape::kMessages)) return TurnShape::kMessages;
  return TurnShape::kConversations;
}

absl::Status RecogniseColumns(const arrow::Schema& schema,
                              RowMapping* mapping) {
  BALLAST_ASSIGN_OR_RETURN(
      mapping->turns,
      Recognise(schema, {"conversations", "messages", "texts"},
                [](const std::string& name, const arrow::DataType& type) {
                  return FitsTurns(type, ShapeNamed(name));
                }));
  if (mapping->turns.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no column conversations, messages or texts with turns; "
                     "name the columns in `columns`. The file has ",
                     Listed(schema)));
  }
  mapping->shape = ShapeNamed(mapping->turns);
  BALLAST_ASSIGN_OR_RETURN(
      mapping->images,
      Recognise(schema, {"images", "image"},
                [](const std::string&, const arrow::DataType& type) {
                  return FitsImages(type);
                }));
  if (!mapping->images.empty()) return absl::OkStatus();
  for (const char* name : {"images", "image"}) {
    // Without its images the text would be trained on all the same.
    for (const int i : schema.GetAllFieldIndices(name)) {
      return Mismatch(name, *schema.field(i)->type(), kWantedImages);
    }
  }
  return absl::OkStatus();
}

// The rows of a table.
class MappedRows final : public ParquetRows {
 public:
  MappedRows(std::shared_ptr<const void> owner,
             std::shared_ptr<const arrow::Table> table, RowMapping mapping,
             uint64_t first_row, uint64_t bytes)
      : owner_(std::move(owner)),
        table_(std::move(table)),
        mapping_(std::move(mapping)),
        first_row_(first_row),
        bytes_(bytes) {
    const auto column = [this](const std::string& name) {
      const auto values = table_->GetColumnByName(name);
      return values == nullptr || values->num_chunks() == 0 ? nullptr
                                                            : values->chunk(0);
    };
    turns_ = column(mapping_.turns);
    if (!mapping_.images.empty()) images_ = column(mapping_.images);
    for (const RowFilter& filter : mapping_.filters) {
      filtered_.push_back(column(filter.column));
    }
  }

  uint64_t bytes() const override { return bytes_; }
  uint64_t size() const override { return table_->num_rows(); }
  uint64_t first_row() const override { return first_row_; }

  bool Passes(uint64_t row) const override {
    for (size_t i = 0; i < filtered_.size(); ++i) {
      const RowFilter& filter = mapping_.filters[i];
      if (filter.is_text) {
        const auto value = BytesAt(*filtered_[i], row);
        if (!value.has_value() || !filter.Passes(*value)) return false;
      } else {
        const auto value = NumberAt(*filtered_[i], row);
        if (!value.has_value() || !filter.Passes(*value)) return false;
      }
    }
    return true;
  }

  absl::StatusOr<ParquetRow> Row(uint64_t row) const override {
    ParquetRow sample;
    if (images_ != nullptr) {
      BALLAST_RETURN_IF_ERROR(AddImages(row, &sample.images));
    }
    TurnsJson json;
    BALLAST_RETURN_IF_ERROR(AddTurns(row, &json));
    BALLAST_ASSIGN_OR_RETURN(sample.text,
                             std::move(json).Finish(sample.images.size()));
    return sample;
  }

 private:
  absl::Status AddImages(uint64_t row,
                         std::vector<absl::string_view>* images) const {
    if (ItemType(*images_->type()) == nullptr) {
      // A sample without an image has a null, or a struct of nulls.
      return AddImage(*images_, row, 1, /*may_lack=*/true, images);
    }
    const auto items = ListAt(*images_, row);
    if (!items.has_value()) return absl::OkStatus();
    for (int64_t i = items->begin; i < items->end; ++i) {
      BALLAST_RETURN_IF_ERROR(AddImage(*items->values, i, i - items->begin + 1,
                                       /*may_lack=*/false, images));
    }
    return absl::OkStatus();
  }

  static absl::Status AddImage(const arrow::Array& array, int64_t i,
                               int64_t number, bool may_lack,
                               std::vector<absl::string_view>* images) {
    std::optional<absl::string_view> bytes;
    std::optional<absl::string_view> path;
    if (array.type_id() != arrow::Type::STRUCT) {
      bytes = BytesAt(array, i);
    } else if (!array.IsNull(i)) {
      bytes = BytesAt(*FieldOf(array, "bytes"), i);
      const auto paths = FieldOf(array, "path");
      if (paths != nullptr && IsBytes(*paths->type()))
        path = BytesAt(*paths, i);
    }
    if (bytes.has_value()) return AppendImage(*bytes, images);
    if (!path.has_value() && may_lack) return absl::OkStatus();
    return absl::InvalidArgumentError(
        path.has_value()
            ? absl::StrCat("image ", number, " is only a path, ",
                           Printable(*path), ", which is not followed")
            : absl::StrCat("image ", number, " is null"));
  }

  absl::Status AddTurns(uint64_t row, TurnsJson* json) const {
    const auto turns = ListAt(*turns_, row);
    if (!turns.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("column ", Printable(mapping_.turns), " is null"));
    }
    const TurnFields fields = FieldsOf(mapping_.shape);
    const auto first = FieldOf(*turns->values, fields.first);
    const auto second = FieldOf(*turns->values, fields.second);
    for (int64_t i = turns->begin; i < turns->end; ++i) {
      const std::string turn = absl::StrCat("turn ", i - turns->begin + 1);
      const auto text =
          [&](const std::shared_ptr<arrow::Array>& values,
              const char* name) -> absl::StatusOr<absl::string_view> {
        const auto found =
            turns->values->IsNull(i) ? std::nullopt : BytesAt(*values, i);
        if (found.has_value()) return *found;
        return absl::InvalidArgumentError(
            absl::StrCat(turn, ": `", name, "` is null"));
      };
      BALLAST_ASSIGN_OR_RETURN(const absl::string_view one,
                               text(first, fields.first));
      if (mapping_.shape == TurnShape::kTexts) {
        BALLAST_ASSIGN_OR_RETURN(const absl::string_view other,
                                 text(second, fields.second));
        json->AddTurn("user", one);
        json->AddTurn("assistant", other);
      } else if (IsBytes(*second->type())) {
        BALLAST_ASSIGN_OR_RETURN(const absl::string_view said,
                                 text(second, fields.second));
        json->AddTurn(one, said);
      } else {
        json->BeginTurn(one);
        BALLAST_RETURN_IF_ERROR(Annotate(AddParts(*second, i, json), turn));
      }
      if (json->TooLong()) break;  // Finish says so
    }
    return absl::OkStatus();
  }

  static absl::Status AddParts(const arrow::Array& contents, int64_t i,
                               TurnsJson* json) {
    const auto parts = ListAt(contents, i);
    if (!parts.has_value()) {
      return absl::InvalidArgumentError("`content` is null");
    }
    const auto types = FieldOf(*parts->values, "type");
    const auto texts = FieldOf(*parts->values, "text");
    for (int64_t k = parts->begin; k < parts->end && !json->TooLong(); ++k) {
      const int64_t number = k - parts->begin + 1;
      const auto type =
          parts->values->IsNull(k) ? std::nullopt : BytesAt(*types, k);
      if (!type.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("content part ", number, ": `type` is null"));
      }
      if (*type != "text") {
        json->AddPart(*type);
        continue;
      }
      const auto text = BytesAt(*texts, k);
      if (!text.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("content part ", number, ": `text` is null"));
      }
      json->AddText(*text);
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<const void> owner_;  // outlives the table
  const std::shared_ptr<const arrow::Table> table_;
  const RowMapping mapping_;
  const uint64_t first_row_;
  const uint64_t bytes_;
  std::shared_ptr<arrow::Array> images_;  // null: none
  std::shared_ptr<arrow::Array> turns_;
  std::vector<std::shared_ptr<arrow::Array>> filtered_;  // as mapping_.filters
};

}  // namespace

absl::StatusOr<RowMapping> MapColumns(const arrow::Schema& schema,
                                      const ParquetColumns& columns) {
  RowMapping mapping;
  mapping.filters = columns.filters;
  if (columns.recognise) {
    BALLAST_RETURN_IF_ERROR(RecogniseColumns(schema, &mapping));
  } else {
    mapping.images = columns.images;
    mapping.turns = columns.turns;
    mapping.shape = columns.shape;
    BALLAST_ASSIGN_OR_RETURN(const arrow::DataType* turns,
                             TypeOf(schema, mapping.turns));
    if (!FitsTurns(*turns, mapping.shape)) {
      return Mismatch(mapping.turns, *turns, WantedTurns(mapping.shape));
    }
    if (!mapping.images.empty()) {
      BALLAST_ASSIGN_OR_RETURN(const arrow::DataType* images,
                               TypeOf(schema, mapping.images));
      if (!FitsImages(*images)) {
        return Mismatch(mapping.images, *images, kWantedImages);
      }
    }
  }
  for (const RowFilter& filter : mapping.filters) {
    BALLAST_ASSIGN_OR_RETURN(const arrow::DataType* type,
                             TypeOf(schema, filter.column));
    if (filter.is_text ? IsBytes(*type) : IsNumber(*type)) continue;
    return Mismatch(filter.column, *type,
                    filter.is_text
                        ? "a text, as its filter compares with one"
                        : "a number, as its filter compares with one");
  }
  return mapping;
}

std::vector<std::string> ColumnsToRead(const RowMapping& mapping) {
  std::vector<std::string> names = {mapping.turns};
  const auto add = [&names](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  };
  if (!mapping.images.empty()) add(mapping.images);
  for (const RowFilter& filter : mapping.filters) add(filter.column);
  return names;
}

bool IsRead(const RowMapping& mapping, const std::string& column,
            const std::string& field) {
  if (column == mapping.images) return field == "bytes" || field == "path";
  const TurnFields fields = FieldsOf(mapping.shape);
  if (field == fields.first || field == fields.second) return true;
  return mapping.shape == TurnShape::kMessages &&
         (field == "type" || field == "text");
}

std::shared_ptr<const ParquetRows> MapRows(
    std::shared_ptr<const arrow::Table> table, RowMapping mapping,
    uint64_t first_row, uint64_t bytes, std::shared_ptr<const void> owner) {
  return std::make_shared<const MappedRows>(
      std::move(owner), std::move(table), std::move(mapping), first_row, bytes);
}

}  // namespace ballast
