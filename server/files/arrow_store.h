#ifndef BALLAST_SERVER_FILES_ARROW_STORE_H_
#define BALLAST_SERVER_FILES_ARROW_STORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/files/object_store.h"

namespace ballast {

// The store of `scheme` (s3, gs, abfs) through Arrow's file systems, with the
// settings of a loaded configuration; gs and abfs take the credentials that
// Google's and Microsoft's tools find. Reads the credentials. `directory` of
// ca and credentials is already resolved. Errors: UNIMPLEMENTED (this build has
// no Arrow); FAILED_PRECONDITION (credentials that are missing or unreadable,
// without their values).
//
// The first call for s3 starts the AWS library, which is stopped at exit.
absl::StatusOr<std::unique_ptr<ObjectStore>> MakeArrowStore(
    const std::string& scheme, const v1::Storage& storage);

// Stops the AWS library if a store has started it; no object of S3 can be read
// afterwards. To be called at the end of main, while all objects of the
// libraries still exist. Waits for requests in flight. (An exit handler calls
// it, too, for programs that do not.)
void StopStores();

}  // namespace ballast

#endif  // BALLAST_SERVER_FILES_ARROW_STORE_H_
