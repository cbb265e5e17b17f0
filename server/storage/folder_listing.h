#ifndef BALLAST_SERVER_STORAGE_FOLDER_LISTING_H_
#define BALLAST_SERVER_STORAGE_FOLDER_LISTING_H_

#include <string>
#include <vector>

#include "server/storage/object_store.h"

namespace ballast {

// The objects and folders directly in `folder`, of `all` objects below it: for
// stores that list no folders. Pure.
std::vector<StoreEntry> FolderListing(const std::string& folder,
                                      std::vector<StoreEntry> all);

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_FOLDER_LISTING_H_
