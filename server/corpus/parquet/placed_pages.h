#ifndef BALLAST_SERVER_CORPUS_PARQUET_PLACED_PAGES_H_
#define BALLAST_SERVER_CORPUS_PARQUET_PLACED_PAGES_H_

#include <memory>

#include <arrow/memory_pool.h>
#include <parquet/column_reader.h>

#include "absl/status/status.h"
#include "server/corpus/parquet/found_values.h"
#include "server/corpus/parquet/image_pages.h"

namespace ballast {

// The pages of a chunk with numbers in place of values, whose places are found
// in the file; values are not read. Hands out no page that PlaceImages cannot
// read. The first error of a read goes to `error`, which ends the pages. Owns
// none of its arguments.
std::unique_ptr<parquet::PageReader> PlacePages(const FileView& file,
                                                const ImageChunk& chunk,
                                                arrow::MemoryPool* pool,
                                                absl::Status* error,
                                                FoundValues* found);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_PARQUET_PLACED_PAGES_H_
