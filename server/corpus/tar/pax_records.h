#ifndef BALLAST_SERVER_CORPUS_TAR_PAX_RECORDS_H_
#define BALLAST_SERVER_CORPUS_TAR_PAX_RECORDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// What we follow of a pax extended header.
struct PaxRecords {
  std::optional<std::string> path;
  std::optional<uint64_t> size;
};

// Reads records "LENGTH KEY=VALUE\n", where LENGTH counts the whole record. Of
// records with equal keys the last holds; other keys mean nothing to us, but
// those of sparse files change what the member's bytes are. Errors: DATA_LOSS
// (not such records, a size that is no number, a sparse file).
absl::StatusOr<PaxRecords> ParsePaxRecords(absl::string_view bytes);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_TAR_PAX_RECORDS_H_
