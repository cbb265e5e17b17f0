#ifndef BALLAST_SERVER_COMMAND_DRAW_DATASET_H_
#define BALLAST_SERVER_COMMAND_DRAW_DATASET_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "server/command/draw/draw_sample.h"
#include "server/sample/medium_kind.h"

namespace ballast {

// The format of a generated dataset's shards.
enum class DatasetFormat { kWebDataset, kParquet, kEnergon, kJsonl };

// "tar", "parquet" or "jsonl".
const char* ShardExtension(DatasetFormat format);

// The configuration file written next to a generated dataset: a server on a
// loopback port for a job of dp 4, four samples a rank in each micro-batch.
std::string DatasetConfigText(DatasetFormat format,
                              Preset preset = Preset::kMixed);

struct DatasetOptions {
  std::string directory;
  uint64_t samples = 0;
  uint64_t seed = 1;
  Preset preset = Preset::kMixed;
  DatasetFormat format = DatasetFormat::kWebDataset;
  // Samples in a shard; the last shard may hold fewer.
  uint32_t shard_samples = 256;
  // Called on the caller's thread with the number of samples in the shards
  // written so far. May be empty.
  std::function<void(uint64_t samples)> progress;
};

struct DatasetReport {
  MediaCounts media;
  uint64_t shards = 0;
  // Total bytes of media and conversations.
  uint64_t bytes = 0;
  // True if ballast.yaml was written; an existing one is kept.
  bool wrote_config = false;
};

// Generates a dataset. As a WebDataset: `directory`/docs-000000.tar and
// following, whose members are KEY.json and KEY.jpg (.png, .webp), or
// KEY.0.jpg, KEY.1.jpg, … if a sample has several images; keys are consecutive
// numbers from 000000. As Parquet: docs-000000.parquet and following, in row
// groups of 32 samples (ParquetWriter says how). As Energon: tars as of a
// WebDataset, and .nv-meta, with the last of several shards for `val`. As JSON
// lines: docs-000000.jsonl and following, and images/. Also writes
// ballast.yaml, a configuration that serves them to a job of dp 4. Creates the
// directory if needed. Equal options give equal bytes.
//
// A shard appears under its name when it is complete, and replaces an older
// one. Blocks on the disk; generates with one thread a core. Errors:
// INVALID_ARGUMENT (no samples, over a million shards); FAILED_PRECONDITION
// (the directory contains shards that this dataset would not overwrite: both
// would be read as one); UNIMPLEMENTED (this build has no Parquet; audio in
// Parquet); as the file system.
absl::StatusOr<DatasetReport> WriteDataset(const DatasetOptions& options);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_DATASET_H_
