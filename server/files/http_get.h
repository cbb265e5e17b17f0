#ifndef BALLAST_SERVER_FILES_HTTP_GET_H_
#define BALLAST_SERVER_FILES_HTTP_GET_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "server/files/object_store.h"

namespace ballast {

// A request of bytes over HTTP.
struct RangeRequest {
  std::string url;
  bool head = false;
  // Sent as "Authorization: Bearer", to the host, port and scheme of `url`
  // alone.
  std::string token = {};
  // Bytes to ask for, which go to `out`; else the body is kept, up to 64 MiB.
  std::optional<ByteRange> range = {};
  char* out = nullptr;
  // Follows no redirect to another host.
  bool stay = false;
  // Connects to no private address.
  bool is_public = false;
};

struct RangeAnswer {
  long status = 0;
  // Of the last answer, by lower-case name; of redirects before it those that
  // the last does not have.
  std::map<std::string, std::string> fields;
  std::string body;
  std::string url;         // of the last answer
  bool is_public = false;  // the first was no private address's
};

// "https://HOST:PORT" of an address; "" if it is none of HTTP. Pure.
std::string WebOrigin(absl::string_view url);

// `text` with all but letters, digits and "-._~" as %XX; of a path also without
// its slashes. Pure.
std::string WebEscape(absl::string_view text, bool is_path);

// Asks servers by libcurl: through the proxies that its variables name
// (https_proxy, no_proxy), with the system's CAs, or those of SSL_CERT_FILE.
// Follows redirects, at most five, none from https to http, and none from a
// public to a private address. An attempt ends after 20 s without a byte, and
// after two minutes and a second for each 64 KiB. Asks again, at most four
// times, after a connection that fails, a cut answer, 429, 500 and 502 to 504,
// after as long as Retry-After says (at most a minute), or else half a second
// and more. Thread-safe; keeps connections open.
//
// Errors: UNAVAILABLE (no answer, with libcurl's reason); FAILED_PRECONDITION
// (a redirect that is not followed, a certificate of an unknown CA). Other
// statuses than 200 and 206 are answers.
class RangeClient {
 public:
  // `clock` is not owned.
  explicit RangeClient(Clock* clock);
  ~RangeClient();

  absl::StatusOr<RangeAnswer> Ask(const RangeRequest& request);

 private:
  struct Handle;

  absl::StatusOr<RangeAnswer> AskOnce(Handle* handle,
                                      const RangeRequest& request);
  std::unique_ptr<Handle> Take();

  Clock* const clock_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Handle>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_FILES_HTTP_GET_H_
