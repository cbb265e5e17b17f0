// Batches held through the C interface: unchanged by further calls, counted,
// named when there are too many, and valid after their shim.

#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer_shim/c_api/c_api_fixture.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The contents of the batch's tensors, each with its name.
std::vector<std::string> TensorsOf(const ballast_batch* batch) {
  std::vector<std::string> tensors;
  for (const auto& [name, tensor] :
       ReadBatch(batch, nullptr, nullptr).tensors) {
    tensors.push_back(name + "=" + tensor.bytes);
  }
  return tensors;
}

uint32_t HeldOf(const ballast_shim* shim) {
  uint32_t held = 0;
  EXPECT_EQ(ballast_shim_batches_held(shim, &held), BALLAST_OK);
  return held;
}

class CBatchLifetimeTest : public CApiTest {
 protected:
  // Runs `body` for each language rank in its own thread, as exchanges need.
  void ForEachRank(uint32_t max_batches_held,
                   const std::function<void(ballast_shim*)>& body) {
    ballast_communicator* ends[kRanks] = {};
    ASSERT_EQ(
        ballast_communicator_in_process(BALLAST_BACKEND_HOST, kRanks, ends),
        BALLAST_OK);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      ballast_shim_options options = Options(BALLAST_MODULE_LANGUAGE, rank);
      options.communicator = ends[rank];
      options.max_batches_held = max_batches_held;
      threads.emplace_back([options, &body] {
        ballast_shim* shim = nullptr;
        ASSERT_EQ(ballast_shim_create(&options, &shim), BALLAST_OK)
            << ballast_last_error();
        body(shim);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(CBatchLifetimeTest, HeldBatchesStayUnchangedEvenAfterTheShim) {
  ForEachRank(4, [](ballast_shim* shim) {
    std::vector<const ballast_batch*> held(4);
    std::vector<std::vector<std::string>> want;
    for (const ballast_batch*& batch : held) {
      ASSERT_EQ(ballast_shim_next(shim, nullptr, &batch), BALLAST_OK);
      want.push_back(TensorsOf(batch));
    }
    EXPECT_EQ(HeldOf(shim), 4u);
    for (size_t i = 0; i < held.size(); ++i) {
      EXPECT_EQ(TensorsOf(held[i]), want[i]);
    }
    ballast_batch_release(held[0]);
    EXPECT_EQ(HeldOf(shim), 3u);
    // All steps are done, so that the ranks leave in good order.
    const ballast_batch* none = nullptr;
    EXPECT_EQ(ballast_shim_next(shim, nullptr, &none), BALLAST_OUT_OF_RANGE);
    EXPECT_EQ(none, nullptr);
    ballast_shim_destroy(shim);
    for (size_t i = 1; i < held.size(); ++i) {
      EXPECT_EQ(TensorsOf(held[i]), want[i]);
    }
    std::thread([&] {
      for (size_t i = 1; i < held.size(); ++i) ballast_batch_release(held[i]);
    }).join();
  });
}

TEST_F(CBatchLifetimeTest, TooManyHeldBatchesAreRefusedWithoutEndingTheShim) {
  ForEachRank(1, [](ballast_shim* shim) {
    const ballast_batch* batch = nullptr;
    const ballast_batch* next = nullptr;
    ASSERT_EQ(ballast_shim_next(shim, nullptr, &batch), BALLAST_OK);
    ballast_batch_retain(batch);
    EXPECT_EQ(ballast_shim_next(shim, nullptr, &next),
              BALLAST_RESOURCE_EXHAUSTED);
    EXPECT_THAT(ballast_last_error(),
                AllOf(HasSubstr("step 0 micro-batch 0 (2 references)"),
                      HasSubstr("max_batches_held")));
    EXPECT_EQ(next, nullptr);
    ballast_batch_release(batch);
    EXPECT_EQ(ballast_shim_next(shim, nullptr, &next),
              BALLAST_RESOURCE_EXHAUSTED);
    EXPECT_EQ(ballast_batch_record_stream(batch, nullptr), BALLAST_OK);
    ballast_batch_release(batch);
    for (int i = 1; i < 4; ++i) {
      ASSERT_EQ(ballast_shim_next(shim, nullptr, &next), BALLAST_OK);
      ballast_batch_info info = {};
      info.struct_size = sizeof(info);
      EXPECT_EQ(ballast_batch_get_info(next, &info), BALLAST_OK);
      EXPECT_EQ(info.step, i / 2);
      EXPECT_EQ(info.micro_batch, i % 2);
      ballast_batch_release(next);
    }
    EXPECT_EQ(ballast_shim_next(shim, nullptr, &next), BALLAST_OUT_OF_RANGE);
    ballast_shim_destroy(shim);
  });
}

}  // namespace
}  // namespace ballast
