#include "client/attach_all.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/fingerprint.h"

namespace ballast {

absl::StatusOr<v1::AttachResponse> AttachAll(
    absl::Span<LoaderClient* const> servers, const v1::Role& role,
    const v1::Fingerprint& expected) {
  if (servers.empty()) {
    return absl::InvalidArgumentError("no server was given to attach to");
  }
  BALLAST_ASSIGN_OR_RETURN(const v1::AttachResponse first,
                           servers[0]->Attach(role, expected));
  for (LoaderClient* const server : servers.subspan(1)) {
    // Compared here and not by the server, so that the message has both
    // addresses.
    BALLAST_ASSIGN_OR_RETURN(const v1::AttachResponse answer,
                             server->Attach(role, v1::Fingerprint()));
    BALLAST_RETURN_IF_ERROR(Annotate(
        CheckSameFingerprint(
            first.fingerprint(), absl::StrCat("server ", servers[0]->address()),
            answer.fingerprint(), absl::StrCat("server ", server->address())),
        "servers of different configurations"));
  }
  return first;
}

}  // namespace ballast
