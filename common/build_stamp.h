#ifndef BALLAST_COMMON_BUILD_STAMP_H_
#define BALLAST_COMMON_BUILD_STAMP_H_

namespace ballast {

// Output of bazel/workspace_status.sh when this program was linked; empty
// without --stamp or git. `kStampedTree`: "clean" or "modified".
extern const char* const kStampedCommit;
extern const char* const kStampedTree;

}  // namespace ballast

#endif  // BALLAST_COMMON_BUILD_STAMP_H_
