#include "server/command/init/energon_parts.h"

#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "proto/config.pb.h"
#include "server/command/init/first_samples.h"
#include "server/corpus/energon/energon_folder.h"

namespace ballast {
namespace {

struct Part {
  v1::Split split;
  const char* name;  // in the configuration
};
constexpr Part kParts[] = {{v1::SPLIT_TRAIN, "train"},
                           {v1::SPLIT_VALID, "valid"},
                           {v1::SPLIT_TEST, "test"}};

v1::Source SourceOf(const std::string& folder, const Part& part, bool crude) {
  v1::Source source;
  source.set_format(v1::Source::FORMAT_ENERGON);
  source.set_path(folder);
  source.set_split(part.split);
  if (crude) {
    source.mutable_energon()->set_crude(v1::Source::Energon::CRUDE_WEBDATASET);
  }
  return source;
}

SeenFiles FilesOf(const EnergonFolder& folder, const Part& part) {
  SeenFiles files;
  files.format = SeenFiles::Format::kEnergon;
  files.split = part.name;
  files.files = folder.shards.size();
  std::vector<std::string> paths;
  for (const EnergonShard& shard : folder.shards) {
    files.samples += shard.count;
    paths.push_back(folder.ShardPath(shard));
    std::error_code error;
    const uint64_t bytes = std::filesystem::file_size(paths.back(), error);
    if (!error) files.bytes += bytes;
  }
  // Sizes alone: which parts of a sample are its text, dataset.yaml says.
  SeenFiles sizes = files;
  sizes.format = SeenFiles::Format::kWebDataset;
  LookAtFirstSamples(paths, {}, &sizes);
  files.looked_at = sizes.looked_at;
  files.with_images = sizes.with_images;
  files.most_images = sizes.most_images > 0 ? sizes.most_images : 1;
  files.most_text = sizes.most_text;
  return files;
}

}  // namespace

absl::StatusOr<std::vector<SeenFiles>> LookAtEnergon(const std::string& folder,
                                                     const std::string& path) {
  std::vector<SeenFiles> found;
  absl::Status first;
  for (const Part& part : kParts) {
    bool crude = false;
    absl::StatusOr<EnergonFolder> opened =
        OpenEnergonFolder(SourceOf(folder, part, crude), "");
    if (absl::IsUnimplemented(opened.status())) {
      crude = true;
      const absl::StatusOr<EnergonFolder> again =
          OpenEnergonFolder(SourceOf(folder, part, crude), "");
      if (again.ok()) opened = *again;
    }
    if (!opened.ok()) {
      // A folder need not have every part.
      first.Update(opened.status());
      continue;
    }
    if (opened->shards.empty()) continue;
    SeenFiles files = FilesOf(*opened, part);
    files.path = path;
    files.crude = crude;
    found.push_back(std::move(files));
  }
  if (found.empty()) {
    return first.ok() ? absl::FailedPreconditionError(
                            "no part of its split.yaml has shards; run "
                            "`energon prepare` on it again")
                      : first;
  }
  return found;
}

}  // namespace ballast
