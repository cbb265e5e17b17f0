#ifndef BALLAST_SERVER_CORPUS_INDEX_INDEX_ASSEMBLY_H_
#define BALLAST_SERVER_CORPUS_INDEX_INDEX_ASSEMBLY_H_

#include <cstdint>
#include <vector>

#include "server/corpus/index/file_scan.h"
#include "server/corpus/index/index_key.h"
#include "server/corpus/index/index_options.h"
#include "server/corpus/index/index_writer.h"

namespace ballast {

struct AssembledIndex {
  IndexContents contents;
  IndexReport report;
};

// Puts the scans of a source's files, in their order, together. Equal scans
// give equal contents, wherever and in whatever order they were made. `format`
// is the source's v1::Source::Format; with `in_groups` rows at one offset are a
// group (Parquet). The contents' digests are left to the caller. Pure.
AssembledIndex AssembleIndex(uint32_t format, bool in_groups,
                             std::vector<FileScan> scans);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_INDEX_ASSEMBLY_H_
