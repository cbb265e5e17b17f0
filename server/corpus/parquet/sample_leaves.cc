#include "server/corpus/parquet/sample_leaves.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>

#include <arrow/type.h>
#include <parquet/schema.h>

#include "server/corpus/parquet/arrow_values.h"

namespace ballast {
namespace {

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

}  // namespace

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

int64_t GetBegin(const parquet::ColumnChunkMetaData& chunk) {
  return chunk.has_dictionary_page() ? std::min(chunk.dictionary_page_offset(),
                                                chunk.data_page_offset())
                                     : chunk.data_page_offset();
}

}  // namespace ballast
