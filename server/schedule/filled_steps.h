#ifndef BALLAST_SERVER_SCHEDULE_FILLED_STEPS_H_
#define BALLAST_SERVER_SCHEDULE_FILLED_STEPS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "server/config/model_images.h"
#include "server/corpus/index/source_index.h"
#include "server/schedule/sample_order.h"
#include "server/schedule/step_positions.h"
#include "server/schedule/token_steps.h"

namespace ballast {

// Whether batch.tokens or batch.packs give the steps of train their samples.
bool AreFilled(const v1::Config& config);

// Name of the starts of a job's steps, of those with the same rules and data.
std::string StartsName(const v1::Fingerprint& fingerprint);

// Where the samples of train lie in order, and how long they are.
struct FilledSources {
  // The order with changes of the mixture.
  std::function<SampleOrder(const std::vector<SampleOrder::Change>&)> order;
  std::vector<uint32_t> numbers;  // in `indexes`, of the order's sources
  std::vector<const SourceIndex*> indexes;  // not owned
  ModelImages images;
};

// The steps of train that samples fill.
struct FilledSteps {
  std::shared_ptr<const TokenSteps> steps;
  std::vector<StepPositions::Skip> skips;
  std::vector<SampleOrder::Change> mixtures;
  // Samples of the largest step of the first epoch.
  uint64_t largest = 0;
};

// Finds the steps of an epoch, and those before the last change of the mixture,
// from the lengths in the indexes, on one thread a core. `known` are starts
// that were found before under StartsName. `config` is one with AreFilled.
// Errors: as MeasureSample and SourceIndex::sample.
absl::StatusOr<FilledSteps> FindFilledSteps(const v1::Config& config,
                                            const FilledSources& sources,
                                            std::vector<uint64_t> known);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_FILLED_STEPS_H_
