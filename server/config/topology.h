#ifndef BALLAST_SERVER_CONFIG_TOPOLOGY_H_
#define BALLAST_SERVER_CONFIG_TOPOLOGY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/module.h"

namespace ballast {

// Consecutive steps of one size.
struct BatchSize {
  uint64_t first_step = 0;
  uint64_t samples_before = 0;  // of all steps before, as trained on
  uint32_t samples = 0;         // of each step
  bool is_change = false;       // from batch.changes
};

// The sizes of the steps of train, which batch.global, batch.rampup and
// batch.changes give, in ascending order of step; the first begins at step 0.
// Pure. Sizes by samples equal, to the step, megatron-core's
// RampupBatchsizeNumMicroBatchesCalculator and
// StepBatchsizeNumMicroBatchesCalculator. `batch` is within the
// rules of its fields. Errors: INVALID_ARGUMENT without a key, of the last
// entry of `changes` if the others are right (a point that is not after the
// previous entry's), or of `rampup` if it has no increment or too many.
absl::StatusOr<std::vector<BatchSize>> BatchSizes(const v1::Batch& batch);

// The last of `sizes` that begins at `step` or before.
const BatchSize& SizeAt(const std::vector<BatchSize>& sizes, uint64_t step);

// Samples of all steps before `step`.
uint64_t SamplesBefore(const std::vector<BatchSize>& sizes, uint64_t step);

// Parses "0-3,6" into {0, 1, 2, 3, 6}, and the empty text into {}. The result
// is ascending, whatever the order of the parts. Blanks around parts are
// ignored. Errors: INVALID_ARGUMENT (not a number, a descending range, a
// repeated rank, a rank of 2^20 or more).
absl::StatusOr<std::vector<uint32_t>> ParseRankList(absl::string_view text);

// The inverse: {0, 1, 2, 3, 6} -> "0-3,6". `ranks` is ascending.
std::string FormatRankList(absl::Span<const uint32_t> ranks);

// Queries about the modules of a loaded configuration: their ranks and their
// costs. All are pure.

// The grid: the LCM of the modules' dp sizes, which is the number of equal
// groups of a micro-batch.
uint32_t Grid(const v1::Topology& topology);

// The configured modules, in the order of ModuleKinds().
std::vector<v1::Module> Modules(const v1::Config& config);

// The language model's sizes; null if it is not configured.
const v1::Topology::Module* FindLanguage(const v1::Config& config);

// The module's coefficients: the field of `cost` that has its name. `module` is
// in ModuleKinds().
const v1::Balance::Coefficients& GetCoefficients(const v1::Balance::Cost& cost,
                                                 v1::Module module);
v1::Balance::Coefficients* MutableCoefficients(v1::Balance::Cost* cost,
                                               v1::Module module);

// The module's data-parallel size; 0 if the module is not configured.
uint32_t DpSize(const v1::Config& config, v1::Module module);

// The module's number of pipeline stages; 0 if the module is not configured.
uint32_t PpSize(const v1::Config& config, v1::Module module);

// The multiple to which this module pads a sample's tokens when it packs them:
// packing.align, or for `auto`
//   (2*cp if cp > 1 else 1) * (tp if sequence_parallel else 1)
// where language's packing.dynamic_cp takes the place of cp. It is 1 for a
// module that is not configured.
uint32_t PackAlign(const v1::Config& config, v1::Module module);

// packing.dynamic_cp where it shares packs among ranks, else 1.
uint32_t DynamicCp(const v1::Config& config);

// The most tokens of a pack with packing.mode `scheduled`: max_tokens_per_rank
// times the ranks that share it, language's cp or packing.dynamic_cp.
uint64_t PackCapacity(const v1::Config& config,
                      const v1::Topology::Module& language);

// The servers that read for the module's ranks, by topology.servers. Ranks that
// no server names belong to server 0; a loaded configuration has no such ranks.
// Errors: INVALID_ARGUMENT (text that is not a list of ranks; a rank outside
// the module).
absl::StatusOr<ServerOfRank> FindServerOfRank(const v1::Config& config,
                                              v1::Module module);

// The index in topology.servers of the server whose address, compared as text,
// is one of `listen`; a single server matches whatever its address. Errors:
// NOT_FOUND (no address matches), INVALID_ARGUMENT (two do).
absl::StatusOr<size_t> FindServer(const v1::Config& config,
                                  const std::vector<std::string>& listen);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_TOPOLOGY_H_
