#include "server/files/hub_store.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/mutex.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "server/files/http_get.h"

namespace ballast {
namespace {

constexpr int kMostPages = 100000;
// Objects whose versions are remembered.
constexpr size_t kMostKnown = size_t{1} << 20;
// How long a place that the hub redirects to is asked without asking the hub:
// its signed addresses hold for an hour.
constexpr absl::Duration kPlaceLasts = absl::Minutes(10);
constexpr size_t kCommitDigits = 40;
constexpr size_t kMostToken = 4096;
constexpr size_t kMostMessage = 300;

std::string Field(const RangeAnswer& answer, const std::string& name) {
  const auto found = answer.fields.find(name);
  return found == answer.fields.end() ? "" : found->second;
}

// The version that an answer names, of the hub's file rather than of the place
// that it redirects to; "" if it names none.
std::string VersionOf(const RangeAnswer& answer) {
  std::string version = Field(answer, "x-linked-etag");
  if (version.empty()) version = Field(answer, "etag");
  absl::string_view bare = version;
  absl::ConsumePrefix(&bare, "W/");
  absl::ConsumePrefix(&bare, "\"");
  absl::ConsumeSuffix(&bare, "\"");
  if (!bare.empty()) return std::string(bare);
  const std::string time = Field(answer, "last-modified");
  return time.empty() ? "" : absl::StrCat("time=", time);
}

// The size that "bytes 0-0/123" or "bytes */0" names.
std::optional<uint64_t> SizeOfRange(const RangeAnswer& answer) {
  const std::string range = Field(answer, "content-range");
  const size_t slash = range.rfind('/');
  uint64_t size = 0;
  if (slash == range.npos ||
      !absl::SimpleAtoi(range.substr(slash + 1), &size)) {
    return std::nullopt;
  }
  return size;
}

FileStamp MakeStamp(uint64_t size, const std::string& version) {
  // The index keeps a signed number.
  return {size, static_cast<int64_t>(
                    XXH3_64bits(version.data(), version.size()) >> 1)};
}

bool IsCommit(absl::string_view revision) {
  return revision.size() == kCommitDigits &&
         revision.find_first_not_of("0123456789abcdef") == revision.npos;
}

absl::Status Failed(absl::string_view action, absl::string_view url,
                    absl::string_view why) {
  return absl::UnavailableError(
      absl::StrCat(url, ": cannot ", action, ": ", why));
}

std::string Again(const RangeAnswer& answer) {
  const std::string seconds = Field(answer, "retry-after");
  return seconds.empty()
             ? "; it was asked five times"
             : absl::StrCat("; it was asked five times, and says to wait ",
                            seconds, " s more");
}

// The next page that a Link field names: <URL>; rel="next".
std::string NextPage(const RangeAnswer& answer) {
  for (const absl::string_view link :
       absl::StrSplit(Field(answer, "link"), ',')) {
    const size_t open = link.find('<');
    const size_t close = link.find('>');
    if (open != link.npos && close != link.npos && open < close &&
        absl::StrContains(link.substr(close), "rel=\"next\"")) {
      return std::string(link.substr(open + 1, close - open - 1));
    }
  }
  return "";
}

class HubStore final : public ObjectStore {
 public:
  HubStore(HubAccess access, Clock* clock)
      : access_(std::move(access)), clock_(clock), client_(clock) {}

  absl::StatusOr<std::vector<StoreEntry>> List(const std::string& folder,
                                               bool recursive) override {
    BALLAST_ASSIGN_OR_RETURN(const HubPath path, ParseHubPath(folder));
    std::vector<StoreEntry> entries;
    BALLAST_ASSIGN_OR_RETURN(const std::string commit, Commit(path));
    BALLAST_RETURN_IF_ERROR(
        ListPages(path, commit, recursive, [&](StoreEntry entry) {
          if (!entry.is_folder || !recursive) {
            entries.push_back(std::move(entry));
          }
          return true;
        }));
    return entries;
  }

