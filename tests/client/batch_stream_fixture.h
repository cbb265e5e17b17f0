#ifndef BALLAST_TESTS_CLIENT_BATCH_STREAM_FIXTURE_H_
#define BALLAST_TESTS_CLIENT_BATCH_STREAM_FIXTURE_H_

#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/batch_stream.h"
#include "tests/fakes/fake_batch_fetcher.h"
#include "tests/fakes/formula_block.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {

inline constexpr uint32_t kMicroBatches = 2;
inline constexpr size_t kBlockBytes = 200;

// Block `n` of the stream, counted from step 0; each byte behind its header is
// `n`.
inline FakeBlock NumberedBlock(uint32_t n, size_t bytes = kBlockBytes) {
  const uint64_t step = n / kMicroBatches;
  const uint32_t micro_batch = n % kMicroBatches;
  return {step, micro_batch,
          TinyBlock(step, micro_batch, kMicroBatches, bytes, n)};
}

// A block of a step that has `micro_batches`.
inline FakeBlock BlockOf(uint64_t step, uint32_t micro_batch,
                         uint32_t micro_batches) {
  return {step, micro_batch,
          TinyBlock(step, micro_batch, micro_batches, kBlockBytes)};
}

inline BatchStream::Options SomeOptions(uint64_t steps, ManualClock* clock) {
  BatchStream::Options options;
  options.request.role.set_module(v1::MODULE_VISION);
  options.request.steps = steps;
  options.clock = clock;
  options.failover.jitter = 0;
  // Only tests of hangs have a guard that sleeps.
  options.failover.silent_after = absl::InfiniteDuration();
  options.failover.slow_after = absl::InfiniteDuration();
  return options;
}

class BatchStreamTest : public ::testing::Test {
 protected:
  std::unique_ptr<BatchStream> Start(const BatchStream::Options& options) {
    auto stream = BatchStream::Create(server_.connect(), options);
    EXPECT_TRUE(stream.ok()) << stream.status();
    return *std::move(stream);
  }

  // Takes blocks `first` to `last` and releases them.
  void ExpectBlocks(BatchStream* stream, uint32_t first, uint32_t last) {
    for (uint32_t n = first; n <= last; ++n) {
      const auto block = stream->Next();
      ASSERT_TRUE(block.ok()) << "block " << n << ": " << block.status();
      EXPECT_EQ((*block)->step(), n / kMicroBatches);
      EXPECT_EQ((*block)->micro_batch(), n % kMicroBatches);
      EXPECT_EQ((*block)->bytes().back(), n);
    }
  }

  void ExpectError(BatchStream* stream, absl::StatusCode code,
                   const std::string& message) {
    for (int i = 0; i < 2; ++i) {  // final
      const auto block = stream->Next();
      EXPECT_EQ(block.status().code(), code) << block.status();
      EXPECT_THAT(std::string(block.status().message()),
                  ::testing::HasSubstr(message));
    }
  }

  ManualClock clock_;
  FakeBatchServer server_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_CLIENT_BATCH_STREAM_FIXTURE_H_
