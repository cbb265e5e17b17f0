#include "server/command/init/energon_parts.h"

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "proto/config.pb.h"
#include "proto/schedule/split.h"
#include "server/command/init/first_samples.h"
#include "server/corpus/energon/energon_folder.h"
#include "server/storage/storage.h"

namespace ballast {
namespace {

constexpr v1::Split kSplits[] = {v1::SPLIT_TRAIN, v1::SPLIT_VALID,
                                 v1::SPLIT_TEST};

v1::Source SourceOf(const std::string& folder, v1::Split split, bool crude) {
  v1::Source source;
  source.set_format(v1::Source::FORMAT_ENERGON);
  source.set_path(folder);
  source.set_split(split);
  if (crude) {
    source.mutable_energon()->set_crude(v1::Source::Energon::CRUDE_WEBDATASET);
  }
  return source;
}

SeenFiles FilesOf(const EnergonFolder& folder, v1::Split split,
                  DataTree* tree) {
  SeenFiles files;
  files.format = SeenFiles::Format::kEnergon;
  files.split = std::string(SplitName(split));
  files.files = folder.shards.size();
  std::vector<std::string> paths;
  for (const EnergonShard& shard : folder.shards) {
    files.samples += shard.count;
    paths.push_back(folder.ShardPath(shard));
    const auto stamp = Storage::OfProcess().Stamp(paths.back());
    if (stamp.ok()) files.bytes += stamp->size;
  }
  // Sizes alone: which parts of a sample are its text, dataset.yaml says, and
  // how many samples there are, .info does.
  SeenFiles sizes = files;
  LookAtFirstSamples(paths, {}, tree, &sizes);
  files.looked_at = sizes.looked_at;
  files.with_images = sizes.with_images;
  files.most_images = sizes.most_images > 0 ? sizes.most_images : 1;
  files.most_text = sizes.most_text;
  return files;
}

}  // namespace

absl::StatusOr<std::vector<SeenFiles>> LookAtEnergon(const std::string& folder,
                                                     const std::string& path,
                                                     DataTree* tree) {
  std::vector<SeenFiles> found;
  absl::Status none;
  for (const v1::Split split : kSplits) {
    bool crude = false;
    absl::StatusOr<EnergonFolder> opened =
        OpenEnergonFolder(SourceOf(folder, split, crude), "");
    if (absl::IsUnimplemented(opened.status())) {
      crude = true;
      const absl::StatusOr<EnergonFolder> again =
          OpenEnergonFolder(SourceOf(folder, split, crude), "");
      if (again.ok()) opened = *again;
    }
    if (absl::IsNotFound(opened.status())) {
      // A folder need not have every part.
      none.Update(opened.status());
      continue;
    }
    if (!opened.ok()) return opened.status();
    SeenFiles files = FilesOf(*opened, split, tree);
    files.path = path;
    files.crude = crude;
    found.push_back(std::move(files));
  }
  if (found.empty()) return none;
  return found;
}

}  // namespace ballast
