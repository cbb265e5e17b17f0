#ifndef BALLAST_COMMON_BUILD_INFO_H_
#define BALLAST_COMMON_BUILD_INFO_H_

#include <string>

namespace ballast {

// Version of the sources and the packages (deploy/package.sh reads this line).
inline constexpr char kVersion[] = "1.0.0";

// Describes this program's build, for --version:
//   ballast-server 1.0.0
//   commit 0123456789ab of a clean tree
//   built by g++ 12.2.0, optimised
// Builds with --stamp (implied by --config=opt) from a git checkout know the
// commit; others report it as unknown. A new commit recompiles one small file,
// in stamped builds only.
std::string VersionText(const std::string& program);

// Output of bazel/workspace_status.sh when this program was linked; empty
// without --stamp or git. `kStampedTree`: "clean" or "modified".
extern const char* const kStampedCommit;
extern const char* const kStampedTree;

// The version and commit in one line: "1.0.0 (0123456789ab)".
std::string ShortVersion();

}  // namespace ballast

#endif  // BALLAST_COMMON_BUILD_INFO_H_
