#include "server/corpus/shared_files.h"

#include <sys/stat.h>

#include <cstddef>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/config/path_pattern.h"
#include "server/corpus/source_files.h"

namespace ballast {
namespace {

// A file's position in the lists: numbers of the source and of its file.
struct Place {
  int source = 0;
  size_t file = 0;
};

}  // namespace

absl::StatusOr<std::vector<SharedFile>> FindSharedFiles(
    const v1::Config& config, absl::string_view directory) {
  std::vector<SharedFile> shared;
  std::vector<std::vector<SourceFile>> listed(config.sources_size());
  absl::flat_hash_map<std::pair<dev_t, ino_t>, Place> first;
  absl::flat_hash_map<std::string, Place> objects;
  for (int s = 0; s < config.sources_size(); ++s) {
    const v1::Source& source = config.sources(s);
    if (source.format() == v1::Source::FORMAT_MOCK) continue;
    auto files = ListSourceFiles(source, directory);
    if (!files.ok()) {
      return Annotate(files.status(), absl::StrCat("source ", source.name()));
    }
    listed[s] = *std::move(files);
    for (size_t i = 0; i < listed[s].size(); ++i) {
      const std::string& path = listed[s][i].path;
      Place place;
      if (IsStoreUrl(path)) {
        const auto [found, is_new] = objects.emplace(path, Place{s, i});
        if (is_new) continue;
        place = found->second;
      } else {
        struct stat stat;
        if (::stat(path.c_str(), &stat) != 0) continue;
        const auto [found, is_new] = first.emplace(
            std::make_pair(stat.st_dev, stat.st_ino), Place{s, i});
        if (is_new) continue;
        place = found->second;
      }
      shared.push_back({source.name(), listed[s][i].name,
                        config.sources(place.source).name(),
                        listed[place.source][place.file].name});
    }
  }
  return shared;
}

}  // namespace ballast
