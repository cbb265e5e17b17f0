// A whole job through the C interface, on the host: real servers, and a thread
// for every rank that runs C code.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/edit_batch.h"
#include "tests/trainer_shim/c_api/c_api_fixture.h"
#include "trainer_shim/c_api/c_api.h"
#include "trainer_shim/c_api/call.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(CApiTest, BatchesEqualThoseOfTheCppInterface) {
  const auto got = RunAll([](ballast_shim_options*) {});
  const auto want = cluster_->RunRanks(0, 2);
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_EQ(got.size(), want->size());
  for (const auto& [key, batch] : *want) ExpectSameBatch(got.at(key), batch);
}

TEST_F(CApiTest, Bfloat16PixelsAreFloat32PixelsRounded) {
  const auto got = RunAll([](ballast_shim_options* options) {
    options->pixel_type = BALLAST_BFLOAT16;
  });
  const auto want = cluster_->RunRanks(0, 2);
  ASSERT_TRUE(want.ok()) << want.status();
  for (const auto& [key, batch] : *want) {
    ExpectSameBatch(got.at(key), RoundedPixels(batch));
  }
}

TEST_F(CApiTest, TensorsHaveTheShapesOfTheHeader) {
  for (const auto& [key, batch] : RunAll([](ballast_shim_options*) {})) {
    const int64_t n = batch.info.num_samples;
    EXPECT_EQ(batch.info.num_micro_batches, 2);
    if (batch.info.module == BALLAST_MODULE_LANGUAGE) {
      EXPECT_EQ(batch.tensors.size(), 8);
      const int64_t tokens = batch.totals[0].padded_tokens;
      const ballast_tensor& ids = batch.tensors.at("input_ids").tensor;
      EXPECT_EQ(ids.ndim, 2);
      EXPECT_THAT(ids.shape, ElementsAre(1, tokens, 0, 0));
      EXPECT_EQ(ids.device_type, BALLAST_DEVICE_CPU);
      EXPECT_THAT(batch.tensors.at("position_ids").tensor.shape,
                  ElementsAre(3, 1, tokens, 0));
      EXPECT_THAT(batch.tensors.at("cu_seqlens").tensor.shape,
                  ElementsAre(n + 1, 0, 0, 0));
      EXPECT_GT(batch.info.max_seqlen, 0);
    } else {
      EXPECT_EQ(batch.tensors.size(), 5);
      const int64_t images = batch.totals[0].images + batch.info.dummy_image;
      EXPECT_THAT(batch.tensors.at("image_grid_thw").tensor.shape,
                  ElementsAre(images, 3, 0, 0));
      EXPECT_THAT(batch.tensors.at("pixel_values").tensor.shape,
                  ElementsAre(batch.totals[0].patches +
                                  (batch.info.dummy_image ? 4 : 0),
                              1176, 0, 0));
    }
  }
}

TEST_F(CApiTest, PaddedBatchesHaveARowForEachSample) {
  Start(MakeConfig("",
                   "balance: {equal_count: true}\n"
                   "packing: {mode: padded, row_length: 4096}\n"));
  for (const auto& [key, batch] : RunAll([](ballast_shim_options*) {})) {
    if (batch.info.module != BALLAST_MODULE_LANGUAGE) continue;
    EXPECT_EQ(batch.info.num_samples, 4);  // of 8, on 2 ranks
    EXPECT_EQ(batch.info.max_seqlen, 4096);
    EXPECT_EQ(batch.totals[0].padded_tokens, 4 * 4096);
    EXPECT_EQ(batch.tensors.size(), 5);
    for (const char* name : {"input_ids", "labels", "loss_mask"}) {
      EXPECT_THAT(batch.tensors.at(name).tensor.shape,
                  ElementsAre(4, 4096, 0, 0));
    }
    EXPECT_THAT(batch.tensors.at("position_ids").tensor.shape,
                ElementsAre(3, 4, 4096, 0));
    const CTensor& mask = batch.tensors.at("attention_mask");
    EXPECT_EQ(mask.tensor.dtype, BALLAST_BOOL);
    EXPECT_THAT(mask.tensor.shape, ElementsAre(4, 4096, 0, 0));
    EXPECT_EQ(std::count(mask.bytes.begin(), mask.bytes.end(), '\1'),
              batch.totals[0].tokens);
  }
}