  absl::StatusOr<FileStamp> Stat(const std::string& path) override {
    BALLAST_ASSIGN_OR_RETURN(const HubPath parsed, ParseHubPath(path));
    {
      // A commit's files never change.
      MutexLock lock(&mutex_);
      const auto known = known_.find(path);
      if (known != known_.end() && FindCommit(parsed).has_value()) {
        return MakeStamp(known->second.size, known->second.version);
      }
    }
    RangeRequest request = Resolve(parsed);
    request.head = true;
    request.stay = true;
    BALLAST_ASSIGN_OR_RETURN(const RangeAnswer answer,
                             Ask("stat", path, request));
    if (answer.status >= 400) return Refused("stat", path, answer);
    std::string size_text = Field(answer, "x-linked-size");
    // Of a redirect it is the length of a notice.
    if (size_text.empty() && answer.status == 200) {
      size_text = Field(answer, "content-length");
    }
    Known now;
    now.version = VersionOf(answer);
    if (!absl::SimpleAtoi(size_text, &now.size) || now.version.empty()) {
      return Failed("stat", Url(path),
                    "the answer names no size or no ETag; is HF_ENDPOINT a "
                    "hub's?");
    }
    const FileStamp stamp = MakeStamp(now.size, now.version);
    MutexLock lock(&mutex_);
    const std::string commit = Field(answer, "x-repo-commit");
    if (IsCommit(commit) && !IsCommit(parsed.revision)) {
      const auto [pinned, is_new] = commits_.emplace(Key(parsed), commit);
      if (pinned->second != commit) {
        // The revision has moved between the first answer and this one.
        return Failed(
            "stat", Url(path),
            absl::StrCat("its revision has moved from ", pinned->second, " to ",
                         commit, "; name a commit, or start again"));
      }
    }
    if (known_.size() >= kMostKnown) known_.clear();
    known_[path] = std::move(now);
    return stamp;
  }

