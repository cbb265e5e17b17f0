#ifndef BALLAST_COMMON_BUILD_INFO_H_
#define BALLAST_COMMON_BUILD_INFO_H_

#include <string>

namespace ballast {

// Version of the sources and the packages (deploy/package.sh reads this line).
inline constexpr char kVersion[] = "0.9.0";

// The origin of this program, for --version:
//   ballast-server 0.9.0
//   commit 0123456789ab of a clean tree
//   built by g++ 12.2.0, optimised
// Builds with --stamp (--config=opt has it) out of a git checkout know the
// commit; others say that they do not. A new commit recompiles one small file,
// in stamped builds only.
std::string VersionText(const std::string& program);

// "0.9.0 (0123456789ab)", in one line.
std::string ShortVersion();

}  // namespace ballast

#endif  // BALLAST_COMMON_BUILD_INFO_H_