TEST_F(CApiTest, JobAndScheduleAreJson) {
  ballast_bytes* job = nullptr;
  ASSERT_EQ(ballast_query_job(&connection_, &job), BALLAST_OK)
      << ballast_last_error();
  const std::string text(ballast_bytes_data(job), ballast_bytes_size(job));
  EXPECT_EQ(std::strlen(ballast_bytes_data(job)), ballast_bytes_size(job));
  ballast_bytes_free(job);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["global_batch"], 16);
  EXPECT_EQ(json["modules"].size(), 2);
  EXPECT_EQ(json["delivery"], "exchange");
  EXPECT_EQ(json["model"]["patch"], 14);

  ballast_shim_options options = Options(BALLAST_MODULE_LANGUAGE, 0);
  ballast_shim* shim = MakeShim(options);
  ASSERT_NE(shim, nullptr);
  ASSERT_EQ(ballast_shim_job(shim, &job), BALLAST_OK);
  EXPECT_EQ(text, ballast_bytes_data(job));
  ballast_bytes_free(job);
  ballast_bytes* schedule = nullptr;
  EXPECT_EQ(ballast_shim_schedule(shim, &schedule),
            BALLAST_FAILED_PRECONDITION);
  EXPECT_THAT(ballast_last_error(), HasSubstr("ballast_shim_next before"));
  // Before the first batch; 2 steps of 16 samples in micro-batches of 8.
  uint32_t number = 0;
  EXPECT_EQ(ballast_shim_num_micro_batches(shim, 1, &number), BALLAST_OK)
      << ballast_last_error();
  EXPECT_EQ(number, 2);
  EXPECT_EQ(ballast_shim_num_micro_batches(shim, 2, &number),
            BALLAST_OUT_OF_RANGE);
  EXPECT_THAT(ballast_last_error(), HasSubstr("2 steps that were asked for"));
  EXPECT_EQ(ballast_shim_num_micro_batches(shim, 0, nullptr),
            BALLAST_INVALID_ARGUMENT);
  EXPECT_EQ(ballast_shim_report_timing(shim, 0, 0, 12.5), BALLAST_OK)
      << ballast_last_error();
  EXPECT_EQ(ballast_shim_report_timing(shim, 0, 0, NAN),
            BALLAST_INVALID_ARGUMENT);
  ballast_shim_destroy(shim);
}

// The two ranks take turns: one is asked while the other's Next waits.
TEST_F(CApiTest, ACheckpointResumesWhereTheRunStopped) {
  ballast_communicator* ends[kRanks] = {};
  ASSERT_EQ(ballast_communicator_in_process(BALLAST_BACKEND_HOST, kRanks, ends),
            BALLAST_OK);
  std::vector<std::thread> threads;
  std::string checkpoints[kRanks];
  std::string schedules[kRanks];
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      ballast_shim_options options = Options(BALLAST_MODULE_LANGUAGE, rank);
      options.communicator = ends[rank];
      ballast_shim* shim = nullptr;
      ASSERT_EQ(ballast_shim_create(&options, &shim), BALLAST_OK);
      const ballast_batch* batch = nullptr;
      // Step 0, and the first of two micro-batches of step 1.
      for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(ballast_shim_next(shim, nullptr, &batch), BALLAST_OK);
        ballast_batch_release(batch);
      }
      ballast_bytes* bytes = nullptr;
      ASSERT_EQ(ballast_shim_checkpoint(shim, BALLAST_AFTER_LAST_STEP, &bytes),
                BALLAST_OK);
      checkpoints[rank].assign(ballast_bytes_data(bytes),
                               ballast_bytes_size(bytes));
      ballast_bytes_free(bytes);
      ASSERT_EQ(ballast_shim_schedule(shim, &bytes), BALLAST_OK);
      schedules[rank] = ballast_bytes_data(bytes);
      ballast_bytes_free(bytes);
      ASSERT_EQ(ballast_shim_next(shim, nullptr, &batch), BALLAST_OK);
      ballast_batch_release(batch);
      ballast_shim_destroy(shim);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(checkpoints[0], checkpoints[1]);
  EXPECT_EQ(schedules[0], schedules[1]);
  EXPECT_EQ(nlohmann::json::parse(schedules[0])["step"], 1);

  ballast_checkpoint_info info = {};
  info.struct_size = sizeof(info);
  ASSERT_EQ(ballast_checkpoint_read(checkpoints[0].data(),
                                    checkpoints[0].size(), &info),
            BALLAST_OK);
  EXPECT_EQ(info.next_step, 1) << "step 1 is not done";
  EXPECT_EQ(std::strlen(info.fingerprint), 32);
  EXPECT_EQ(std::strlen(info.data_fingerprint), 32);

  const auto got = RunAll([&](ballast_shim_options* options) {
    options->checkpoint = checkpoints[0].data();
    options->checkpoint_size = checkpoints[0].size();
    options->steps = 1;
  });
  const auto want = cluster_->RunRanks(1, 1);
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_EQ(got.size(), want->size());
  for (const auto& [key, batch] : *want) ExpectSameBatch(got.at(key), batch);

  // A checkpoint and a first step exclude each other.
  ballast_shim_options options = Options(BALLAST_MODULE_LANGUAGE, 0);
  options.checkpoint = checkpoints[0].data();
  options.checkpoint_size = checkpoints[0].size();
  options.start_step = 1;
  ballast_shim* shim = nullptr;
  EXPECT_EQ(ballast_shim_create(&options, &shim), BALLAST_INVALID_ARGUMENT);
  EXPECT_THAT(ballast_last_error(), HasSubstr("options.start_step is 1"));

  // A checkpoint belongs to one split.
  EXPECT_EQ(info.split, BALLAST_SPLIT_TRAIN);
  options = Options(BALLAST_MODULE_LANGUAGE, 0);
  options.checkpoint = checkpoints[0].data();
  options.checkpoint_size = checkpoints[0].size();
  options.split = BALLAST_SPLIT_VALID;
  EXPECT_EQ(ballast_shim_create(&options, &shim), BALLAST_INVALID_ARGUMENT);
  EXPECT_THAT(ballast_last_error(),
              HasSubstr("options.checkpoint is of split train"));
}

