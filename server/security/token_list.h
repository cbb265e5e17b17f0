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

// The bearer tokens of security.tokens_file. Holds their digests, and in full
// only the one that the server itself shows to the job's other servers. No
// message has a token in it. Immutable; thread-safe.
class TokenList {
 public:
  enum class Verdict {
    kUnknown,   // no such token
    kOtherJob,  // for other jobs than this
    kAllowed,
  };

  // `text` of the file `file`, for a server of job `job`, which may be empty
  // (security.job). A line: the token, then the jobs that it is for; none: any.
  // A token may have several lines. Errors: INVALID_ARGUMENT "FILE:LINE: ..."
  // (not a token, not the name of a job), or where no token is for this job.
  static absl::StatusOr<TokenList> Parse(absl::string_view text,
                                         absl::string_view file,
                                         absl::string_view job);

  // Takes the same time whatever the tokens of the list are.
  Verdict Check(absl::string_view token) const;

  // The first one that is for this job.
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
