#include "server/schedule/split_sources.h"

#include "server/schedule/permutation.h"

namespace ballast {

std::vector<v1::Split> GetSplits(const v1::Config& config) {
  std::vector<v1::Split> splits;
  for (const v1::Split split :
       {v1::SPLIT_TRAIN, v1::SPLIT_VALID, v1::SPLIT_TEST}) {
    if (!SourcesOfSplit(config, split).empty()) splits.push_back(split);
  }
  return splits;
}

std::vector<uint32_t> SourcesOfSplit(const v1::Config& config,
                                     v1::Split split) {
  std::vector<uint32_t> numbers;
  for (int i = 0; i < config.sources_size(); ++i) {
    if (config.sources(i).split() == split) numbers.push_back(i);
  }
  return numbers;
}

const v1::Batch::Sizes* OwnSizes(const v1::Batch& batch, v1::Split split) {
  if (split == v1::SPLIT_VALID && batch.has_valid()) return &batch.valid();
  if (split == v1::SPLIT_TEST && batch.has_test()) return &batch.test();
  return nullptr;
}

v1::Config ConfigOfSplit(v1::Config config, v1::Split split) {
  v1::Batch& batch = *config.mutable_batch();
  if (const v1::Batch::Sizes* sizes = OwnSizes(batch, split)) {
    batch.set_global(sizes->global());
    batch.set_micro(sizes->micro());
  }
  return config;
}

uint64_t SeedOfSplit(uint64_t seed, v1::Split split) {
  if (split == v1::SPLIT_TRAIN) return seed;
  // Mix64 is a bijection, and seeds of different splits differ in a byte that
  // only huge seeds use.
  return Mix64(seed ^ (static_cast<uint64_t>(split) << 56));
}

}  // namespace ballast
