#include "server/files/path_pattern.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr size_t kMaxNames = 1000000;
constexpr size_t kMaxPattern = 65536;
constexpr int kMaxDepth = 32;
// Bound on the bytes written while expanding, including intermediate lists, so
// that a hostile pattern cannot use excessive memory or time.
constexpr size_t kMaxWork = size_t{512} << 20;

using Names = std::vector<std::string>;

// Recursive-descent parser of a pattern. Each member function consumes the part
// that it expands.
class BraceExpander {
 public:
  explicit BraceExpander(absl::string_view pattern)
      : pattern_(pattern), rest_(pattern) {}

  absl::StatusOr<Names> Expand() {
    if (pattern_.size() > kMaxPattern) {
      return absl::InvalidArgumentError(
          absl::StrCat("a pattern of ", pattern_.size(),
                       " bytes; wanted at most ", kMaxPattern));
    }
    if (absl::StrContains(pattern_, absl::string_view("\0", 1))) {
      return absl::InvalidArgumentError("the pattern holds a NUL byte");
    }
    BALLAST_ASSIGN_OR_RETURN(Names names, ExpandSequence(0));
    if (!absl::StrContains(pattern_, "**")) return names;
    for (const std::string& name : names) {
      for (const absl::string_view part : absl::StrSplit(name, '/')) {
        // Globs would take it for `*`, and leave out the files of other depths.
        if (part != "**") continue;
        return Fault(
            "has a part **, which would match one folder, not all "
            "below it; wanted a glob for each depth, such as "
            "{*,*/*}.parquet");
      }
    }
    return names;
  }

 private:
  absl::Status Fault(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("the pattern \"", pattern_.substr(0, 200), "\" ", what));
  }

  // A sequence of text and braces. Within braces it ends before ',' or '}'.
  absl::StatusOr<Names> ExpandSequence(int depth) {
    Names names = {""};
    while (!rest_.empty()) {
      if (rest_[0] == '{') {
        rest_.remove_prefix(1);
        BALLAST_ASSIGN_OR_RETURN(Names tails, ExpandBrace(depth + 1));
        BALLAST_ASSIGN_OR_RETURN(names,
                                 Product(std::move(names), std::move(tails)));
        continue;
      }
      if (depth > 0 && (rest_[0] == ',' || rest_[0] == '}')) break;
      if (rest_[0] == '}') return Fault("closes a brace that it did not open");
      const size_t end = rest_.find_first_of(depth > 0 ? "{}," : "{}");
      const std::string text(rest_.substr(0, end));
      rest_.remove_prefix(text.size());
      BALLAST_ASSIGN_OR_RETURN(names, Product(std::move(names), {text}));
    }
    return names;
  }

  // The part after '{', up to and including '}'.
  absl::StatusOr<Names> ExpandBrace(int depth) {
    if (depth > kMaxDepth) {
      return Fault(absl::StrCat("nests more than ", kMaxDepth, " braces"));
    }
    const size_t end = rest_.find_first_of("{},");
    if (end != absl::string_view::npos && rest_[end] == '}') {
      const absl::string_view only = rest_.substr(0, end);
      if (only.empty()) return Fault("has empty braces");
      if (absl::StrContains(only, "..")) {
        rest_.remove_prefix(end + 1);
        return ExpandRange(only);
      }
    }
    Names names;
    while (true) {
      BALLAST_ASSIGN_OR_RETURN(Names alternative, ExpandSequence(depth));
      if (names.size() + alternative.size() > kMaxNames) return TooMany();
      std::move(alternative.begin(), alternative.end(),
                std::back_inserter(names));
      if (rest_.empty()) return Fault("opens a brace that it does not close");
      const char separator = rest_[0];
      rest_.remove_prefix(1);
      if (separator == '}') return names;
    }
  }

  // "000..007"; descending ranges count down.
  absl::StatusOr<Names> ExpandRange(absl::string_view text) {
    const size_t dots = text.find("..");
    const absl::string_view first_text = text.substr(0, dots);
    const absl::string_view last_text = text.substr(dots + 2);
    uint64_t first = 0;
    uint64_t last = 0;
    if (!ParseDigits(first_text, &first) || !ParseDigits(last_text, &last)) {
      return Fault(absl::StrCat("has the range {", text.substr(0, 60),
                                "}; wanted two numbers, as {000..007}"));
    }
    const uint64_t steps = std::max(first, last) - std::min(first, last);
    if (steps >= kMaxNames) return TooMany();
    // Leading zeros at either end give all numbers the same width.
    const bool padded = (first_text.size() > 1 && first_text[0] == '0') ||
                        (last_text.size() > 1 && last_text[0] == '0');
    const size_t width =
        padded ? std::max(first_text.size(), last_text.size()) : 0;
    BALLAST_RETURN_IF_ERROR(Spend((steps + 1) * (width + 20)));
    Names names;
    for (uint64_t i = 0; i <= steps; ++i) {
      const std::string digits =
          absl::StrCat(first <= last ? first + i : first - i);
      names.push_back(absl::StrCat(
          std::string(width - std::min(width, digits.size()), '0'), digits));
    }
    return names;
  }

  static bool ParseDigits(absl::string_view text, uint64_t* value) {
    return std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
           absl::SimpleAtoi(text, value);
  }

  absl::StatusOr<Names> Product(Names heads, Names tails) {
    if (heads.size() * tails.size() > kMaxNames) return TooMany();
    if (heads.size() == 1 && heads[0].empty()) return tails;
    size_t head_bytes = 0;
    size_t tail_bytes = 0;
    for (const std::string& head : heads) head_bytes += head.size() + 32;
    for (const std::string& tail : tails) tail_bytes += tail.size();
    BALLAST_RETURN_IF_ERROR(
        Spend(head_bytes * tails.size() + tail_bytes * heads.size()));
    if (tails.size() == 1) {
      for (std::string& head : heads) head += tails[0];
      return heads;
    }
    Names names;
    names.reserve(heads.size() * tails.size());
    for (const std::string& head : heads) {
      for (const std::string& tail : tails) names.push_back(head + tail);
    }
    return names;
  }

  absl::Status Spend(size_t bytes) {
    work_ += bytes;
    return work_ > kMaxWork ? TooMany() : absl::OkStatus();
  }

  absl::Status TooMany() const {
    return Fault(
        absl::StrCat("expands to too many names; wanted at most ", kMaxNames));
  }

  const absl::string_view pattern_;
  absl::string_view rest_;
  size_t work_ = 0;
};

