#include "server/data/parquet/arrow_values.h"

#include <cmath>
#include <string>

#include <arrow/array.h>
#include <arrow/extension_type.h>
#include <arrow/scalar.h>
#include <arrow/type.h>
#include <arrow/util/checked_cast.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/recipe/turns_json.h"

namespace ballast {
namespace {

using ::arrow::Type;
using ::arrow::internal::checked_cast;

absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

template <typename Array>
absl::string_view ViewAt(const arrow::Array& array, int64_t i) {
  return View(checked_cast<const Array&>(array).GetView(i));
}

template <typename Array>
double ValueAt(const arrow::Array& array, int64_t i) {
  return static_cast<double>(checked_cast<const Array&>(array).Value(i));
}

template <typename Array>
ListItems ItemsAt(const arrow::Array& array, int64_t i) {
  const auto& list = checked_cast<const Array&>(array);
  const int64_t begin = list.value_offset(i);
  return {list.values(), begin, begin + list.value_length(i)};
}

const arrow::Array& GetStorage(const arrow::Array& array) {
  return *checked_cast<const arrow::ExtensionArray&>(array).storage();
}

// Whether index `i` names a value of the dictionary. In a damaged file it may
// lead outside.
bool LeadsInside(const arrow::DictionaryArray& coded, int64_t i) {
  const int64_t index = coded.GetValueIndex(i);
  return index >= 0 && index < coded.dictionary()->length();
}

// A number or a boolean, or the text of another value.
void AppendScalar(const arrow::Array& array, int64_t i, std::string* json) {
  const Type::type type = array.type_id();
  if (type == Type::FLOAT || type == Type::DOUBLE) {
    const double value = *NumberAt(array, i);
    // Writers of columns put NaN for what is missing. Infinity, which JSON has
    // not, becomes a text, so that a reader of numbers names it.
    if (std::isnan(value)) {
      *json += "null";
    } else if (std::isinf(value)) {
      AppendJsonText(value < 0 ? "-inf" : "inf", json);
    } else {
      absl::StrAppendFormat(json, "%.17g", value);
    }
    return;
  }
  const auto scalar = array.GetScalar(i);
  const std::string text = scalar.ok() ? (*scalar)->ToString() : "";
  if (IsNumber(*array.type()) && type != Type::DICTIONARY) {
    absl::StrAppend(json, text);
  } else {
    AppendJsonText(text, json);
  }
}

}  // namespace

const arrow::DataType& PlainType(const arrow::DataType& type) {
  if (type.id() == Type::DICTIONARY) {
    return PlainType(
        *checked_cast<const arrow::DictionaryType&>(type).value_type());
  }
  if (type.id() == Type::EXTENSION) {
    return PlainType(
        *checked_cast<const arrow::ExtensionType&>(type).storage_type());
  }
  return type;
}

bool IsBytes(const arrow::DataType& type) {
  switch (PlainType(type).id()) {
    case Type::BINARY:
    case Type::STRING:
    case Type::LARGE_BINARY:
    case Type::LARGE_STRING:
    case Type::BINARY_VIEW:
    case Type::STRING_VIEW:
      return true;
    default:
      return false;
  }
}

bool IsTextType(const arrow::DataType& type) {
  switch (PlainType(type).id()) {
    case Type::STRING:
    case Type::LARGE_STRING:
    case Type::STRING_VIEW:
      return true;
    default:
      return false;
  }
}

bool IsNumber(const arrow::DataType& type) {
  switch (PlainType(type).id()) {
    case Type::BOOL:
    case Type::INT8:
    case Type::UINT8:
    case Type::INT16:
    case Type::UINT16:
    case Type::INT32:
    case Type::UINT32:
    case Type::INT64:
    case Type::UINT64:
    case Type::FLOAT:
    case Type::DOUBLE:
      return true;
    default:
      return false;
  }
}

const arrow::DataType* ItemType(const arrow::DataType& type) {
  switch (type.id()) {
    case Type::LIST:
    case Type::LARGE_LIST:
    case Type::LIST_VIEW:
    case Type::LARGE_LIST_VIEW:
    case Type::FIXED_SIZE_LIST:
      return checked_cast<const arrow::BaseListType&>(type).value_type().get();
    default:
      return nullptr;
  }
}

const arrow::DataType* FieldType(const arrow::DataType& type,
                                 const std::string& name) {
  if (type.id() != Type::STRUCT) return nullptr;
  const auto field =
      checked_cast<const arrow::StructType&>(type).GetFieldByName(name);
  return field == nullptr ? nullptr : field->type().get();
}

std::optional<absl::string_view> BytesAt(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return std::nullopt;
  switch (array.type_id()) {
    case Type::BINARY:
    case Type::STRING:
      return ViewAt<arrow::BinaryArray>(array, i);
    case Type::LARGE_BINARY:
    case Type::LARGE_STRING:
      return ViewAt<arrow::LargeBinaryArray>(array, i);
    case Type::BINARY_VIEW:
    case Type::STRING_VIEW:
      return ViewAt<arrow::BinaryViewArray>(array, i);
    case Type::DICTIONARY: {
      const auto& coded = checked_cast<const arrow::DictionaryArray&>(array);
      if (!LeadsInside(coded, i)) return std::nullopt;
      return BytesAt(*coded.dictionary(), coded.GetValueIndex(i));
    }
    case Type::EXTENSION:
      return BytesAt(GetStorage(array), i);
    default:
      return std::nullopt;
  }
}

std::optional<double> NumberAt(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return std::nullopt;
  switch (array.type_id()) {
    case Type::BOOL:
      return ValueAt<arrow::BooleanArray>(array, i);
    case Type::INT8:
      return ValueAt<arrow::Int8Array>(array, i);
    case Type::UINT8:
      return ValueAt<arrow::UInt8Array>(array, i);
    case Type::INT16:
      return ValueAt<arrow::Int16Array>(array, i);
    case Type::UINT16:
      return ValueAt<arrow::UInt16Array>(array, i);
    case Type::INT32:
      return ValueAt<arrow::Int32Array>(array, i);
    case Type::UINT32:
      return ValueAt<arrow::UInt32Array>(array, i);
    case Type::INT64:
      return ValueAt<arrow::Int64Array>(array, i);
    case Type::UINT64:
      return ValueAt<arrow::UInt64Array>(array, i);
    case Type::FLOAT:
      return ValueAt<arrow::FloatArray>(array, i);
    case Type::DOUBLE:
      return ValueAt<arrow::DoubleArray>(array, i);
    case Type::DICTIONARY: {
      const auto& coded = checked_cast<const arrow::DictionaryArray&>(array);
      if (!LeadsInside(coded, i)) return std::nullopt;
      return NumberAt(*coded.dictionary(), coded.GetValueIndex(i));
    }
    case Type::EXTENSION:
      return NumberAt(GetStorage(array), i);
    default:
      return std::nullopt;
  }
}

std::optional<ListItems> ListAt(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return std::nullopt;
  switch (array.type_id()) {
    case Type::LIST:
      return ItemsAt<arrow::ListArray>(array, i);
    case Type::LARGE_LIST:
      return ItemsAt<arrow::LargeListArray>(array, i);
    case Type::LIST_VIEW:
      return ItemsAt<arrow::ListViewArray>(array, i);
    case Type::LARGE_LIST_VIEW:
      return ItemsAt<arrow::LargeListViewArray>(array, i);
    case Type::FIXED_SIZE_LIST:
      return ItemsAt<arrow::FixedSizeListArray>(array, i);
    default:
      return std::nullopt;
  }
}

void AppendJson(const arrow::Array& array, int64_t i, std::string* json) {
  if (array.IsNull(i)) {
    *json += "null";
  } else if (array.type_id() == Type::EXTENSION) {
    AppendJson(GetStorage(array), i, json);
  } else if (IsBytes(*array.type())) {
    AppendJsonText(BytesAt(array, i).value_or(""), json);
  } else if (array.type_id() == Type::STRUCT) {
    *json += '{';
    for (const auto& field : array.type()->fields()) {
      const auto values = GetField(array, field->name());
      if (values == nullptr || values->IsNull(i)) continue;
      if (json->back() != '{') *json += ',';
      AppendJsonText(field->name(), json);
      *json += ':';
      AppendJson(*values, i, json);
    }
    *json += '}';
  } else if (array.type_id() == Type::MAP) {
    const auto& map = checked_cast<const arrow::MapArray&>(array);
    *json += '{';
    for (int64_t k = map.value_offset(i); k < map.value_offset(i + 1); ++k) {
      if (map.items()->IsNull(k)) continue;
      if (json->back() != '{') *json += ',';
      AppendJsonText(BytesAt(*map.keys(), k).value_or(""), json);
      *json += ':';
      AppendJson(*map.items(), k, json);
    }
    *json += '}';
  } else if (const auto items = ListAt(array, i); items.has_value()) {
    *json += '[';
    for (int64_t k = items->begin; k < items->end; ++k) {
      if (k > items->begin) *json += ',';
      AppendJson(*items->values, k, json);
    }
    *json += ']';
  } else {
    AppendScalar(array, i, json);
  }
}

std::shared_ptr<arrow::Array> GetField(const arrow::Array& array,
                                       const std::string& name) {
  if (array.type_id() != Type::STRUCT) return nullptr;
  return checked_cast<const arrow::StructArray&>(array).GetFieldByName(name);
}

}  // namespace ballast
