#ifndef BALLAST_SERVER_CORPUS_TAR_WEBDATASET_PARSER_H_
#define BALLAST_SERVER_CORPUS_TAR_WEBDATASET_PARSER_H_

#include "server/corpus/record_parser.h"

namespace ballast {

// Tar files whose members are samples (webdataset_reader.h).
extern const RecordFormat kWebDatasetFormat;

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_TAR_WEBDATASET_PARSER_H_
