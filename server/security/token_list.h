#ifndef BALLAST_SERVER_SECURITY_TOKEN_LIST_H_
#define BALLAST_SERVER_SECURITY_TOKEN_LIST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// The bearer tokens of security.tokens_file. Holds their digests. Only the
// token that the server itself shows to the job's other servers is held in
// full. No message contains a token. Immutable; thread-safe.
class TokenList {
 public:
  enum class Verdict {
    kUnknown,   // no such token
    kOtherJob,  // only for other jobs
    kAllowed,
  };

  // Parses `text` of the file `file`, for a server of job `job` (security.job;
  // may be empty). A line is a token and the jobs that it is for; if none, it
  // is for any job. A token may have several lines. Errors: INVALID_ARGUMENT,
  // "FILE:LINE: ..." (not a token, not the name of a job) or because no token
  // is for this job.
  static absl::StatusOr<TokenList> Parse(absl::string_view text,
                                         absl::string_view file,
                                         absl::string_view job);

  // Takes the same time for any tokens in the list.
  Verdict Check(absl::string_view token) const;

  // The first token that is for this job.
  const std::string& own() const { return own_; }

 private:
  struct Entry {
    std::array<uint8_t, 32> digest;
    bool allowed;
  };

  TokenList() = default;

  std::vector<Entry> entries_;
  std::string own_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SECURITY_TOKEN_LIST_H_
