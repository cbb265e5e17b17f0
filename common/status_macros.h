#ifndef BALLAST_COMMON_STATUS_MACROS_H_
#define BALLAST_COMMON_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Returns `status` with "CONTEXT: " before its message, and with its payloads.
// OK stays OK.
inline absl::Status Annotate(const absl::Status& status,
                             absl::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(),
                         absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload(
      [&annotated](absl::string_view url, const absl::Cord& payload) {
        annotated.SetPayload(url, payload);
      });
  return annotated;
}

}  // namespace ballast

// Returns the status of `expression` from this function unless it is OK.
#define BALLAST_RETURN_IF_ERROR(expression)                       \
  do {                                                            \
    if (absl::Status ballast_status_ = (expression);              \
        !ballast_status_.ok()) {                                  \
      return ballast_status_;                                     \
    }                                                             \
  } while (false)

// BALLAST_ASSIGN_OR_RETURN(auto x, MakeX()): declares or assigns x from a
// StatusOr, or returns its status.
#define BALLAST_ASSIGN_OR_RETURN(target, expression)                        \
  BALLAST_ASSIGN_OR_RETURN_IMPL_(                                           \
      BALLAST_STATUS_CONCAT_(ballast_statusor_, __LINE__), target, expression)

#define BALLAST_ASSIGN_OR_RETURN_IMPL_(statusor, target, expression) \
  auto statusor = (expression);                                      \
  if (!statusor.ok()) return std::move(statusor).status();           \
  target = *std::move(statusor)

#define BALLAST_STATUS_CONCAT_INNER_(a, b) a##b
#define BALLAST_STATUS_CONCAT_(a, b) BALLAST_STATUS_CONCAT_INNER_(a, b)

#endif  // BALLAST_COMMON_STATUS_MACROS_H_
