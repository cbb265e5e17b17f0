#ifndef BALLAST_SERVER_CORPUS_SCAN_SCAN_BYTES_H_
#define BALLAST_SERVER_CORPUS_SCAN_SCAN_BYTES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/corpus/index/file_scan.h"

namespace ballast {

// The scan of a source's file.
struct NumberedScan {
  uint64_t file = 0;  // its number among the files
  FileScan scan;
};

// A scan as bytes, for this version alone. Errors: FAILED_PRECONDITION (over
// 2 GiB, some 30 million samples of one file).
absl::StatusOr<std::string> WriteScan(uint64_t file, const FileScan& scan);

// Any bytes are safe. Errors: DATA_LOSS.
absl::StatusOr<NumberedScan> ReadScan(absl::string_view bytes);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_SCAN_SCAN_BYTES_H_