TEST_F(CApiTest, ASplitThatTheJobLacksIsRefused) {
  ballast_shim_options options = Options(BALLAST_MODULE_LANGUAGE, 0);
  options.split = BALLAST_SPLIT_TEST;
  ballast_shim* shim = nullptr;
  EXPECT_EQ(ballast_shim_create(&options, &shim), BALLAST_INVALID_ARGUMENT);
  EXPECT_THAT(ballast_last_error(), HasSubstr("the job has train"));
  options = Options(BALLAST_MODULE_LANGUAGE, 0);
  options.split = 3;
  EXPECT_EQ(ballast_shim_create(&options, &shim), BALLAST_INVALID_ARGUMENT);
  EXPECT_THAT(ballast_last_error(), HasSubstr("options.split is 3"));
}

TEST_F(CApiTest, ADifferentFingerprintIsRefused) {
  ballast_shim_options options = Options(BALLAST_MODULE_LANGUAGE, 0);
  options.fingerprint = "00000000000000000000000000000000";
  ballast_shim* shim = nullptr;
  EXPECT_EQ(ballast_shim_create(&options, &shim), BALLAST_FAILED_PRECONDITION);
  EXPECT_THAT(ballast_last_error(), HasSubstr(options.fingerprint));
}

// Over NCCL, an end that is destroyed without an abort waits for the others.
TEST_F(CApiTest, AnEndThatNoShimTakesIsAborted) {
  class End : public Communicator {
   public:
    End(bool on_device, int* aborts) : on_device_(on_device), aborts_(aborts) {}
    uint32_t rank() const override { return 1; }
    uint32_t size() const override { return 2; }
    bool on_device() const override { return on_device_; }
    absl::Status AllToAllV(absl::Span<const SendSlice>,
                           absl::Span<const ReceiveSlice>,
                           StreamHandle) override {
      return absl::OkStatus();
    }
    absl::Status Check() override { return absl::OkStatus(); }
    void Abort(const absl::Status& reason) override {
      EXPECT_EQ(reason.message(), "rank 1 left the exchange");
      ++*aborts_;
    }

   private:
    const bool on_device_;
    int* const aborts_;
  };
  int aborts = 0;
  const auto end = [&aborts](bool on_device) {
    return new ballast_communicator{std::make_unique<End>(on_device, &aborts)};
  };
  ballast_communicator_destroy(end(false));
  EXPECT_EQ(aborts, 1);
  ballast_shim_options options = Options(BALLAST_MODULE_LANGUAGE, 0);
  options.split = 3;
  options.communicator = end(false);
  ballast_shim* shim = nullptr;
  EXPECT_EQ(ballast_shim_create(&options, &shim), BALLAST_INVALID_ARGUMENT);
  EXPECT_EQ(aborts, 2);
  options.split = BALLAST_SPLIT_TRAIN;
  options.communicator = end(false);
  options.tensor_communicator = end(true);
  EXPECT_EQ(ballast_shim_create(&options, &shim), BALLAST_INVALID_ARGUMENT);
  EXPECT_THAT(ballast_last_error(), HasSubstr("options.tensor_communicator"));
  EXPECT_EQ(aborts, 4);
}

TEST_F(CApiTest, WithoutCommunicatorsServersDeliverDirect) {
  const auto got = RunAll([](ballast_shim_options* options) {
    ballast_communicator_destroy(options->communicator);
    options->communicator = nullptr;
  });
  const auto want = cluster_->RunRanks(0, 2);
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_EQ(got.size(), want->size());
  for (const auto& [key, batch] : *want) {
    PackedBatch unmoved = batch;
    unmoved.bytes_read = got.at(key).info.bytes_read;
    unmoved.bytes_moved = 0;
    ExpectSameBatch(got.at(key), unmoved);
  }
}

