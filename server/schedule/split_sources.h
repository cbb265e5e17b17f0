#ifndef BALLAST_SERVER_SCHEDULE_SPLIT_SOURCES_H_
#define BALLAST_SERVER_SCHEDULE_SPLIT_SOURCES_H_

#include <cstdint>
#include <vector>

#include "proto/config.pb.h"
#include "proto/split.pb.h"

namespace ballast {

// The sources, sizes and seed of one split of a configuration. Pure.

// The splits that have sources, in the order of their numbers.
std::vector<v1::Split> GetSplits(const v1::Config& config);

// The numbers of the split's sources in config.sources, ascending.
std::vector<uint32_t> SourcesOfSplit(const v1::Config& config, v1::Split split);

// The split's own sizes of steps (batch.valid, batch.test); null if it uses
// train's. Belongs to `batch`.
const v1::Batch::Sizes* OwnSizes(const v1::Batch& batch, v1::Split split);

// `config` with the split's sizes of steps in batch.global and batch.micro.
v1::Config ConfigOfSplit(v1::Config config, v1::Split split);

// The seed of the split's order, from order.seed. Train uses order.seed itself,
// so that a job's order does not change when it gets another split. Valid and
// test use hashes, which differ from each other for every seed, and from the
// hashes of every other seed.
uint64_t SeedOfSplit(uint64_t seed, v1::Split split);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_SPLIT_SOURCES_H_
