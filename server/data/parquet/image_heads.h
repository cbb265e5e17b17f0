#ifndef BALLAST_SERVER_DATA_PARQUET_IMAGE_HEADS_H_
#define BALLAST_SERVER_DATA_PARQUET_IMAGE_HEADS_H_

#include <arrow/memory_pool.h>
#include <arrow/status.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include "server/data/parquet/page_body.h"
#include "server/data/parquet/parquet_file.h"

namespace ballast {

// Whether ReadImageHeads can leave out bytes of images: the column is not
// compressed, and not encrypted. Pages of other encodings than PLAIN, and of
// dictionaries of PLAIN values, are then read as a whole.
bool HasImageHeads(const parquet::ColumnChunkMetaData& chunk);

// Reads into `partial`, whose range is the chunk's, what decoding the column
// and the indexing of its images looks at: the headers of pages, levels, the
// length of every value, and of the value what `read_head` reads. The chunk
// must have heads. May throw as Arrow does. The first error of a read goes to
// `error`; IOError is returned then. Another error, or an exception: the pages
// are damaged.
arrow::Status ReadImageHeads(const parquet::ColumnChunkMetaData& chunk,
                             const parquet::ColumnDescriptor& column,
                             ReadHead read_head, arrow::MemoryPool* pool,
                             PartialBytes* partial, absl::Status* error);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_PARQUET_IMAGE_HEADS_H_
