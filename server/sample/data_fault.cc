#include "server/sample/data_fault.h"

#include <simdjson.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace ballast {
namespace {

constexpr size_t kMaxPath = 4096;
constexpr size_t kMaxPrinted = 200;

absl::Status Refused(absl::string_view path, absl::string_view reason) {
  return DataFaultError(
      absl::StrCat("path \"", Printable(path), "\" ", reason));
}

}  // namespace

absl::Status CheckPathText(absl::string_view path) {
  if (path.empty()) return Refused(path, "is empty");
  if (path.size() > kMaxPath) return Refused(path, "is over 4096 bytes long");
  if (std::any_of(path.begin(), path.end(), absl::ascii_iscntrl)) {
    return Refused(path, "holds a control character");
  }
  if (!simdjson::validate_utf8(path.data(), path.size())) {
    return Refused(path, "is not UTF-8");
  }
  return absl::OkStatus();
}

absl::Status CheckDataPath(absl::string_view path) {
  if (absl::StartsWith(path, "/")) return Refused(path, "is absolute");
  const absl::Status text = CheckPathText(path);
  if (!text.ok()) return text;
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part == "..") return Refused(path, "holds \"..\"");
  }
  return absl::OkStatus();
}

std::string Printable(absl::string_view bytes) {
  const bool cut = bytes.size() > kMaxPrinted;
  if (cut) {
    bytes = bytes.substr(0, kMaxPrinted);
    // Does not cut inside a character, or the rest would not be UTF-8.
    while (!bytes.empty() && (bytes.back() & 0xC0) == 0x80) {
      bytes.remove_suffix(1);
    }
    if (!bytes.empty() && (bytes.back() & 0x80) != 0) bytes.remove_suffix(1);
  }
  const bool utf8 = simdjson::validate_utf8(bytes.data(), bytes.size());
  return absl::StrCat(
      utf8 ? absl::Utf8SafeCEscape(bytes) : absl::CEscape(bytes),
      cut ? "..." : "");
}

}  // namespace ballast