std::string EscapeGlob(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (absl::StrContains("*?[]\\", absl::string_view(&c, 1))) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

absl::StatusOr<Names> ExpandGlob(absl::string_view directory,
                                 const std::string& name) {
  const std::string pattern = ResolvePath(EscapeGlob(directory), name);
  glob_t found = {};
  // GLOB_ERR reports an unreadable directory instead of silently leaving out
  // its files. Sorted below, because glob sorts by locale.
  const int result =
      glob(pattern.c_str(), GLOB_ERR | GLOB_NOSORT, nullptr, &found);
  const int error = errno;
  Names files;
  for (size_t i = 0; result == 0 && i < found.gl_pathc; ++i) {
    if (!IsDirectory(found.gl_pathv[i])) files.push_back(found.gl_pathv[i]);
  }
  globfree(&found);
  if (result != 0 && result != GLOB_NOMATCH) {
    return absl::ErrnoToStatus(
        result == GLOB_NOSPACE ? ENOMEM : error,
        absl::StrCat("cannot list what \"", pattern, "\" matches"));
  }
  if (files.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no file matches \"", pattern, "\""));
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<Names> ExpandName(absl::string_view directory,
                                 const std::string& name) {
  if (name.find_first_of("*?[") != std::string::npos) {
    return ExpandGlob(directory, name);
  }
  const std::string path = ResolvePath(directory, name);
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return absl::NotFoundError(absl::StrCat(
          "found no file \"", path,
          "\"; wanted one there: sources[].path begins in the configuration's "
          "folder"));
    }
    return absl::ErrnoToStatus(errno, absl::StrCat("the file \"", path, "\""));
  }
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", path, "\" is a directory; wanted files"));
  }
  return Names{path};
}

}  // namespace

