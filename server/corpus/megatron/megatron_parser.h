#ifndef BALLAST_SERVER_CORPUS_MEGATRON_MEGATRON_PARSER_H_
#define BALLAST_SERVER_CORPUS_MEGATRON_MEGATRON_PARSER_H_

#include "server/corpus/record_parser.h"

namespace ballast {

// Pairs NAME.bin and NAME.idx of token ids (docs/data.md), a document a sample.
// The .idx has the lengths: indexing does not read the .bin. A record's
// `text_check` is its number of tokens and their type; servers need no .idx.
extern const RecordFormat kMegatronFormat;

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_MEGATRON_MEGATRON_PARSER_H_
