#ifndef BALLAST_SERVER_CORPUS_ENERGON_ENERGON_WRITER_H_
#define BALLAST_SERVER_CORPUS_ENERGON_ENERGON_WRITER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace ballast {

struct EnergonMeta {
  std::string folder;
  // The tar files below the folder, in the order of their ids.
  std::vector<std::string> shards;
  // The shards of each part of the split.
  std::vector<std::pair<std::string, std::vector<std::string>>> split;
  // The text of dataset.yaml.
  std::string dataset;
};

// The text of a dataset.yaml for samples that a cooker makes.
inline constexpr char kCrudeDataset[] =
    "__module__: megatron.energon\n__class__: CrudeWebdataset\n";

// Writes .nv-meta as `energon prepare` would, so that Energon reads the folder:
// dataset.yaml, split.yaml, .info.json, index.sqlite and index.uuid, and TAR.idx
// beside each tar. Replaces older files. Equal tars give equal bytes. Blocks on the disk. Errors:
// INVALID_ARGUMENT (two samples with one key, which Energon refuses); DATA_LOSS
// (a damaged tar); as the file system.
absl::Status WriteEnergonMeta(const EnergonMeta& meta);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_ENERGON_ENERGON_WRITER_H_