  absl::Status Read(const std::string& path, uint64_t object_size,
                    uint64_t offset, uint64_t size, char* out) override {
    if (size == 0) return absl::OkStatus();
    BALLAST_ASSIGN_OR_RETURN(const HubPath parsed, ParseHubPath(path));
    RangeRequest request = Resolve(parsed);
    const std::string hub = request.url;
    request.range = ByteRange{offset, size};
    request.out = out;
    Known known;
    {
      MutexLock lock(&mutex_);
      const auto found = known_.find(path);
      if (found != known_.end()) known = found->second;
    }
    if (!known.place.empty() && clock_->Now() < known.until) {
      RangeRequest direct = request;
      direct.url = known.place;
      direct.token.clear();
      direct.is_public = known.is_public;
      const absl::StatusOr<RangeAnswer> answer = client_.Ask(direct);
      if (answer.ok() && answer->status == 206 &&
          SizeOfRange(*answer) == object_size) {
        return absl::OkStatus();
      }
      // Its signature has expired, or it fails: the hub names another.
      Place(path, "", false);
    }
    BALLAST_ASSIGN_OR_RETURN(const RangeAnswer answer,
                             Ask("read", path, request));
    if (answer.status == 200) {
      return Failed("read", Url(path),
                    "the whole file was answered in place of a range; does a "
                    "proxy on the way drop them?");
    }
    if (answer.status != 206) return Refused("read", path, answer);
    const std::string version = VersionOf(answer);
    const bool is_elsewhere = WebOrigin(answer.url) != WebOrigin(hub);
    // The place that it redirects to has ETags of its own.
    const bool has_version =
        !is_elsewhere || !Field(answer, "x-linked-etag").empty();
    if (SizeOfRange(answer) != object_size ||
        (has_version && !known.version.empty() && version != known.version)) {
      return Failed("read", Url(path), "it has another version by now");
    }
    if (is_elsewhere) Place(path, answer.url, answer.is_public);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Pinned(const std::string& path) {
    BALLAST_ASSIGN_OR_RETURN(const HubPath parsed, ParseHubPath(path));
    BALLAST_ASSIGN_OR_RETURN(const std::string commit, Commit(parsed));
    if (!IsCommit(commit)) return path;
    return absl::StrCat("datasets/", parsed.repository, "@", commit,
                        parsed.file.empty() ? "" : "/", parsed.file);
  }

 private:
  struct Known {
    uint64_t size = 0;
    std::string version;
    std::string place;       // where the hub redirects to
    bool is_public = false;  // the hub's address is
    absl::Time until = absl::InfinitePast();
  };

  static std::string Url(absl::string_view path) {
    return absl::StrCat("hf://", path);
  }

  static std::string Key(const HubPath& path) {
    return absl::StrCat(path.repository, "@", path.revision);
  }

  // The commit that is asked for, if it is known.
  std::optional<std::string> FindCommit(const HubPath& path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (IsCommit(path.revision)) return path.revision;
    const auto found = commits_.find(Key(path));
    if (found == commits_.end()) return std::nullopt;
    return found->second;
  }

  void Place(const std::string& path, const std::string& place,
             bool is_public) {
    MutexLock lock(&mutex_);
    const auto found = known_.find(path);
    if (found == known_.end()) return;
    found->second.place = place;
    found->second.is_public = is_public;
    found->second.until = clock_->Now() + kPlaceLasts;
  }

  // The commit of the path's revision; the revision itself where the hub names
  // no commit. Asks for the first file in it.
  absl::StatusOr<std::string> Commit(const HubPath& path) {
    {
      MutexLock lock(&mutex_);
      if (const auto known = FindCommit(path)) return *known;
    }
    HubPath whole = path;
    whole.file.clear();
    std::string first;
    BALLAST_RETURN_IF_ERROR(ListPages(whole, path.revision, /*recursive=*/true,
                                      [&](const StoreEntry& entry) {
                                        if (!entry.is_folder)
                                          first = entry.path;
                                        return first.empty();
                                      }));
    if (!first.empty()) BALLAST_RETURN_IF_ERROR(Stat(first).status());
    MutexLock lock(&mutex_);
    return FindCommit(path).value_or(path.revision);
  }

  RangeRequest Resolve(const HubPath& parsed) {
    std::string revision = parsed.revision;
    {
      MutexLock lock(&mutex_);
      if (const auto known = FindCommit(parsed)) revision = *known;
    }
    return {.url = absl::StrCat(access_.endpoint, "/datasets/",
                                parsed.repository, "/resolve/", revision, "/",
                                WebEscape(parsed.file, /*is_path=*/true)),
            .token = access_.token};
  }

  absl::StatusOr<RangeAnswer> Ask(absl::string_view action,
                                  const std::string& path,
                                  const RangeRequest& request) {
    absl::StatusOr<RangeAnswer> answer = client_.Ask(request);
    if (answer.ok()) return answer;
    return Failed(
        action, Url(path),
        absl::StrCat(answer.status().message(), "; is ", access_.endpoint,
                     " reached from here (HF_ENDPOINT, "
                     "https_proxy)?"));
  }

  // Passes the entries of a folder to `add`, until it returns false.
  template <typename Add>
  absl::Status ListPages(const HubPath& path, const std::string& revision,
                         bool recursive, Add add) {
    const std::string folder =
        absl::StrCat(path.before, path.file.empty() ? "" : "/", path.file);
    RangeRequest request = {
        .url = absl::StrCat(access_.endpoint, "/api/datasets/", path.repository,
                            "/tree/", revision, path.file.empty() ? "" : "/",
                            WebEscape(path.file, /*is_path=*/true),
                            "?recursive=", recursive ? "true" : "false",
                            "&expand=false"),
        .token = access_.token};
    const std::string origin = WebOrigin(request.url);
    for (int page = 0; page < kMostPages; ++page) {
      BALLAST_ASSIGN_OR_RETURN(const RangeAnswer answer,
                               Ask("list", folder, request));
      if (answer.status == 404 &&
          Field(answer, "x-error-code") == "EntryNotFound") {
        return absl::OkStatus();
      }
      if (answer.status != 200) return Refused("list", folder, answer);
      const auto found = nlohmann::json::parse(answer.body, nullptr,
                                               /*allow_exceptions=*/false);
      if (!found.is_array()) {
        return Failed("list", Url(folder),
                      "the answer is no list; is HF_ENDPOINT a hub's?");
      }
      for (const auto& each : found) {
        const auto name = each.find("path");
        const auto type = each.find("type");
        if (!each.is_object() || name == each.end() || !name->is_string() ||
            type == each.end() || !type->is_string()) {
          return Failed("list", Url(folder), "an entry without path or type");
        }
        StoreEntry entry;
        entry.path = absl::StrCat(path.before, "/", name->get<std::string>());
        entry.is_folder = *type == "directory";
        const auto size = each.find("size");
        if (size != each.end() && size->is_number_unsigned()) {
          entry.size = size->get<uint64_t>();
        }
        if (!add(std::move(entry))) return absl::OkStatus();
      }
      request.url = NextPage(answer);
      if (request.url.empty()) return absl::OkStatus();
      if (absl::StartsWith(request.url, "/")) {
        request.url = absl::StrCat(origin, request.url);
      }
      // The token goes along.
      if (WebOrigin(request.url) != origin) {
        return Failed("list", Url(folder),
                      absl::StrCat("its next page is at another host, ",
                                   WebOrigin(request.url)));
      }
    }
    return Failed("list", Url(folder), "it has too many pages");
  }

  absl::Status Refused(absl::string_view action, absl::string_view path,
                       const RangeAnswer& answer) const {
    const std::string code = Field(answer, "x-error-code");
    const std::string message =
        Field(answer, "x-error-message").substr(0, kMostMessage);
    const std::string why =
        absl::StrCat(access_.endpoint, " answered ", answer.status,
                     code.empty() ? "" : absl::StrCat(" ", code),
                     message.empty() ? "" : absl::StrCat(" (", message, ")"));
    const std::string text =
        absl::StrCat(Url(path), ": cannot ", action, ": ", why);
    const bool lacks_file =
        code == "EntryNotFound" || code == "RevisionNotFound";
    if (answer.status == 404 && lacks_file) {
      return absl::NotFoundError(absl::StrCat(
          text, code == "EntryNotFound" ? "; is the file's name right?"
                                        : "; is the revision's name right?"));
    }
    if (answer.status == 401 || answer.status == 403 || answer.status == 404) {
      const std::string advice = absl::StrCat(
          text,
          access_.token.empty()
              ? "; is the name right? A private or gated set wants a token, "
                "and none was given: set HF_TOKEN to one with the right to "
                "read (huggingface.co/settings/tokens), or run `hf auth login`"
              : "; is the name right, may the token that was given read it, "
                "and have you accepted the conditions of a gated set on its "
                "page?");
      return answer.status == 404 ? absl::NotFoundError(advice)
                                  : absl::UnavailableError(advice);
    }
    if (answer.status == 429) {
      return absl::UnavailableError(
          absl::StrCat(text, Again(answer),
                       "; give HF_TOKEN, which may ask more often, lower "
                       "storage.connections, or keep a cache (storage.cache)"));
    }
    return absl::UnavailableError(
        absl::StrCat(text, answer.status >= 500 ? Again(answer) : ""));
  }

  const HubAccess access_;
  Clock* const clock_;
  RangeClient client_;
  Mutex mutex_;
  absl::flat_hash_map<std::string, std::string> commits_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Known> known_ ABSL_GUARDED_BY(mutex_);
};

class WebStore final : public ObjectStore {
 public:
  WebStore(std::string scheme, Clock* clock)
      : scheme_(std::move(scheme)), client_(clock) {}

