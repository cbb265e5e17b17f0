#include "server/files/http_get.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr int kAttempts = 5;
constexpr int kMostRedirects = 5;
constexpr absl::Duration kFirstWait = absl::Milliseconds(500);
constexpr absl::Duration kMostWait = absl::Minutes(1);
constexpr long kConnectSeconds = 10;
// Time without a byte after which a request fails.
constexpr long kSilentSeconds = 20;
// The longest that a request may take, with more for a range's bytes.
constexpr long kMostSeconds = 120;
constexpr uint64_t kLeastBytesASecond = 64 << 10;
constexpr size_t kMostBody = size_t{64} << 20;
constexpr size_t kMostFields = 256;

bool IsPrivate(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const uint32_t ip =
        ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
    return ip >> 24 == 127 || ip >> 24 == 10 || ip >> 24 == 0 ||
           ip >> 20 == 0xac1 || ip >> 16 == 0xc0a8 || ip >> 16 == 0xa9fe ||
           ip >> 22 == 0x191;  // 100.64.0.0/10, of providers
  }
  if (address->sa_family != AF_INET6) return true;
  const uint8_t* ip =
      reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr.s6_addr;
  if (IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr*>(ip))) {
    sockaddr_in mapped = {};
    mapped.sin_family = AF_INET;
    std::memcpy(&mapped.sin_addr, ip + 12, 4);
    return IsPrivate(reinterpret_cast<const sockaddr*>(&mapped));
  }
  return IN6_IS_ADDR_LOOPBACK(reinterpret_cast<const in6_addr*>(ip)) ||
         IN6_IS_ADDR_UNSPECIFIED(reinterpret_cast<const in6_addr*>(ip)) ||
         (ip[0] & 0xfe) == 0xfc || (ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80);
}

bool IsPrivate(const char* text) {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
    return IsPrivate(reinterpret_cast<const sockaddr*>(&v4));
  }
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  return inet_pton(AF_INET6, text, &v6.sin6_addr) == 1 &&
         IsPrivate(reinterpret_cast<const sockaddr*>(&v6));
}

// The state of one request while libcurl runs.
struct Transfer {
  CURL* curl = nullptr;
  const RangeRequest* request = nullptr;
  RangeAnswer answer;
  uint64_t received = 0;  // bytes in `out`
  bool may_be_private = true;
  bool too_long = false;
};

size_t TakeField(char* text, size_t size, size_t count, void* to) {
  auto& transfer = *static_cast<Transfer*>(to);
  const absl::string_view line(text, size * count);
  // The head of an answer after another: of a proxy, or 100 Continue.
  if (absl::StartsWith(line, "HTTP/")) transfer.answer.fields.clear();
  const size_t colon = line.find(':');
  if (colon != line.npos && transfer.answer.fields.size() < kMostFields) {
    transfer.answer.fields[absl::AsciiStrToLower(line.substr(0, colon))] =
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return line.size();
}

size_t TakeBody(char* bytes, size_t size, size_t count, void* to) {
  auto& transfer = *static_cast<Transfer*>(to);
  const size_t length = size * count;
  long status = 0;
  curl_easy_getinfo(transfer.curl, CURLINFO_RESPONSE_CODE, &status);
  const RangeRequest& request = *transfer.request;
  const bool has_range = request.range.has_value() && status == 206;
  // The whole file in place of a range, or more than was asked for.
  if (request.range.has_value() && status == 200) return 0;
  if (has_range) {
    if (length > request.range->size - transfer.received) {
      transfer.too_long = true;
      return 0;
    }
    std::memcpy(request.out + transfer.received, bytes, length);
    transfer.received += length;
    return length;
  }
  if (transfer.answer.body.size() + length > kMostBody) {
    transfer.too_long = true;
    return 0;
  }
  transfer.answer.body.append(bytes, length);
  return length;
}

curl_socket_t OpenSocket(void* to, curlsocktype, curl_sockaddr* address) {
  auto& transfer = *static_cast<Transfer*>(to);
  if (!transfer.may_be_private && IsPrivate(&address->addr)) {
    return CURL_SOCKET_BAD;
  }
  return socket(address->family, address->socktype | SOCK_CLOEXEC,
                address->protocol);
}

// A 206 of just the range that was asked for.
absl::Status CheckRange(const RangeAnswer& answer, const ByteRange& range,
                        uint64_t received) {
  const auto field = answer.fields.find("content-range");
  const std::string begin = absl::StrCat("bytes ", range.offset, "-");
  if (field == answer.fields.end() || !absl::StartsWith(field->second, begin)) {
    return absl::UnavailableError("answered another range than was asked for");
  }
  if (received == range.size) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("answered ", received, " of the ",
                                             range.size, " bytes at ",
                                             range.offset));
}

