#ifndef BALLAST_TESTS_FAKES_SHARED_DIR_H_
#define BALLAST_TESTS_FAKES_SHARED_DIR_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ballast {

// The folder that BALLAST_SHARED_DIR names, if `file` is in it. It has corpora
// and golden values that are not part of the tree. A test that needs one skips
// if it is not there:
//
//   const std::optional<std::string> shared = SharedDirWith(kGolden);
//   if (!shared) GTEST_SKIP() << NotShared(kGolden);
std::optional<std::string> SharedDirWith(absl::string_view file);

// Why the test is skipped.
std::string NotShared(absl::string_view file);

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_SHARED_DIR_H_
