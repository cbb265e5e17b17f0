#ifndef BALLAST_SERVER_CORPUS_BAD_KIND_H_
#define BALLAST_SERVER_CORPUS_BAD_KIND_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Kinds of bad samples that `ballast-server index` counts at its end, so that a
// thousand samples of one cause are seen as one: "image is a URL". A status of
// a bad sample may carry one. Kinds of images and videos are MediaKind of:
inline constexpr char kMissing[] = "missing";
inline constexpr char kIsUrl[] = "is a URL";
inline constexpr char kInZip[] = "in a zip archive";
inline constexpr char kTooLong[] = "too long";

// The kind of what has befallen an "image" or a "video".
inline std::string MediaKind(absl::string_view medium,
                             absl::string_view cause) {
  return absl::StrCat(medium, " ", cause);
}

inline constexpr char kBadKindUrl[] = "ballast/bad_kind";

// `status`, which must not be OK, with its kind.
inline absl::Status OfKind(absl::Status status, absl::string_view kind) {
  status.SetPayload(kBadKindUrl, absl::Cord(kind));
  return status;
}

// The kind of `status`; empty if it has none.
inline std::string BadKindOf(const absl::Status& status) {
  const auto kind = status.GetPayload(kBadKindUrl);
  return kind.has_value() ? std::string(*kind) : "";
}

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_BAD_KIND_H_
