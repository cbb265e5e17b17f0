#ifndef BALLAST_SERVER_COMMAND_DRAW_DATASET_CONFIG_H_
#define BALLAST_SERVER_COMMAND_DRAW_DATASET_CONFIG_H_

#include <string>

namespace ballast {

// The format of a drawn dataset's shards.
enum class DatasetFormat { kWebDataset, kParquet, kEnergon, kJsonl };

// "tar", "parquet" or "jsonl".
const char* ShardExtension(DatasetFormat format);

// The configuration file written beside a drawn dataset: a server on a loopback
// port for a job of dp 4, four samples a rank in each micro-batch.
std::string DatasetConfigText(DatasetFormat format);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_DATASET_CONFIG_H_
