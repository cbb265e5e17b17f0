#include "client/server_address.h"

#include <sys/un.h>

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ballast {
namespace {

// Without the zero byte at its end.
constexpr size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;

absl::Status Wrong(absl::string_view address, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("server address \"", address, "\" ", what));
}

}  // namespace

std::vector<std::string> SplitServers(absl::string_view list) {
  return absl::StrSplit(list, ',');
}

absl::Status CheckServerAddress(absl::string_view address) {
  absl::string_view path = address;
  if (absl::ConsumePrefix(&path, "unix:")) {
    if (path.empty() || path.size() > kMaxSocketPath) {
      return Wrong(address,
                   absl::StrCat("has a path of ", path.size(),
                                " bytes, wanted 1 to ", kMaxSocketPath));
    }
    return absl::OkStatus();
  }
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) {
    return Wrong(address, "is neither unix:/path nor host:port");
  }
  uint32_t port = 0;
  if (!absl::SimpleAtoi(address.substr(colon + 1), &port) || port == 0 ||
      port > UINT16_MAX) {
    return Wrong(address, absl::StrCat("has port \"", address.substr(colon + 1),
                                       "\", wanted 1 to ", UINT16_MAX));
  }
  const absl::string_view host = address.substr(0, colon);
  if (host.find(':') != absl::string_view::npos && host.front() != '[') {
    return Wrong(address,
                 "has an IPv6 host, which wants brackets: [host]:port");
  }
  return absl::OkStatus();
}

}  // namespace ballast
