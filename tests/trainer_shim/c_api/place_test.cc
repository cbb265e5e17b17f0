// Ranks at places of their module's layout, through the C interface.

#include <map>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer_shim/c_api/c_api_fixture.h"
#include "trainer_shim/c_api/c_api.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

// Two stages, two context ranks, and two tensor ranks, one of which pulls:
// every stage has its tensors, and the context ranks' parts make up the whole.
TEST_F(CApiTest, RanksAtAllPlacesReceiveTheirTensors) {
  Start(MakeConfig(", pp: 2, cp: 2, tp: 2"));
  // Batches of language ranks 0 and 1 at each (stage, context rank), and those
  // that their tensor peers received.
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, CBatch> got;
  Mutex mutex;
  std::vector<std::thread> threads;
  for (uint32_t pp = 0; pp < 2; ++pp) {
    for (uint32_t cp = 0; cp < 2; ++cp) {
      ballast_communicator* data[kRanks] = {};
      ASSERT_EQ(
          ballast_communicator_in_process(BALLAST_BACKEND_HOST, kRanks, data),
          BALLAST_OK);
      for (uint32_t dp = 0; dp < kRanks; ++dp) {
        ballast_communicator* tensor[2] = {};
        ASSERT_EQ(
            ballast_communicator_in_process(BALLAST_BACKEND_HOST, 2, tensor),
            BALLAST_OK);
        for (uint32_t tp = 0; tp < 2; ++tp) {
          ballast_shim_options options = Options(BALLAST_MODULE_LANGUAGE, dp);
          options.tp_rank = tp;
          options.pp_rank = pp;
          options.cp_rank = cp;
          options.communicator = tp == 0 ? data[dp] : nullptr;
          options.tensor_communicator = tensor[tp];
          threads.emplace_back([&, options] {
            ballast_shim* shim = nullptr;
            ASSERT_EQ(ballast_shim_create(&options, &shim), BALLAST_OK)
                << ballast_last_error();
            const ballast_batch* batch = nullptr;
            if (options.tp_rank == 0) {
              EXPECT_EQ(ballast_shim_send_to_tensor_peers(shim, nullptr),
                        BALLAST_FAILED_PRECONDITION);
              ASSERT_EQ(ballast_shim_next(shim, nullptr, &batch), BALLAST_OK);
              ASSERT_EQ(ballast_shim_send_to_tensor_peers(shim, nullptr),
                        BALLAST_OK);
            } else {
              EXPECT_EQ(ballast_shim_next(shim, nullptr, &batch),
                        BALLAST_FAILED_PRECONDITION);
              ASSERT_EQ(
                  ballast_shim_receive_from_tensor_peer(shim, nullptr, &batch),
                  BALLAST_OK)
                  << ballast_last_error();
            }
            CBatch read = ReadBatch(batch, nullptr, nullptr);
            ballast_batch_release(batch);
            EXPECT_EQ(read.info.tp_rank, options.tp_rank);
            EXPECT_EQ(read.info.pp_rank, options.pp_rank);
            EXPECT_EQ(read.info.cp_rank, options.cp_rank);
            {
              MutexLock lock(&mutex);
              got[{options.dp_rank, options.pp_rank, options.cp_rank,
                   options.tp_rank}] = std::move(read);
            }
            ballast_shim_destroy(shim);
          });
        }
      }
    }
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(got.size(), 16);
  for (uint32_t dp = 0; dp < kRanks; ++dp) {
    std::multiset<int64_t> ids;
    for (uint32_t cp = 0; cp < 2; ++cp) {
      const CBatch& first = got.at({dp, 0, cp, 0});
      const CBatch& last = got.at({dp, 1, cp, 0});
      EXPECT_EQ(first.tensors.count("input_ids"), 1);
      EXPECT_EQ(first.tensors.count("labels"), 0);
      EXPECT_EQ(last.tensors.count("input_ids"), 0);
      EXPECT_EQ(last.tensors.count("labels"), 1);
      EXPECT_EQ(last.tensors.count("loss_mask"), 1);
      EXPECT_EQ(first.tensors.at("position_ids").bytes,
                last.tensors.at("position_ids").bytes);
      EXPECT_EQ(first.tensors.at("input_ids").tensor.shape[1],
                static_cast<int64_t>(first.totals[0].padded_tokens) / 2);
      const std::string& bytes = first.tensors.at("input_ids").bytes;
      std::vector<int64_t> part(bytes.size() / sizeof(int64_t));
      std::memcpy(part.data(), bytes.data(), bytes.size());
      ids.insert(part.begin(), part.end());
      for (uint32_t pp = 0; pp < 2; ++pp) {
        EXPECT_EQ(got.at({dp, pp, cp, 0}).digest,
                  got.at({dp, pp, cp, 1}).digest);
      }
    }
    EXPECT_EQ(ids.size(), got.at({dp, 0, 0, 0}).totals[0].padded_tokens);
  }
}

// A tensor peer receives its batches and needs no communicator of its own,
// whether it starts before the other ranks pull or after.
TEST_F(CApiTest, ATensorPeerMayStartAfterOthersPull) {
  Start(MakeConfig(", tp: 2"));
  ballast_communicator* data[kRanks] = {};
  ASSERT_EQ(ballast_communicator_in_process(BALLAST_BACKEND_HOST, kRanks, data),
            BALLAST_OK);
  ballast_communicator* tensor[2] = {};
  ASSERT_EQ(ballast_communicator_in_process(BALLAST_BACKEND_HOST, 2, tensor),
            BALLAST_OK);
  ballast_shim* pulling[kRanks] = {};
  std::vector<std::thread> threads;
  for (uint32_t dp = 0; dp < kRanks; ++dp) {
    threads.emplace_back([&, dp] {
      ballast_shim_options options = Options(BALLAST_MODULE_LANGUAGE, dp);
      options.communicator = data[dp];
      options.steps = 1000;  // more than is fetched ahead
      if (dp == 0) options.tensor_communicator = tensor[0];
      ASSERT_EQ(ballast_shim_create(&options, &pulling[dp]), BALLAST_OK)
          << ballast_last_error();
      const ballast_batch* batch = nullptr;
      ASSERT_EQ(ballast_shim_next(pulling[dp], nullptr, &batch), BALLAST_OK);
      ballast_batch_release(batch);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ballast_shim_options options = Options(BALLAST_MODULE_LANGUAGE, 0);
  options.tp_rank = 1;
  options.tensor_communicator = tensor[1];
  ballast_shim* receiving = nullptr;
  EXPECT_EQ(ballast_shim_create(&options, &receiving), BALLAST_OK)
      << ballast_last_error();
  ballast_shim_destroy(receiving);
  for (ballast_shim* shim : pulling) ballast_shim_destroy(shim);
}

TEST_F(CApiTest, APlaceOutsideTheLayoutIsRefusedByName) {
  ballast_shim_options options = Options(BALLAST_MODULE_LANGUAGE, 0);
  options.pp_rank = 3;
  ballast_shim* shim = nullptr;
  EXPECT_EQ(ballast_shim_create(&options, &shim), BALLAST_INVALID_ARGUMENT);
  EXPECT_THAT(ballast_last_error(), HasSubstr("3"));
}

}  // namespace
}  // namespace ballast