// The file of CAs: SSL_CERT_FILE, or where the distribution keeps them, as
// libcurl knows only the place of the one that it was built for. "": none.
const std::string& CaFile() {
  static const auto* const file = new std::string([]() -> std::string {
    const char* own = std::getenv("SSL_CERT_FILE");
    if (own != nullptr && *own != '\0') return own;
    for (const char* each :
         {"/etc/ssl/certs/ca-certificates.crt",
          "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"}) {
      if (access(each, R_OK) == 0) return each;
    }
    return "";
  }());
  return *file;
}

bool MayPass(long status) {
  return status == 429 || status == 500 || (status >= 502 && status <= 504);
}

bool IsRedirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 ||
         status == 308;
}

absl::Duration WaitOf(const RangeAnswer& answer, absl::Duration wait) {
  const auto field = answer.fields.find("retry-after");
  uint32_t seconds = 0;
  if (field != answer.fields.end() &&
      absl::SimpleAtoi(field->second, &seconds)) {
    wait = absl::Seconds(seconds);
  }
  return std::min(wait, kMostWait);
}

}  // namespace

std::string WebOrigin(absl::string_view url) {
  CURLU* const parsed = curl_url();
  const absl::Cleanup free_url = [&] { curl_url_cleanup(parsed); };
  if (curl_url_set(parsed, CURLUPART_URL, std::string(url).c_str(), 0) !=
      CURLUE_OK) {
    return "";
  }
  const auto part = [&](CURLUPart which, unsigned flags) {
    char* text = nullptr;
    if (curl_url_get(parsed, which, &text, flags) != CURLUE_OK) {
      return std::string();
    }
    std::string copy = absl::AsciiStrToLower(text);
    curl_free(text);
    return copy;
  };
  const std::string scheme = part(CURLUPART_SCHEME, 0);
  if (scheme != "https" && scheme != "http") return "";
  return absl::StrCat(scheme, "://", part(CURLUPART_HOST, 0), ":",
                      part(CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

std::string WebEscape(absl::string_view text, bool is_path) {
  std::string escaped;
  for (const char c : text) {
    if (absl::ascii_isalnum(c) || absl::StrContains("-._~", c) ||
        (is_path && c == '/')) {
      escaped += c;
    } else {
      absl::StrAppendFormat(&escaped, "%%%02X", static_cast<uint8_t>(c));
    }
  }
  return escaped;
}

struct RangeClient::Handle {
  CURL* const curl = curl_easy_init();
  ~Handle() { curl_easy_cleanup(curl); }
};

RangeClient::RangeClient(Clock* clock) : clock_(clock) {
  [[maybe_unused]] static const CURLcode started =
      curl_global_init(CURL_GLOBAL_DEFAULT);
}

RangeClient::~RangeClient() = default;

std::unique_ptr<RangeClient::Handle> RangeClient::Take() {
  {
    MutexLock lock(&mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Handle> handle = std::move(idle_.back());
      idle_.pop_back();
      return handle;
    }
  }
  return std::make_unique<Handle>();
}

absl::StatusOr<RangeAnswer> RangeClient::AskOnce(Handle* handle,
                                                 const RangeRequest& request) {
  CURL* const curl = handle->curl;
  if (curl == nullptr) return absl::UnavailableError("no memory for libcurl");
  Transfer transfer;
  transfer.curl = curl;
  transfer.request = &request;
  transfer.answer.url = request.url;
  transfer.may_be_private = !request.is_public;
  const long most_seconds =
      kMostSeconds + (request.range.has_value()
                          ? request.range->size / kLeastBytesASecond
                          : 0);
  curl_slist* lines = nullptr;
  const absl::Cleanup free_lines = [&] { curl_slist_free_all(lines); };
  RangeRequest hop = request;
  std::map<std::string, std::string> before;
  for (int hops = 0;; ++hops) {
    curl_slist_free_all(std::exchange(lines, nullptr));
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, hop.url.c_str());
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, kSilentSeconds);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, most_seconds);
    if (!CaFile().empty()) {
      curl_easy_setopt(curl, CURLOPT_CAINFO, CaFile().c_str());
    }
    // Takes no open connection: an earlier one may lead to a private address.
    curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT,
                     hops > 0 && !transfer.may_be_private ? 1L : 0L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "ballast");
    curl_easy_setopt(curl, CURLOPT_NOBODY, request.head ? 1L : 0L);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, TakeField);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, TakeBody);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, OpenSocket);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, &transfer);
    // A packed answer would have other lengths and ranges.
    lines = curl_slist_append(lines, "Accept-Encoding: identity");
    if (!hop.token.empty()) {
      lines = curl_slist_append(
          lines, absl::StrCat("Authorization: Bearer ", hop.token).c_str());
    }
    if (request.range.has_value()) {
      lines = curl_slist_append(
          lines, absl::StrCat("Range: bytes=", request.range->offset, "-",
                              request.range->end() - 1)
                     .c_str());
    }
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, lines);
    transfer.answer.fields.clear();
    transfer.answer.body.clear();
    transfer.received = 0;
    const CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &transfer.answer.status);
    const char* ip = nullptr;
    curl_easy_getinfo(curl, CURLINFO_PRIMARY_IP, &ip);
    const bool is_private = ip != nullptr && IsPrivate(ip);
    RangeAnswer& answer = transfer.answer;
    answer.url = hop.url;
    if (transfer.too_long) {
      return absl::UnavailableError("answered more than was asked for");
    }
    const bool refused_whole = code == CURLE_WRITE_ERROR &&
                               answer.status == 200 &&
                               request.range.has_value();
    if (code != CURLE_OK && !refused_whole) {
      if (!transfer.may_be_private &&
          (is_private || code == CURLE_COULDNT_CONNECT)) {
        return absl::FailedPreconditionError(absl::StrCat(
            "redirected to ", WebOrigin(hop.url),
            ", which cannot be reached or is private: from a public address "
            "none is followed there"));
      }
      if (code == CURLE_PEER_FAILED_VERIFICATION) {
        return absl::FailedPreconditionError(absl::StrCat(
            curl_easy_strerror(code), " (", WebOrigin(hop.url),
            "); does SSL_CERT_FILE name the CA that signed its certificate?"));
      }
      return absl::UnavailableError(absl::StrCat(
          curl_easy_strerror(code), " (", WebOrigin(hop.url),
          code == CURLE_PARTIAL_FILE
              ? absl::StrCat(", cut after ", transfer.received, " bytes")
              : "",
          ")"));
    }
    if (hops == 0) transfer.may_be_private = is_private;
    answer.is_public = !transfer.may_be_private;
    for (auto& [name, value] : before) answer.fields.emplace(name, value);
    if (!IsRedirect(answer.status)) break;
    char* next = nullptr;
    curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &next);
    const std::string from = WebOrigin(hop.url);
    const std::string to = next == nullptr ? "" : WebOrigin(next);
    if (request.stay && to != from) break;
    if (to.empty() || hops == kMostRedirects ||
        (absl::StartsWith(from, "https") && !absl::StartsWith(to, "https"))) {
      return absl::FailedPreconditionError(
          absl::StrCat(from, " redirects to ", to.empty() ? "no address" : to,
                       hops == kMostRedirects ? ", after five others"
                                              : ", which is not followed"));
    }
    // The next host must not see it, nor one to which that leads back.
    if (to != from) hop.token.clear();
    hop.url = next;
    before = std::move(answer.fields);
    for (const char* own : {"content-length", "content-range", "location"}) {
      before.erase(own);
    }
  }
  if (request.range.has_value() && transfer.answer.status == 206) {
    BALLAST_RETURN_IF_ERROR(
        CheckRange(transfer.answer, *request.range, transfer.received));
  }
  return std::move(transfer.answer);
}

absl::StatusOr<RangeAnswer> RangeClient::Ask(const RangeRequest& request) {
  std::unique_ptr<Handle> handle = Take();
  absl::Duration wait = kFirstWait;
  absl::StatusOr<RangeAnswer> answer = absl::UnavailableError("not asked");
  for (int attempt = 1;; ++attempt) {
    answer = AskOnce(handle.get(), request);
    const bool again = answer.ok() ? MayPass(answer->status)
                                   : absl::IsUnavailable(answer.status());
    if (!again || attempt == kAttempts) break;
    clock_->NewSleeper()->Sleep(answer.ok() ? WaitOf(*answer, wait) : wait);
    wait *= 2;
  }
  MutexLock lock(&mutex_);
  idle_.push_back(std::move(handle));
  return answer;
}

}  // namespace ballast
