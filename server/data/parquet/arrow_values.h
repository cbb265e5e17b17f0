#ifndef BALLAST_SERVER_DATA_PARQUET_ARROW_VALUES_H_
#define BALLAST_SERVER_DATA_PARQUET_ARROW_VALUES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <arrow/type_fwd.h>

#include "absl/strings/string_view.h"

namespace ballast {

// Reads values of Arrow's arrays whatever way they are stored: with 32-bit or
// 64-bit offsets, as views, as a dictionary, as the storage of an extension.

// The type of the values that `type` stores.
const arrow::DataType& PlainType(const arrow::DataType& type);

// Whether BytesAt reads values of this type. Text may be stored as bytes.
bool IsBytes(const arrow::DataType& type);
// Whether the bytes are text, by their type.
bool IsTextType(const arrow::DataType& type);
// Whether NumberAt does: booleans, integers, float and double.
bool IsNumber(const arrow::DataType& type);
// The type of a list's items; null if `type` is no list.
const arrow::DataType* ItemType(const arrow::DataType& type);
// The type of the struct's field `name`; null if there is none, or several, or
// `type` is no struct.
const arrow::DataType* FieldType(const arrow::DataType& type,
                                 const std::string& name);

// Each wants an array of a type that it reads, and an index within it. A null
// has no value, nor has an entry that its dictionary lacks.
std::optional<absl::string_view> BytesAt(const arrow::Array& array, int64_t i);
std::optional<double> NumberAt(const arrow::Array& array, int64_t i);

// The items of one list.
struct ListItems {
  std::shared_ptr<arrow::Array> values;
  int64_t begin = 0;  // in `values`
  int64_t end = 0;
};
std::optional<ListItems> ListAt(const arrow::Array& array, int64_t i);

// Appends a value as JSON: texts and bytes as strings, lists as lists, structs
// and maps as objects without the keys whose values are null. NaN is null, and
// a value of a type without a form in JSON its text.
void AppendJson(const arrow::Array& array, int64_t i, std::string* json);

// The values of a struct's field; null if it has none of this name.
std::shared_ptr<arrow::Array> GetField(const arrow::Array& array,
                                       const std::string& name);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_PARQUET_ARROW_VALUES_H_
