#ifndef BALLAST_SERVER_CORPUS_ENERGON_ENERGON_FOLDER_H_
#define BALLAST_SERVER_CORPUS_ENERGON_ENERGON_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/corpus/energon/energon_fields.h"

namespace ballast {

// A tar file of an Energon folder.
struct EnergonShard {
  std::string name;    // below the folder
  uint64_t id = 0;     // of the tar file in index.sqlite
  uint64_t count = 0;  // samples, as `energon prepare` counted them
};

// The part of an Energon folder that a source reads, from its .nv-meta.
struct EnergonFolder {
  std::string folder;
  // Those of the split, in its order, without those excluded.
  std::vector<EnergonShard> shards;
  // Samples to leave out: "SHARD/KEY".
  absl::flat_hash_set<std::string> excluded;
  EnergonFields fields;

  std::string ShardPath(const EnergonShard& shard) const;
  // index.sqlite; older folders have none.
  std::string IndexPath() const;
  // Everything that decides which samples the files have, apart from the files.
  std::string Key() const;
};

// Reads .nv-meta of `source`, whose path is a folder and starts at `directory`.
// Blocks on the disk. Errors, naming the file: NOT_FOUND (no .nv-meta, with
// what makes one; a split that is not there or has no shards); INVALID_ARGUMENT
// (a file that is not as Energon writes it, a shard that is listed twice or has
// no count, a compressed one); UNIMPLEMENTED (ParseDatasetYaml).
absl::StatusOr<EnergonFolder> OpenEnergonFolder(const v1::Source& source,
                                                absl::string_view directory);

// Its parts, for files in memory. Pure; as above.
struct EnergonTexts {
  std::string info;     // .info.json or .info.yaml
  std::string split;    // split.yaml
  std::string dataset;  // dataset.yaml
};
absl::StatusOr<EnergonFolder> ParseEnergonFolder(const EnergonTexts& texts,
                                                 absl::string_view split_part,
                                                 bool crude);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_ENERGON_ENERGON_FOLDER_H_
