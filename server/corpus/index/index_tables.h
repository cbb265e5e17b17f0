#ifndef BALLAST_SERVER_CORPUS_INDEX_INDEX_TABLES_H_
#define BALLAST_SERVER_CORPUS_INDEX_INDEX_TABLES_H_

#include <cstdint>

#include "server/corpus/index/index_format.h"

namespace ballast {

// Number of pages of checksums of the records' pages.
uint64_t TablePages(const IndexHeader& header);

// Returns whether the tables lie one after another inside total_bytes, as the
// format wants it. `marks` is null in a file of version 4, `videos` up to
// version 5. Pure; any values are safe.
bool TablesFit(const IndexHeader& header, const IndexMarksHeader* marks,
               const IndexVideosHeader* videos);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_INDEX_TABLES_H_
