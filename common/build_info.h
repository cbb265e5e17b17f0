#ifndef BALLAST_COMMON_BUILD_INFO_H_
#define BALLAST_COMMON_BUILD_INFO_H_

#include <string>

namespace ballast {

// Of the sources. Packages carry it (deploy/package.sh reads this line).
inline constexpr char kVersion[] = "0.9.0";

// Where this program comes from, for --version:
//   ballast-server 0.9.0
//   commit 0123456789ab of a clean tree
//   built by g++ 12.2.0, optimised
// Builds with --stamp (--config=opt has it) out of a git checkout know the
// commit; others say that they do not. One small file is compiled anew for a
// commit, and only by stamped builds.
std::string VersionText(const std::string& program);

// "0.9.0 (0123456789ab)", in one line.
std::string ShortVersion();

}  // namespace ballast

#endif  // BALLAST_COMMON_BUILD_INFO_H_