TEST_F(CApiTest, MisuseChangesNothingAndErrorsAreFinal) {
  ballast_shim* shim = MakeShim(Options(BALLAST_MODULE_VISION, 0));
  ASSERT_NE(shim, nullptr);
  const ballast_batch* batch = nullptr;
  int no_stream = 0;
  EXPECT_EQ(ballast_shim_next(shim, &no_stream, &batch),
            BALLAST_INVALID_ARGUMENT);
  EXPECT_EQ(ballast_shim_next(shim, nullptr, nullptr),
            BALLAST_INVALID_ARGUMENT);
  // Rank 1 never comes: Next ends when it is cancelled, from another thread.
  std::thread cancel(
      [shim] { EXPECT_EQ(ballast_shim_cancel(shim), BALLAST_OK); });
  EXPECT_EQ(ballast_shim_next(shim, nullptr, &batch), BALLAST_CANCELLED);
  cancel.join();
  EXPECT_EQ(ballast_shim_next(shim, nullptr, &batch), BALLAST_CANCELLED);
  EXPECT_THAT(ballast_last_error(), HasSubstr("vision rank 0"));
  EXPECT_EQ(batch, nullptr);
  ballast_shim_destroy(shim);
}

// Structs of callers with an older and with a newer header.
TEST_F(CApiTest, StructsAreFilledUpToTheFieldsThatBothSidesKnow) {
  struct Newer {
    ballast_batch_info info;
    uint64_t later;
  };
  std::thread threads[kRanks];
  ballast_communicator* ends[kRanks] = {};
  ASSERT_EQ(ballast_communicator_in_process(BALLAST_BACKEND_HOST, kRanks, ends),
            BALLAST_OK);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    threads[rank] = std::thread([&, rank] {
      ballast_shim_options options = Options(BALLAST_MODULE_LANGUAGE, rank);
      options.communicator = ends[rank];
      ballast_shim* shim = nullptr;
      ASSERT_EQ(ballast_shim_create(&options, &shim), BALLAST_OK);
      const ballast_batch* batch = nullptr;
      ASSERT_EQ(ballast_shim_next(shim, nullptr, &batch), BALLAST_OK);

      ballast_batch_info info;
      std::memset(&info, 0x77, sizeof(info));
      info.struct_size = offsetof(ballast_batch_info, num_samples);
      ASSERT_EQ(ballast_batch_get_info(batch, &info), BALLAST_OK);
      EXPECT_EQ(info.struct_size, offsetof(ballast_batch_info, num_samples));
      EXPECT_EQ(info.num_tensors, 8);
      EXPECT_EQ(info.num_samples, 0x77777777) << "beyond the caller's struct";

      Newer newer;
      std::memset(&newer, 0x77, sizeof(newer));
      newer.info.struct_size = sizeof(newer);
      ASSERT_EQ(ballast_batch_get_info(batch, &newer.info), BALLAST_OK);
      EXPECT_EQ(newer.info.struct_size, sizeof(newer));
      EXPECT_EQ(newer.info.num_tensors, 8);
      EXPECT_EQ(newer.later, 0) << "not known to this library";

      info.struct_size = 3;
      EXPECT_EQ(ballast_batch_get_info(batch, &info), BALLAST_INVALID_ARGUMENT);
      ballast_tensor tensor = {};
      tensor.struct_size = sizeof(tensor);
      EXPECT_EQ(ballast_batch_get_tensor(batch, 8, &tensor),
                BALLAST_INVALID_ARGUMENT);
      EXPECT_THAT(ballast_last_error(), HasSubstr("tensor number 8"));
      EXPECT_EQ(ballast_batch_get_tensor(batch, 0, nullptr),
                BALLAST_INVALID_ARGUMENT);
      ballast_totals totals = {};
      totals.struct_size = sizeof(totals);
      EXPECT_EQ(ballast_batch_get_totals(batch, 3, &totals),
                BALLAST_INVALID_ARGUMENT);

      // A batch stays when Next fails.
      ASSERT_EQ(ballast_shim_cancel(shim), BALLAST_OK);
      const ballast_batch* none = nullptr;
      EXPECT_EQ(ballast_shim_next(shim, nullptr, &none), BALLAST_CANCELLED);
      info.struct_size = sizeof(info);
      EXPECT_EQ(ballast_batch_get_info(batch, &info), BALLAST_OK);
      ballast_shim_destroy(shim);
      ballast_batch_release(batch);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Batches held through the C interface: unchanged by further calls, counted,
// named when there are too many, and valid after their shim.

using ::testing::AllOf;

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
