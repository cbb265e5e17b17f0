// Replaces what common/BUILD.bazel generates for builds with --stamp.
#include "common/build_stamp.h"

namespace ballast {

const char* const kStampedCommit = "";
const char* const kStampedTree = "";

}  // namespace ballast
