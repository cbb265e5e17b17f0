#include "server/security/token_list.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/channel_security.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr size_t kMaxEntries = 4096;

// Digests have one length, so comparing them does not reveal the tokens'
// lengths either.
std::array<uint8_t, 32> ComputeDigest(absl::string_view token) {
  std::array<uint8_t, 32> digest;
  SHA256(reinterpret_cast<const uint8_t*>(token.data()), token.size(),
         digest.data());
  return digest;
}

bool IsJobName(absl::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
  });
}

}  // namespace

absl::StatusOr<TokenList> TokenList::Parse(absl::string_view text,
                                           absl::string_view file,
                                           absl::string_view job) {
  TokenList list;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::string place = absl::StrCat(file, ":", ++number);
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0].front() == '#') continue;
    BALLAST_RETURN_IF_ERROR(Annotate(CheckToken(words[0]), place));
    bool allowed = words.size() == 1;
    for (size_t i = 1; i < words.size(); ++i) {
      if (!IsJobName(words[i])) {
        // The text is not shown: it might be a token.
        return absl::InvalidArgumentError(
            absl::StrCat(place, ": word ", i + 1,
                         " is not the name of a job: letters, digits, _, . "
                         "and - alone"));
      }
      allowed = allowed || words[i] == job;
    }
    if (list.entries_.size() == kMaxEntries) {
      return absl::InvalidArgumentError(absl::StrCat(
          place, ": more than ", kMaxEntries, " tokens, which is the most"));
    }
    list.entries_.push_back({ComputeDigest(words[0]), allowed});
    if (allowed && list.own_.empty()) list.own_ = std::string(words[0]);
  }
  if (!list.own_.empty()) return list;
  return absl::InvalidArgumentError(absl::StrCat(
      file, ": no token is for ",
      job.empty() ? std::string("any job, and security.job is not set")
                  : absl::StrCat("security.job, ", job),
      ": no client could be admitted"));
}

TokenList::Verdict TokenList::Check(absl::string_view token) const {
  const std::array<uint8_t, 32> digest = ComputeDigest(token);
  bool known = false;
  bool allowed = false;
  for (const Entry& entry : entries_) {
    const bool same =
        CRYPTO_memcmp(digest.data(), entry.digest.data(), digest.size()) == 0;
    known |= same;
    allowed |= same & entry.allowed;
  }
  if (allowed) return Verdict::kAllowed;
  return known ? Verdict::kOtherJob : Verdict::kUnknown;
}

}  // namespace ballast
