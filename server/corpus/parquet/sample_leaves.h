#ifndef BALLAST_SERVER_CORPUS_PARQUET_SAMPLE_LEAVES_H_
#define BALLAST_SERVER_CORPUS_PARQUET_SAMPLE_LEAVES_H_

#include <cstdint>
#include <vector>

#include <arrow/type_fwd.h>
#include <parquet/arrow/schema.h>
#include <parquet/metadata.h>

#include "server/corpus/parquet/row_mapping.h"

namespace ballast {

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

SampleLeaves FindLeaves(const parquet::arrow::SchemaManifest& manifest,
                        const arrow::Schema& schema, const RowMapping& mapping);

// The first byte of a column chunk.
int64_t GetBegin(const parquet::ColumnChunkMetaData& chunk);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_PARQUET_SAMPLE_LEAVES_H_
