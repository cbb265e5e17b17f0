#ifndef BALLAST_COMMON_BUILD_STAMP_H_
#define BALLAST_COMMON_BUILD_STAMP_H_

namespace ballast {

// What bazel/workspace_status.sh said when this program was linked; empty
// without --stamp, or where there is no git. `kStampedTree`: "clean" or
// "modified".
extern const char* const kStampedCommit;
extern const char* const kStampedTree;

}  // namespace ballast

#endif  // BALLAST_COMMON_BUILD_STAMP_H_
