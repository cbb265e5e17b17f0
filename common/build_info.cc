#include "common/build_info.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ballast {
namespace {

constexpr absl::string_view kCompiler =
#if defined(__clang__)
    "clang++ " __clang_version__;
#else
    "g++ " __VERSION__;
#endif

constexpr absl::string_view kMode =
#if defined(NDEBUG) && defined(__OPTIMIZE__)
    "optimised";
#elif defined(__OPTIMIZE__)
    "optimised, with assertions";
#else
        "not optimised, with assertions";
#endif

constexpr absl::string_view kSanitizer =
#if defined(BALLAST_ASAN)
    ", with AddressSanitizer";
#elif defined(BALLAST_TSAN)
    ", with ThreadSanitizer";
#else
    "";
#endif

}  // namespace

std::string VersionText(const std::string& program) {
  const absl::string_view commit = kStampedCommit;
  return absl::StrCat(
      program, " ", kVersion, "\ncommit ",
      commit.empty() ? "unknown: built without --stamp, or without git"
                     : absl::StrCat(commit, " of a ", kStampedTree, " tree"),
      "\nbuilt by ", kCompiler, ", ", kMode, kSanitizer);
}

std::string ShortVersion() {
  const absl::string_view commit = kStampedCommit;
  return commit.empty() ? std::string(kVersion)
                        : absl::StrCat(kVersion, " (", commit, ")");
}

}  // namespace ballast
