#ifndef BALLAST_SERVER_CONFIG_CONFIG_DIFFERENCE_H_
#define BALLAST_SERVER_CONFIG_CONFIG_DIFFERENCE_H_

#include <optional>
#include <string>

#include "proto/config.pb.h"

namespace ballast {

// A key whose values differ between two configurations.
struct ConfigDifference {
  std::string key;  // "balance.window", "topology.modules.vision.dp"
  std::string a;    // as written: "2", "exchange"; or "absent", "a section"
  std::string b;
};

// The first key, in the order of proto/config.proto, whose values differ
// between two loaded configurations; nullopt if they are equal. Pure.
std::optional<ConfigDifference> FirstDifference(const v1::Config& a,
                                                const v1::Config& b);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_CONFIG_DIFFERENCE_H_
