#ifndef BALLAST_SERVER_CORPUS_PARQUET_KEPT_PAGES_H_
#define BALLAST_SERVER_CORPUS_PARQUET_KEPT_PAGES_H_

#include <memory>

#include <arrow/memory_pool.h>
#include <parquet/column_reader.h>

#include "server/corpus/parquet/arrow_file.h"
#include "server/corpus/parquet/found_values.h"
#include "server/corpus/parquet/image_pages.h"

namespace ballast {

// The pages of a chunk, of which those with values stay in memory. Their
// values, and those of a dictionary, are views of them. `found` is not owned.
std::unique_ptr<parquet::PageReader> KeepPages(std::shared_ptr<ArrowFile> file,
                                               const ImageChunk& chunk,
                                               arrow::MemoryPool* pool,
                                               FoundValues* found);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_PARQUET_KEPT_PAGES_H_
