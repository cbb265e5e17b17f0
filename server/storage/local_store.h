#ifndef BALLAST_SERVER_STORAGE_LOCAL_STORE_H_
#define BALLAST_SERVER_STORAGE_LOCAL_STORE_H_

#include <memory>

#include "server/storage/object_store.h"

namespace ballast {

// Files of a mounted file system as a store: paths file:///FOLDER/NAME. For
// slow network file systems that shall go through storage.cache. (Paths without
// a scheme are opened directly, server/corpus/file.h.)
std::unique_ptr<ObjectStore> MakeLocalStore();

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_LOCAL_STORE_H_
