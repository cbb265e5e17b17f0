#include "server/corpus/jsonl/media_path.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/corpus/bad_kind.h"
#include "server/corpus/data_fault.h"
#include "server/corpus/data_path.h"

namespace ballast {

absl::Status CheckMediaPath(absl::string_view medium, absl::string_view path) {
  const auto refused = [=](const char* cause, absl::string_view reason) {
    return OfKind(DataFaultError(absl::StrCat(medium, " \"", Printable(path),
                                              "\" ", reason)),
                  MediaKind(medium, cause));
  };
  if (absl::StartsWith(path, "data:")) {
    return refused(kIsUrl,
                   "is a data URL; media are read from files: write it to one "
                   "below media_root and name its path");
  }
  if (absl::StrContains(path, "://")) {
    return refused(kIsUrl,
                   "is a URL; media are read from files: download it below "
                   "media_root and name its path");
  }
  if (absl::EndsWith(path, ".zip") || absl::StrContains(path, ".zip/") ||
      absl::StrContains(path, ".zip@")) {
    return refused(kInZip,
                   "is in a zip archive, which is not read: unpack it below "
                   "media_root and name its path");
  }
  return CheckDataPath(path);
}

bool IsSameFile(absl::string_view one, absl::string_view other) {
  if (one.size() < other.size()) std::swap(one, other);
  return absl::ConsumeSuffix(&one, other) &&
         (one.empty() || one.back() == '/' || absl::StartsWith(other, "/"));
}

}  // namespace ballast