  absl::StatusOr<std::vector<StoreEntry>> List(const std::string& folder,
                                               bool /*recursive*/) override {
    return Failed("list", Url(folder),
                  "web servers have no listing; name each file, with braces, "
                  "as in part-{000..127}.tar");
  }

  absl::StatusOr<FileStamp> Stat(const std::string& path) override {
    char first;
    BALLAST_ASSIGN_OR_RETURN(const RangeAnswer answer,
                             Ask("stat", path, {0, 1}, &first));
    const std::string version = VersionOf(answer);
    const std::optional<uint64_t> size = SizeOfRange(answer);
    if (!size.has_value() || (answer.status == 416 && *size != 0)) {
      return Failed("stat", Url(path), "the answer names no size");
    }
    if (version.empty()) {
      return Failed("stat", Url(path),
                    "the server names neither ETag nor Last-Modified, so "
                    "another version could not be told; copy the file");
    }
    MutexLock lock(&mutex_);
    if (versions_.size() >= kMostKnown) versions_.clear();
    versions_[path] = version;
    return MakeStamp(*size, version);
  }

  absl::Status Read(const std::string& path, uint64_t object_size,
                    uint64_t offset, uint64_t size, char* out) override {
    if (size == 0) return absl::OkStatus();
    BALLAST_ASSIGN_OR_RETURN(const RangeAnswer answer,
                             Ask("read", path, {offset, size}, out));
    MutexLock lock(&mutex_);
    const auto known = versions_.find(path);
    if (answer.status != 206 || SizeOfRange(answer) != object_size ||
        (known != versions_.end() && known->second != VersionOf(answer))) {
      return Failed("read", Url(path), "it has another version by now");
    }
    return absl::OkStatus();
  }

 private:
  std::string Url(absl::string_view path) const {
    return absl::StrCat(scheme_, "://", path);
  }

