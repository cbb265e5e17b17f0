#ifndef BALLAST_SERVER_COMMAND_FIND_RECORD_H_
#define BALLAST_SERVER_COMMAND_FIND_RECORD_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/corpus/record_parser.h"

namespace ballast {

// Record `number` of a source's files, from 0, as a recipe is given it: without
// an index, and whether the source has a recipe or not. Records that cannot be
// read are reported to standard error if `reports`. Errors: NOT_FOUND; as
// RawRecordParser::Scan and ListSourceFiles.
absl::StatusOr<RawRecord> FindRecord(const v1::Source& source,
                                     const std::string& directory,
                                     uint64_t number, bool reports);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_FIND_RECORD_H_
