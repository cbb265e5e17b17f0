#ifndef BALLAST_SERVER_CORPUS_TAR_PAX_RECORDS_H_
#define BALLAST_SERVER_CORPUS_TAR_PAX_RECORDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Values of a pax extended header that we use.
struct PaxRecords {
  std::optional<std::string> path;
  std::optional<uint64_t> size;
};

// Reads records "LENGTH KEY=VALUE\n", where LENGTH counts the whole record. The
// last of several records with the same key holds. Other keys are ignored,
// except those of sparse files, which change the meaning of the member's bytes.
// Errors: DATA_LOSS (malformed records, a size that is no number, a sparse
// file).
absl::StatusOr<PaxRecords> ParsePaxRecords(absl::string_view bytes);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_TAR_PAX_RECORDS_H_
