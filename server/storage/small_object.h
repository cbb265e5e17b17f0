#ifndef BALLAST_SERVER_STORAGE_SMALL_OBJECT_H_
#define BALLAST_SERVER_STORAGE_SMALL_OBJECT_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "server/storage/storage.h"

namespace ballast {

// The bytes of the object `url`, all of one version, at most `most`. Blocks on
// the store. Errors, naming the object: INVALID_ARGUMENT (more bytes);
// UNAVAILABLE (it changed meanwhile); as Storage::Open and File::ReadAt.
absl::StatusOr<std::string> ReadSmallObject(Storage* storage,
                                            const std::string& url,
                                            size_t most);

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_SMALL_OBJECT_H_
