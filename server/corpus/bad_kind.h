#ifndef BALLAST_SERVER_CORPUS_BAD_KIND_H_
#define BALLAST_SERVER_CORPUS_BAD_KIND_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Kinds of bad samples that `ballast-server index` counts at its end, so that a
// thousand samples of one cause are seen as one: "image is a URL". A status of
// a bad sample may carry one.
inline constexpr char kImageMissing[] = "image missing";
inline constexpr char kImageIsUrl[] = "image is a URL";
inline constexpr char kImageInZip[] = "image in a zip archive";
inline constexpr char kTooLong[] = "too long";

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
