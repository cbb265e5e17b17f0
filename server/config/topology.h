#ifndef BALLAST_SERVER_CONFIG_TOPOLOGY_H_
#define BALLAST_SERVER_CONFIG_TOPOLOGY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

// Questions about the ranks of a loaded configuration. All pure.

// The LCM of the modules' dp sizes: the number of equal groups that a
// micro-batch falls into.
uint32_t Grid(const v1::Topology& topology);

// The configured modules: vision before language.
std::vector<v1::Module> Modules(const v1::Config& config);

// The module's data-parallel size; 0 when the module is not configured.
uint32_t DpSize(const v1::Config& config, v1::Module module);

// The module's pipeline stages; 0 when the module is not configured.
uint32_t PpSize(const v1::Config& config, v1::Module module);

// What a sample's tokens are padded to a multiple of when this module packs
// them: packing.align, or for `auto`
//   (2*cp if cp > 1 else 1) * (tp if sequence_parallel else 1)
// 1 for a module that is not configured.
uint32_t PackAlign(const v1::Config& config, v1::Module module);

// The index in topology.servers of the server whose address is one of `listen`,
// compared as text; of the only server, whatever its address, where there is
// but one. Errors: NOT_FOUND (no address matches), INVALID_ARGUMENT (two do).
absl::StatusOr<size_t> FindServer(const v1::Config& config,
                                  const std::vector<std::string>& listen);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_TOPOLOGY_H_
