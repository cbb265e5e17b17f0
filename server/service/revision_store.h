#ifndef BALLAST_SERVER_SERVICE_REVISION_STORE_H_
#define BALLAST_SERVER_SERVICE_REVISION_STORE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/revision_service.pb.h"

namespace ballast {

// Interface to the disk that keeps a server's RevisionBook. All functions block
// on it. Thread-compatible.
class RevisionStore {
 public:
  virtual ~RevisionStore() = default;

  // Reads the book. One that is missing is an empty book with a new random
  // name, which is not written yet; it is complete if `alone`, where no other
  // server could know more. `job` is the fingerprint of the job's own
  // configuration, `server` this server's name. Errors: FAILED_PRECONDITION
  // (the book is of another job or server), DATA_LOSS (it is damaged); as
  // ReadSmallFile.
  virtual absl::StatusOr<v1::RevisionBook> Read(const std::string& job,
                                                const std::string& server,
                                                bool alone) const = 0;

  // Replaces the book, so that a crash leaves the one before or this one. After
  // an error it may be either.
  virtual absl::Status Write(const v1::RevisionBook& book) = 0;
};

// The file serve.revisions: a book as protobuf's text.
std::unique_ptr<RevisionStore> MakeFileRevisionStore(std::string path);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_REVISION_STORE_H_
