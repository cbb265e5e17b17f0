#ifndef BALLAST_TESTS_FUZZ_MEMORY_FILE_H_
#define BALLAST_TESTS_FUZZ_MEMORY_FILE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ballast {

// For fuzz targets: a file in memory that holds `bytes`; its path, under which
// it can be opened until the next call. Aborts where the system gives none.
std::string MemoryFile(absl::string_view bytes);

}  // namespace ballast

#endif  // BALLAST_TESTS_FUZZ_MEMORY_FILE_H_
