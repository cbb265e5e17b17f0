#ifndef BALLAST_SERVER_SERVICE_REVISION_STORE_H_
#define BALLAST_SERVER_SERVICE_REVISION_STORE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/revision_service.pb.h"

namespace ballast {

// The file serve.revisions: a RevisionBook as protobuf's text. All functions
// block on the disk.

// Reads the book. A file that is missing is an empty book with a new random
// name, which is not written yet; it is complete if `alone`, where no other
// server could know more. `job` is the fingerprint of the job's own
// configuration, `server` this server's name. Errors: FAILED_PRECONDITION (the
// file is of another job or server), DATA_LOSS (it is damaged); as
// ReadSmallFile.
absl::StatusOr<v1::RevisionBook> ReadRevisions(const std::string& path,
                                               const std::string& job,
                                               const std::string& server,
                                               bool alone);

// Replaces the file, so that a crash leaves the one before or this one. After
// an error it may be either.
absl::Status WriteRevisions(const std::string& path,
                            const v1::RevisionBook& book);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_REVISION_STORE_H_
