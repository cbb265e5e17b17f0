// Used without --stamp, in place of the file that common/BUILD.bazel generates.
#include "common/build_info.h"

namespace ballast {

const char* const kStampedCommit = "";
const char* const kStampedTree = "";

}  // namespace ballast
