// A whole job through the C interface, on the host: real servers, and every
// rank a thread that runs C code.

#include "trainer_shim/c_api.h"

#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "server/config/config_loader.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"
#include "tests/trainer_shim/c_api/c_batch.h"
#include "tests/trainer_shim/c_api/c_rank.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kRanks = 2;

// `language`: its sizes beside dp.
LoadedConfig MakeConfig(const std::string& language = "") {
  const std::string directory = ::testing::TempDir() + "/c_api";
  std::filesystem::create_directories(directory);
  EXPECT_TRUE(WriteFormulaDataset(directory + "/docs.tar", 40).ok());
  auto config = ParseConfig(
      "sources: [{name: docs, format: webdataset, path: docs.tar}]\n"
      "model: {profile: qwen2_5_vl, max_pixels: 200704}\n"
      "batch: {global: 16, micro: 8}\n"
      "topology: {modules: {vision: {dp: 2}, language: {dp: 2" +
          language +
          "}}}\n"
          "serve: {threads: 2, memory: 64MiB, listen: ['unix:/replaced']}\n",
      "test.yaml", directory);
  EXPECT_TRUE(config.ok()) << config.status();
  return *std::move(config);
}

class CApiTest : public ::testing::Test {
 protected:
  CApiTest() { Start(MakeConfig()); }

  void Start(const LoadedConfig& config) {
    auto cluster = TestCluster::Start(config, 1);
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    addresses_.clear();
    cluster_ = *std::move(cluster);
    for (const std::string& address : cluster_->addresses()) {
      addresses_.push_back(address.c_str());
    }
    connection_.struct_size = sizeof(connection_);
    connection_.num_servers = addresses_.size();
    connection_.servers = addresses_.data();
  }

  ballast_shim_options Options(int module, uint32_t rank) {
    ballast_shim_options options = {};
    options.struct_size = sizeof(options);
    options.module = module;
    options.dp_rank = rank;
    options.connection = &connection_;
    options.steps = 2;
    return options;
  }

  // Runs every rank of every module; `change` may change its options.
  using Change = std::function<void(ballast_shim_options*)>;
  std::map<std::tuple<uint64_t, uint32_t, int, uint32_t>, CBatch> RunAll(
      const Change& change) {
    struct Context {
      Mutex mutex;
      std::map<std::tuple<uint64_t, uint32_t, int, uint32_t>, CBatch> batches
          ABSL_GUARDED_BY(mutex);
    } context;
    std::vector<std::thread> threads;
    for (int module : {BALLAST_MODULE_VISION, BALLAST_MODULE_LANGUAGE}) {
      ballast_communicator* ends[kRanks] = {};
      EXPECT_EQ(
          ballast_communicator_in_process(BALLAST_BACKEND_HOST, kRanks, ends),
          BALLAST_OK);
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        ballast_shim_options options = Options(module, rank);
        options.communicator = ends[rank];
        change(&options);
        threads.emplace_back([options, &context] {
          const int end = c_rank_run(
              &options, nullptr,
              [](void* into, const ballast_batch* batch) {
                auto* context = static_cast<Context*>(into);
                CBatch read = ReadBatch(batch, nullptr, nullptr);
                MutexLock lock(&context->mutex);
                const std::tuple<uint64_t, uint32_t, int, uint32_t> key = {
                    read.info.step, read.info.micro_batch, read.info.module,
                    read.info.dp_rank};
                context->batches[key] = std::move(read);
              },
              &context);
          EXPECT_EQ(end, BALLAST_OUT_OF_RANGE) << ballast_last_error();
        });
      }
    }
    for (std::thread& thread : threads) thread.join();
    MutexLock lock(&context.mutex);
    return std::move(context.batches);
  }

  // A shim of one rank, over a group whose others do nothing.
  ballast_shim* MakeShim(ballast_shim_options options) {
    ballast_communicator* ends[kRanks] = {};
    EXPECT_EQ(
        ballast_communicator_in_process(BALLAST_BACKEND_HOST, kRanks, ends),
        BALLAST_OK);
    options.communicator = ends[options.dp_rank];
    others_.push_back(ends[1 - options.dp_rank]);
    ballast_shim* shim = nullptr;
    EXPECT_EQ(ballast_shim_create(&options, &shim), BALLAST_OK)
        << ballast_last_error();
    return shim;
  }
  ~CApiTest() override {
    for (ballast_communicator* end : others_) ballast_communicator_destroy(end);
  }

  std::unique_ptr<TestCluster> cluster_;
  std::vector<const char*> addresses_;
  ballast_connection connection_ = {};
  std::vector<ballast_communicator*> others_;
};