absl::StatusOr<StoreUrl> ParseStoreUrl(absl::string_view url) {
  const auto refused = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("\"", url, "\" ", why));
  };
  const size_t end = url.find("://");
  if (end == absl::string_view::npos) return refused("is not SCHEME://…");
  StoreUrl parsed;
  parsed.scheme = std::string(url.substr(0, end));
  if (parsed.scheme != "s3" && parsed.scheme != "gs" &&
      parsed.scheme != "abfs" && parsed.scheme != "file" &&
      parsed.scheme != "hf" && parsed.scheme != "https" &&
      parsed.scheme != "http") {
    return refused(
        "has an unknown scheme; wanted s3://, gs://, abfs://, hf://, https:// "
        "or file://");
  }
  const absl::string_view rest = url.substr(end + 3);
  const bool is_file = parsed.scheme == "file";
  if (is_file && !absl::StartsWith(rest, "/")) {
    return refused("is not absolute; wanted file:///FOLDER/NAME");
  }
  const absl::string_view path = is_file ? rest.substr(1) : rest;
  std::vector<absl::string_view> names = absl::StrSplit(path, '/');
  // A slash at the end names a folder.
  if (names.size() > 1 && names.back().empty()) names.pop_back();
  for (const absl::string_view name : names) {
    if (!name.empty() && name != "." && name != "..") continue;
    return refused("holds an empty name, \".\" or \"..\"");
  }
  if (parsed.scheme == "abfs" && absl::StrContains(names[0], '@')) {
    return absl::InvalidArgumentError(
        "abfs://… holds an account or a password; wanted abfs://CONTAINER/KEY, "
        "the account as storage.azure.account, and keys where "
        "storage.azure.credentials says");
  }
  const bool is_web = parsed.scheme == "https" || parsed.scheme == "http";
  if (is_web && absl::StrContains(names[0], '@')) {
    return absl::InvalidArgumentError(absl::StrCat(
        parsed.scheme,
        "://… holds a user name or password, and none is sent to web servers"));
  }
  if (parsed.scheme == "hf" && (names.size() < 3 || names[0] != "datasets")) {
    return refused(
        "names no data set of the hub; wanted hf://datasets/OWNER/NAME/FILE, "
        "or hf://datasets/OWNER/NAME@REVISION/FILE");
  }
  if (!is_file && absl::StrContains(names[0], '@')) {
    return absl::InvalidArgumentError(absl::StrCat(
        parsed.scheme,
        "://… holds a user name or password; keys belong where "
        "storage.",
        parsed.scheme == "gs" ? "gcs" : "s3", ".credentials says"));
  }
  parsed.path = std::string(rest);
  if (absl::EndsWith(parsed.path, "/") && parsed.path.size() > 1) {
    parsed.path.pop_back();
  }
  return parsed;
}

bool IsStoreUrl(absl::string_view path) {
  const size_t end = path.find("://");
  return end != absl::string_view::npos && end > 0 &&
         std::all_of(path.begin(), path.begin() + end, absl::ascii_isalnum);
}

std::string ResolvePath(absl::string_view directory, absl::string_view path) {
  if (path.empty() || path == ".") {
    return directory.empty() ? "." : std::string(directory);
  }
  if (absl::StartsWith(path, "/") || IsStoreUrl(path) || directory.empty() ||
      directory == ".") {
    return std::string(path);
  }
  return absl::StrCat(directory, absl::EndsWith(directory, "/") ? "" : "/",
                      path);
}

absl::StatusOr<std::vector<std::string>> ExpandBraces(
    absl::string_view pattern) {
  return BraceExpander(pattern).Expand();
}

absl::StatusOr<std::vector<std::string>> ExpandPath(absl::string_view directory,
                                                    absl::string_view pattern) {
  BALLAST_ASSIGN_OR_RETURN(const Names names, ExpandBraces(pattern));
  Names files;
  absl::flat_hash_set<std::string> seen;
  for (const std::string& name : names) {
    BALLAST_ASSIGN_OR_RETURN(const Names matches, ExpandName(directory, name));
    for (const std::string& file : matches) {
      if (seen.insert(file).second) files.push_back(file);
    }
  }
  return files;
}

}  // namespace ballast
