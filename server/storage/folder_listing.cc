#include "server/storage/folder_listing.h"

#include <utility>

#include "absl/container/flat_hash_set.h"

namespace ballast {

std::vector<StoreEntry> FolderListing(const std::string& folder,
                                      std::vector<StoreEntry> all) {
  const std::string prefix = folder + "/";
  std::vector<StoreEntry> direct;
  absl::flat_hash_set<std::string> folders;
  for (StoreEntry& entry : all) {
    if (entry.path.compare(0, prefix.size(), prefix) != 0) continue;
    const size_t slash = entry.path.find('/', prefix.size());
    if (slash == std::string::npos) {
      direct.push_back(std::move(entry));
    } else if (std::string name = entry.path.substr(0, slash);
               folders.insert(name).second) {
      direct.push_back({.path = std::move(name), .is_folder = true});
    }
  }
  return direct;
}

}  // namespace ballast