TEST_F(CApiTest, BatchesAreThoseOfTheCppInterface) {
  const auto got = RunAll([](ballast_shim_options*) {});
  const auto want = cluster_->RunRanks(0, 2);
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_EQ(got.size(), want->size());
  for (const auto& [key, batch] : *want) ExpectSameBatch(got.at(key), batch);
}

TEST_F(CApiTest, Bfloat16PixelsAreTheOthersRounded) {
  const auto got = RunAll([](ballast_shim_options* options) {
    options->pixel_type = BALLAST_BFLOAT16;
  });
  const auto want = cluster_->RunRanks(0, 2);
  ASSERT_TRUE(want.ok()) << want.status();
  for (const auto& [key, batch] : *want) {
    PackedBatch rounded = batch;
    for (const float value : batch.pixel_values) {
      rounded.pixel_values_bf16.push_back(ToBfloat16(value));
    }
    rounded.pixel_values.clear();
    ExpectSameBatch(got.at(key), rounded);
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
  EXPECT_EQ(ballast_shim_report_timing(shim, 0, 0, 12.5), BALLAST_OK)
      << ballast_last_error();
  EXPECT_EQ(ballast_shim_report_timing(shim, 0, 0, NAN),
            BALLAST_INVALID_ARGUMENT);
  ballast_shim_destroy(shim);
}

// The two ranks take turns: what is asked of one while the other's Next waits.
TEST_F(CApiTest, ACheckpointGoesOnWhereTheRunStopped) {
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

  // Of a checkpoint and a step only one can be.
  ballast_shim_options options = Options(BALLAST_MODULE_LANGUAGE, 0);
  options.checkpoint = checkpoints[0].data();
  options.checkpoint_size = checkpoints[0].size();
  options.start_step = 1;
  ballast_shim* shim = nullptr;
  EXPECT_EQ(ballast_shim_create(&options, &shim), BALLAST_INVALID_ARGUMENT);
  EXPECT_THAT(ballast_last_error(), HasSubstr("options.start_step is 1"));
}

TEST_F(CApiTest, AnotherFingerprintIsRefused) {
  ballast_shim_options options = Options(BALLAST_MODULE_LANGUAGE, 0);
  options.fingerprint = "00000000000000000000000000000000";
  ballast_shim* shim = nullptr;
  EXPECT_EQ(ballast_shim_create(&options, &shim), BALLAST_FAILED_PRECONDITION);
  EXPECT_THAT(ballast_last_error(), HasSubstr(options.fingerprint));
}

TEST_F(CApiTest, WithoutACommunicatorTheMessageSaysSo) {
  ballast_shim_options options = Options(BALLAST_MODULE_LANGUAGE, 1);
  ballast_shim* shim = nullptr;
  EXPECT_EQ(ballast_shim_create(&options, &shim), BALLAST_INVALID_ARGUMENT);
  EXPECT_THAT(ballast_last_error(), HasSubstr("needs a communicator"));
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
TEST_F(CApiTest, StructsAreFilledAsFarAsBothSidesKnowThem) {
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

      // A batch is gone once Next has failed.
      ASSERT_EQ(ballast_shim_cancel(shim), BALLAST_OK);
      const ballast_batch* none = nullptr;
      EXPECT_EQ(ballast_shim_next(shim, nullptr, &none), BALLAST_CANCELLED);
      info.struct_size = sizeof(info);
      EXPECT_EQ(ballast_batch_get_info(batch, &info), BALLAST_INVALID_ARGUMENT);
      EXPECT_THAT(ballast_last_error(), HasSubstr("the batch is gone"));
      ballast_shim_destroy(shim);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Two stages, two context ranks, and two tensor ranks of which one pulls: every
// stage has its tensors, and what context ranks have makes up the whole.
TEST_F(CApiTest, PlacesInTheLayout) {
  Start(MakeConfig(", pp: 2, cp: 2, tp: 2"));
  // Of language rank 0 and 1 at (stage, context rank), and what their tensor
  // peers received.
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
      std::vector<int64_t> part;
      Take(first, "input_ids", &part);
      ids.insert(part.begin(), part.end());
      for (uint32_t pp = 0; pp < 2; ++pp) {
        EXPECT_EQ(got.at({dp, pp, cp, 0}).digest,
                  got.at({dp, pp, cp, 1}).digest);
      }
    }
    EXPECT_EQ(ids.size(), got.at({dp, 0, 0, 0}).totals[0].padded_tokens);
  }
}

TEST_F(CApiTest, APlaceThatTheLayoutLacksIsNamed) {
  ballast_shim_options options = Options(BALLAST_MODULE_LANGUAGE, 0);
  options.pp_rank = 3;
  ballast_shim* shim = nullptr;
  EXPECT_EQ(ballast_shim_create(&options, &shim), BALLAST_INVALID_ARGUMENT);
  EXPECT_THAT(ballast_last_error(), HasSubstr("3"));
}

}  // namespace
}  // namespace ballast
