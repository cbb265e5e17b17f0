#ifndef BALLAST_SERVER_DATA_FORM_PARSER_H_
#define BALLAST_SERVER_DATA_FORM_PARSER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/data/record_parser.h"

namespace ballast {

// The parser of `source`, whose records `raw` finds and its form makes to
// samples. Errors: as FormReader::Create.
absl::StatusOr<std::unique_ptr<RecordParser>> MakeFormParser(
    std::unique_ptr<RawRecordParser> raw, const v1::Source& source);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_FORM_PARSER_H_
