#ifndef BALLAST_TESTS_FUZZ_MEMORY_FILE_H_
#define BALLAST_TESTS_FUZZ_MEMORY_FILE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ballast {

// For fuzz targets: writes `bytes` to a file in memory and returns its path,
// valid until the next call. Aborts if the system provides none.
std::string MemoryFile(absl::string_view bytes);

}  // namespace ballast

#endif  // BALLAST_TESTS_FUZZ_MEMORY_FILE_H_