  // An answer of 206, or 416.
  absl::StatusOr<RangeAnswer> Ask(absl::string_view action,
                                  const std::string& path, ByteRange range,
                                  char* out) {
    const size_t slash = std::min(path.find('/'), path.size());
    absl::StatusOr<RangeAnswer> answer = client_.Ask(
        {.url = absl::StrCat(Url(path.substr(0, slash)),
                             WebEscape(path.substr(slash), /*is_path=*/true)),
         .range = range,
         .out = out});
    if (!answer.ok()) {
      return Failed(action, Url(path), answer.status().message());
    }
    if (answer->status == 206 || answer->status == 416) return answer;
    if (answer->status == 200) {
      return Failed(action, Url(path),
                    "the server answers the whole file in place of a range; "
                    "copy the file");
    }
    const std::string why =
        absl::StrCat(Url(path), ": cannot ", action, ": the server answered ",
                     answer->status);
    if (answer->status == 404 || answer->status == 410) {
      return absl::NotFoundError(why);
    }
    return absl::UnavailableError(absl::StrCat(
        why, answer->status == 401 || answer->status == 403
                 ? "; no password and no token is sent to web servers"
             : answer->status == 429 || answer->status >= 500 ? Again(*answer)
                                                              : ""));
  }

  const std::string scheme_;
  RangeClient client_;
  Mutex mutex_;
  absl::flat_hash_map<std::string, std::string> versions_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<HubPath> ParseHubPath(absl::string_view path) {
  const std::vector<absl::string_view> names = absl::StrSplit(path, '/');
  if (names.size() < 3 || names[0] != "datasets") {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"hf://", path,
        "\" names no data set; wanted hf://datasets/OWNER/NAME/FILE or "
        "hf://datasets/OWNER/NAME@REVISION/FILE"));
  }
  HubPath parsed;
  const std::pair<absl::string_view, absl::string_view> name =
      absl::StrSplit(names[2], absl::MaxSplits('@', 1));
  parsed.repository = absl::StrCat(WebEscape(names[1], false), "/",
                                   WebEscape(name.first, false));
  if (name.second == "~parquet") {
    parsed.revision = "refs%2Fconvert%2Fparquet";
  } else if (absl::StrContains(name.second, '%')) {
    parsed.revision = std::string(name.second);
  } else if (!name.second.empty()) {
    parsed.revision = WebEscape(name.second, false);
  }
  parsed.before = absl::StrJoin(names.begin(), names.begin() + 3, "/");
  parsed.file = absl::StrJoin(names.begin() + 3, names.end(), "/");
  return parsed;
}

absl::StatusOr<HubAccess> ResolveHubAccess() {
  const auto get = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  HubAccess access;
  const std::string endpoint = get("HF_ENDPOINT");
  if (!endpoint.empty()) {
    access.endpoint = std::string(absl::StripSuffix(endpoint, "/"));
    if (WebOrigin(access.endpoint).empty() ||
        absl::StrContains(access.endpoint, '@')) {
      return absl::FailedPreconditionError(
          "HF_ENDPOINT is no address of a hub; wanted https://HOST, without a "
          "name or a password");
    }
  }
  const std::string origin = WebOrigin(access.endpoint);
  std::string token = get("HF_TOKEN");
  if (token.empty()) {
    std::string file = get("HF_TOKEN_PATH");
    if (file.empty()) {
      const std::string home = get("HF_HOME");
      file = home.empty()
                 ? absl::StrCat(get("HOME"), "/.cache/huggingface/token")
                 : absl::StrCat(home, "/token");
    }
    token = ReadSmallFile(file, kMostToken).value_or("");
  }
  access.token = std::string(absl::StripAsciiWhitespace(token));
  if (access.token.find_first_of("\r\n \t") != std::string::npos) {
    return absl::FailedPreconditionError(
        "HF_TOKEN, or the token's file, holds more than one word; wanted the "
        "token alone");
  }
  if (!access.token.empty() && absl::StartsWith(origin, "http://") &&
      !absl::StartsWith(origin, "http://127.") &&
      !absl::StartsWith(origin, "http://localhost:") &&
      !absl::StartsWith(origin, "http://[::1]:")) {
    return absl::FailedPreconditionError(absl::StrCat(
        "HF_ENDPOINT is ", origin,
        ": HF_TOKEN would cross the network unencrypted; give an https:// "
        "address, or no token"));
  }
  return access;
}

std::unique_ptr<ObjectStore> MakeHubStore(HubAccess access, Clock* clock) {
  return std::make_unique<HubStore>(std::move(access), clock);
}

absl::StatusOr<std::string> PinHubPath(const std::string& path,
                                       HubAccess access, Clock* clock) {
  return HubStore(std::move(access), clock).Pinned(path);
}

std::unique_ptr<ObjectStore> MakeWebStore(const std::string& scheme,
                                          Clock* clock) {
  return std::make_unique<WebStore>(scheme, clock);
}

}  // namespace ballast
