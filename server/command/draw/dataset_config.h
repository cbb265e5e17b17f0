#ifndef BALLAST_SERVER_COMMAND_DRAW_DATASET_CONFIG_H_
#define BALLAST_SERVER_COMMAND_DRAW_DATASET_CONFIG_H_

#include <string>

namespace ballast {

// The configuration file written beside a drawn dataset: a server on a loopback
// port for a job of dp 4, four samples a rank in each micro-batch.
std::string DatasetConfigText();

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_DATASET_CONFIG_H_
