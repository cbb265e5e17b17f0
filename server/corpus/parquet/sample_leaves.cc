#include "server/corpus/parquet/sample_leaves.h"

#include <algorithm>
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

// Adds the leaves of `field`, part of column `column`, that samples need.
void AddLeaves(const parquet::arrow::SchemaField& field,
               const std::string& column, const RowMapping& mapping,
               SampleLeaves* leaves) {
  if (field.is_leaf()) {
    leaves->all.push_back(field.column_index);
    // It was not read when the first indexes were made.
    if (!NamesImage(*field.field, column, mapping)) {
      leaves->placing.push_back(field.column_index);
    }
    return;
  }
  const bool is_struct = field.field->type()->id() == arrow::Type::STRUCT;
  for (const parquet::arrow::SchemaField& child : field.children) {
    const arrow::Field& inner = *child.field;
    if (is_struct && !IsRead(mapping, column, inner.name())) continue;
    if (is_struct && NamesImage(inner, column, mapping) &&
        !IsTextType(*inner.type())) {
      continue;
    }
    AddLeaves(child, column, mapping, leaves);
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
  for (const std::string& name : ColumnsToRead(mapping)) {
    for (const auto& field : manifest.schema_fields) {
      if (field.field->name() != name) continue;
      AddLeaves(field, name, mapping, &leaves);
    }
  }
  leaves.image = FindImage(*manifest.descr, mapping, leaves.all);
  leaves.may_page = leaves.image >= 0 && MayPage(schema, mapping);
  return leaves;
}

int64_t BeginOf(const parquet::ColumnChunkMetaData& chunk) {
  return chunk.has_dictionary_page() ? std::min(chunk.dictionary_page_offset(),
                                                chunk.data_page_offset())
                                     : chunk.data_page_offset();
}

}  // namespace ballast
