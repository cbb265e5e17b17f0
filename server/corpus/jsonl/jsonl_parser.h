#ifndef BALLAST_SERVER_CORPUS_JSONL_JSONL_PARSER_H_
#define BALLAST_SERVER_CORPUS_JSONL_JSONL_PARSER_H_

#include "server/corpus/record_parser.h"

namespace ballast {

// Samples in JSON lines, or in one JSON array a file.
extern const RecordFormat kJsonlFormat;

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_JSONL_JSONL_PARSER_H_
