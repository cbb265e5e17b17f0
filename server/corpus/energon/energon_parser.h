#ifndef BALLAST_SERVER_CORPUS_ENERGON_ENERGON_PARSER_H_
#define BALLAST_SERVER_CORPUS_ENERGON_ENERGON_PARSER_H_

#include "server/corpus/record_parser.h"

namespace ballast {

// Samples in the tar files of an Energon folder.
extern const RecordFormat kEnergonFormat;

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_ENERGON_ENERGON_PARSER_H_
