#include "server/config/exposure.h"

#include <sys/un.h>

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/config/key_report.h"

namespace ballast {
namespace {

absl::Status Fault(absl::string_view text, absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("found ", Shown(text), "; wanted ", wanted));
}

// Checks who reaches an address of TCP; `with_tls` is what is wanted of one
// that other machines reach without TLS.
absl::Status CheckReach(const NetAddress& address, absl::string_view text,
                        const v1::Security& security,
                        absl::string_view with_tls) {
  if (address.IsLocal() || security.insecure()) return absl::OkStatus();
  if (!security.has_tls()) return Fault(text, with_tls);
  if (security.tls().client_ca().empty() && security.tokens_file().empty()) {
    return Fault(
        text,
        "security.tls.client_ca or security.tokens_file, since other "
        "machines reach it; security.insecure: true if all of them may "
        "read the data");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NetAddress> ParseConfiguredAddress(absl::string_view text) {
  if (absl::StartsWith(text, "unix:") &&
      (!absl::StartsWith(UnixPath(text), "/") || !ParseNetAddress(text).ok())) {
    return Fault(text,
                 absl::StrCat("unix: and an absolute path of at most ",
                              sizeof(sockaddr_un::sun_path) - 1, " bytes"));
  }
  absl::StatusOr<NetAddress> address = ParseNetAddress(text);
  if (address.ok()) return address;
  return absl::InvalidArgumentError(absl::StrCat(
      "found ", Shown(text), "; ", std::string(address.status().message())));
}

absl::Status CheckExposure(const NetAddress& address, absl::string_view text,
                           const v1::Security& security) {
  if (address.is_unix()) return absl::OkStatus();
  if (!security.has_tls() && !security.tokens_file().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found ", Shown(text),
        " with security.tokens_file and without security.tls, which would send "
        "tokens in plain text; wanted a Unix socket, or security.tls"));
  }
  return CheckReach(
      address, text, security,
      "a Unix socket, a loopback address, or security.tls, since other "
      "machines reach it; security.insecure: true if all of them may read the "
      "data");
}

absl::Status CheckHttpExposure(const NetAddress& address,
                               absl::string_view text,
                               const v1::Security& security) {
  if (address.is_unix()) {
    return Fault(text,
                 "host:port: browsers cannot ask a Unix socket; 127.0.0.1:PORT "
                 "keeps it on this machine");
  }
  return CheckReach(
      address, text, security,
      "a loopback address and `ssh -L`, or security.tls, since other machines "
      "reach it; security.insecure: true if everyone on the network path may "
      "read it");
}

bool IsJobName(absl::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
  });
}

}  // namespace ballast
