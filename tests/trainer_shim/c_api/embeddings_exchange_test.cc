// Embeddings of images and of audio through the C interface between four ranks
// on the host, over threads and over Gloo: every row arrives at its sample's
// placeholder, and every gradient at the row of its image or clip.

#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/config/config_loader.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/test_cluster.h"
#include "tests/server/media/audio/golden_audio.h"
#include "tests/trainer_shim/c_api/embedding_job.h"
#include "trainer_shim/c_api/c_api.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kDp = 4;
constexpr uint64_t kSteps = 2;
// A module, and what a step's schedule counts of its media in a sample: `unit`
// of them are one row.
struct Part {
  int module;
  const char* name;
  const char* counts = "";
  uint64_t unit = 1;
  uint64_t dummy_rows = 1;  // of the test's encoder
};
const Part kVision = {BALLAST_MODULE_VISION, "vision", "patches", 4};
const Part kAudio = {BALLAST_MODULE_AUDIO, "audio", "audio_tokens", 1, 3};
const Part kLanguage = {BALLAST_MODULE_LANGUAGE, "language"};

enum class Kind { kInProcess, kGloo };

// Writes samples with up to two clips, each of its own length, and every third
// with an image. Returns a job over them, for two encoders.
std::string WriteHeardJob(const std::string& folder, const char* balance) {
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(folder + "/" + name, std::ios::binary) << bytes;
  };
  std::string lines;
  for (int i = 0; i < 64; ++i) {
    std::string media, marks, answer;
    for (int k = 0; k < i * 5 % 13; ++k) answer += "That and more. ";
    // The last micro-batch has fewer clips, and fewer images, than ranks.
    for (int k = 0; k < (i < 48 ? i % 3 : i % 16 == 0); ++k) {
      const std::string name = absl::StrCat(i, ".", k, ".wav");
      const int64_t samples = 3'000 + 2'311 * ((7 * i + k) % 11);
      write(name, MakeWav(MakePcm("noise", samples, i), 16000, 1));
      absl::StrAppend(&media, media.empty() ? "" : ",", "\"", name, "\"");
      absl::StrAppend(&marks, "<audio>");
    }
    std::string image;
    if (i < 48 ? i % 3 == 1 : i % 9 == 1) {
      const std::string name = absl::StrCat(i, ".jpg");
      write(name, MakeJpeg({.width = 60u + 20 * (i % 5), .height = 60}));
      image = absl::StrCat("\"image\": \"", name, "\",");
      absl::StrAppend(&marks, "<image>");
    }
    absl::StrAppend(&lines, "{\"audios\": [", media, "], ", image,
                    R"("conversations": [{"from": "human", "value": ")", marks,
                    R"( What?"}, {"from": "gpt", "value": "So. )", answer,
                    R"("}]})", "\n");
  }
  write("talk.jsonl", lines);
  return absl::StrCat(
      "sources: [{name: talk, format: jsonl, path: talk.jsonl, media_root: "
      ".}]\nmodel: {profile: qwen2_5_omni, tokenizer: bytes, max_pixels: 12544,"
      " token_ids: {end_of_text: 300, pad: 300, im_start: 301, im_end: 302,"
      " audio: 303, image: 304, video: 305, vision_start: 306, vision_end:"
      " 307}}\nbatch: {global: 32, micro: 16}\norder: {shuffle: false}\n"
      "topology: {modules: {vision: {dp: ",
      kDp, "}, audio: {dp: ", kDp, "}, language: {dp: ", kDp, "}}}\nbalance: {",
      balance,
      ", cost: {vision: {linear: 1}, audio: {linear: 1}, language: {linear: 3,"
      " quadratic: 0.01}}}\n"
      "serve: {threads: 2, memory: 64MiB, listen: ['unix:/replaced']}\n");
}

class EmbeddingsExchangeTest : public ::testing::Test {
 protected:
  // A job of vision and language.
  void Start(uint32_t images, uint32_t micro, const char* balance,
             const std::function<void(v1::Config*)>& change = nullptr) {
    Start(EmbeddingJobConfig(kDp, images, micro, balance), ::testing::TempDir(),
          {kVision, kLanguage}, change);
  }
  // A job of vision, audio and language.
  void StartHeard(const char* balance) {
    const std::string folder = ::testing::TempDir() + "/heard";
    Start(WriteHeardJob(folder, balance), folder, {kVision, kAudio, kLanguage});
  }
  // `parts`: language last.
  void Start(const std::string& text, const std::string& folder,
             std::vector<Part> parts,
             const std::function<void(v1::Config*)>& change = nullptr) {
    parts_ = std::move(parts);
    auto config = ParseConfig(text, "test.yaml", folder);
    ASSERT_TRUE(config.ok()) << config.status();
    if (change) change(&config->config);
    auto cluster = TestCluster::Start(*std::move(config), 1);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    address_ = cluster_->addresses()[0].c_str();
    connection_.struct_size = sizeof(connection_);
    connection_.num_servers = 1;
    connection_.servers = &address_;
    connection_.exchange_interface = "127.0.0.1";
    here_.resize(parts_.size());
    for (size_t m = 0; m < parts_.size(); ++m) {
      here_[m].resize(kDp);
      ASSERT_EQ(ballast_communicator_in_process(BALLAST_BACKEND_HOST, kDp,
                                                here_[m].data()),
                BALLAST_OK);
    }
  }
  ~EmbeddingsExchangeTest() override {
    for (auto& ends : here_) {
      for (ballast_communicator* end : ends) ballast_communicator_destroy(end);
    }
  }

  ballast_shim* MakeShim(size_t m, uint32_t rank, ballast_communicator* end,
                         uint64_t steps = kSteps) {
    ballast_shim_options options = {};
    options.struct_size = sizeof(options);
    options.connection = &connection_;
    options.module = parts_[m].module;
    options.dp_rank = rank;
    options.communicator = end;
    options.steps = steps;
    ballast_shim* shim = nullptr;
    EXPECT_EQ(ballast_shim_create(&options, &shim), BALLAST_OK)
        << ballast_last_error();
    return shim;
  }

  ballast_communicator* End(Kind kind, size_t m, uint32_t rank) {
    ballast_communicator* end = nullptr;
    if (kind == Kind::kInProcess) {
      std::swap(end, here_[m][rank]);
      return end;
    }
    EXPECT_EQ(ballast_communicator_gloo_meet(&connection_, parts_[m].name, rank,
                                             kDp, 60, &end),
              BALLAST_OK)
        << ballast_last_error();
    return end;
  }

  // An encoder's tokens of each position of the step of `shim`'s last batch.
  static std::map<uint64_t, uint64_t> RowsByPosition(
      const ballast_shim* shim, const Part& part = kVision) {
    ballast_bytes* json = nullptr;
    EXPECT_EQ(ballast_shim_schedule(shim, &json), BALLAST_OK);
    const auto schedule = nlohmann::json::parse(ballast_bytes_data(json));
    ballast_bytes_free(json);
    std::map<uint64_t, uint64_t> rows;
    for (const auto& micro_batch : schedule["micro_batches"]) {
      for (const auto& sample : micro_batch["samples"]) {
        rows[sample["position"]] =
            sample.value(part.counts, uint64_t{0}) / part.unit;
      }
    }
    return rows;
  }

  // The rows of encoder `m` in one micro-batch, both ways.
  void Exchange(size_t m, ballast_shim* shim, const ballast_batch* media,
                const ballast_batch* language) {
    const std::map<uint64_t, uint64_t> rows = RowsByPosition(shim, parts_[m]);
    const auto rows_of = [&](uint64_t position) { return rows.at(position); };
    const auto encoded = SamplesOf(media, rows_of);
    const auto text = SamplesOf(language, rows_of);
    std::deque<std::string> arrays;
    EmbeddingMemory memory;
    memory.upload = [&](const std::string& bytes) -> void* {
      arrays.push_back(bytes);
      return arrays.back().data();
    };
    memory.download = [](const void* data, uint64_t bytes) {
      return std::string(static_cast<const char*>(data), bytes);
    };
    EXPECT_EQ(ExchangeBothWays(shim, media, encoded, text, memory,
                               parts_[m].dummy_rows),
              BALLAST_OK)
        << ballast_last_error();
    for (const EmbeddingSample& sample : text) {
      bool here = sample.rows == 0;
      for (const EmbeddingSample& own : encoded) {
        here |= own.position == sample.position;
      }
      moved_[m] += here ? 0 : sample.rows;
    }
    ballast_batch_info info = {};
    info.struct_size = sizeof(info);
    EXPECT_EQ(ballast_batch_get_info(media, &info), BALLAST_OK);
    dummies_[m] += info.dummy_image;
    without_text_rows_ += GetRows(text) == 0;
  }

  // One process of the trainer: a rank of each module.
  void RunRank(Kind kind, uint32_t rank) {
    std::vector<ballast_shim*> shims;
    for (size_t m = 0; m < parts_.size(); ++m) {
      shims.push_back(MakeShim(m, rank, End(kind, m, rank)));
    }
    while (true) {
      std::vector<const ballast_batch*> batches(parts_.size());
      int status = BALLAST_OK;
      for (size_t m = 0; m < parts_.size(); ++m) {
        status = ballast_shim_next(shims[m], nullptr, &batches[m]);
      }
      if (status != BALLAST_OK) {
        EXPECT_EQ(status, BALLAST_OUT_OF_RANGE) << ballast_last_error();
        break;
      }
      for (size_t m = 0; m + 1 < parts_.size(); ++m) {
        Exchange(m, shims[m], batches[m], batches.back());
      }
      for (const ballast_batch* batch : batches) ballast_batch_release(batch);
    }
    for (ballast_shim* shim : shims) ballast_shim_destroy(shim);
  }

  void RunAll(Kind kind) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kDp; ++rank) {
      threads.emplace_back([=, this] { RunRank(kind, rank); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::unique_ptr<TestCluster> cluster_;
  const char* address_ = nullptr;
  ballast_connection connection_ = {};
  std::vector<Part> parts_;
  std::vector<std::vector<ballast_communicator*>> here_;  // by module and rank
  std::atomic<uint64_t> moved_[2] = {};                   // by encoder
  std::atomic<uint64_t> dummies_[2] = {};
  std::atomic<uint64_t> without_text_rows_ = 0;
};

TEST_F(EmbeddingsExchangeTest, ThreadsThatExchangeSamplesToo) {
  Start(3, 16, "placement: split, delivery: exchange");
  RunAll(Kind::kInProcess);
  EXPECT_GT(moved_[0], 0);
}

TEST_F(EmbeddingsExchangeTest, OverGloo) {
  Start(3, 16, "placement: split, delivery: direct");
  RunAll(Kind::kGloo);
  EXPECT_GT(moved_[0], 0);
}

TEST_F(EmbeddingsExchangeTest, FewerImagesThanRanks) {
  Start(1, 4, "placement: split, delivery: direct");
  RunAll(Kind::kInProcess);
  EXPECT_GT(dummies_[0], 0);
  EXPECT_GT(without_text_rows_, 0);
}

TEST_F(EmbeddingsExchangeTest, PairedRowsStay) {
  Start(1, 4, "placement: paired, delivery: direct");
  RunAll(Kind::kInProcess);
  EXPECT_EQ(moved_[0], 0);
  EXPECT_GT(dummies_[0], 0);
}

// Each encoder's rows go by its own plan, over its own shim's communicator.
TEST_F(EmbeddingsExchangeTest, ImagesAndAudio) {
  StartHeard("placement: split, delivery: exchange");
  RunAll(Kind::kInProcess);
  for (const int encoder : {0, 1}) {
    EXPECT_GT(moved_[encoder], 0) << parts_[encoder].name;
    EXPECT_GT(dummies_[encoder], 0) << parts_[encoder].name;
  }
}

TEST_F(EmbeddingsExchangeTest, ImagesAndAudioOverGloo) {
  StartHeard("placement: split, delivery: direct");
  RunAll(Kind::kGloo);
  EXPECT_GT(moved_[0], 0);
  EXPECT_GT(moved_[1], 0);
}

TEST_F(EmbeddingsExchangeTest, PairedRowsOfAudioStay) {
  StartHeard("placement: paired, delivery: direct");
  RunAll(Kind::kInProcess);
  EXPECT_EQ(moved_[0] + moved_[1], 0);
  EXPECT_GT(dummies_[1], 0);
}

// A rank's first batches, and arrays of the right size for them.
struct First {
  ballast_shim* shims[2] = {};
  const ballast_batch* batches[2] = {};
  std::vector<double> tower, text;
  ballast_embedding_rows rows = {};
};

class EmbeddingsErrorTest : public EmbeddingsExchangeTest {
 protected:
  First Take(uint32_t rank, bool communicator) {
    First first;
    for (int m = 0; m < 2; ++m) {
      first.shims[m] = MakeShim(
          m, rank,
          communicator && m == 0 ? End(Kind::kInProcess, 0, rank) : nullptr);
      EXPECT_EQ(ballast_shim_next(first.shims[m], nullptr, &first.batches[m]),
                BALLAST_OK)
          << ballast_last_error();
    }
    const std::map<uint64_t, uint64_t> rows = RowsByPosition(first.shims[0]);
    const auto rows_of = [&](uint64_t position) { return rows.at(position); };
    ballast_batch_info info = {};
    info.struct_size = sizeof(info);
    EXPECT_EQ(ballast_batch_get_info(first.batches[0], &info), BALLAST_OK);
    first.rows.struct_size = sizeof(first.rows);
    first.rows.dtype = BALLAST_FLOAT64;
    first.rows.width = 1;
    first.rows.tower_rows =
        GetRows(SamplesOf(first.batches[0], rows_of)) + info.dummy_image;
    first.rows.text_rows = GetRows(SamplesOf(first.batches[1], rows_of));
    first.tower.resize(first.rows.tower_rows);
    first.text.resize(first.rows.text_rows);
    first.rows.tower = first.tower.data();
    first.rows.text = first.text.data();
    return first;
  }
  static void Drop(First* first) {
    for (const ballast_batch* batch : first->batches) {
      ballast_batch_release(batch);
    }
    for (ballast_shim* shim : first->shims) ballast_shim_destroy(shim);
  }
  static int Exchange(const First& first, const ballast_embedding_rows& rows,
                      int batch = 0) {
    return ballast_shim_exchange_embeddings(
        first.shims[0], first.batches[batch], &rows, nullptr);
  }
};

TEST_F(EmbeddingsErrorTest, WrongArgumentsChangeNothing) {
  Start(3, 16, "placement: split, delivery: direct");
  First first = Take(0, true);
  const auto refused = [&](auto change, int batch, const char* message) {
    ballast_embedding_rows rows = first.rows;
    change(&rows);
    EXPECT_EQ(Exchange(first, rows, batch), BALLAST_INVALID_ARGUMENT);
    EXPECT_THAT(ballast_last_error(), HasSubstr(message));
  };
  using Rows = ballast_embedding_rows;
  refused([](Rows* rows) { rows->dtype = BALLAST_INT64; }, 0,
          "rows.dtype is 3");
  refused([](Rows* rows) { rows->width = 0; }, 0, "rows.width is 0");
  refused([](Rows* rows) { rows->struct_size = 0; }, 0, "rows");
  refused([](Rows* rows) { ++rows->tower_rows; }, 0, "rows of the tower");
  refused([](Rows* rows) { --rows->text_rows; }, 0, "rows of the text");
  refused([](Rows* rows) { rows->text = nullptr; }, 0, "is null");
  refused([](Rows* rows) { rows->text = rows->tower; }, 0, "overlap");
  refused([](Rows*) {}, 1, "wanted the encoder's batch");
  int mark = 0;
  EXPECT_EQ(ballast_shim_exchange_embeddings(first.shims[0], first.batches[0],
                                             &first.rows, &mark),
            BALLAST_INVALID_ARGUMENT);
  EXPECT_THAT(ballast_last_error(), HasSubstr("stream is given"));
  EXPECT_EQ(ballast_shim_return_gradients(nullptr, first.batches[0],
                                          &first.rows, nullptr),
            BALLAST_INVALID_ARGUMENT);
  // The shim is usable.
  const ballast_batch* next = nullptr;
  EXPECT_EQ(ballast_shim_next(first.shims[0], nullptr, &next), BALLAST_OK);
  ballast_batch_release(next);
  Drop(&first);
}

TEST_F(EmbeddingsErrorTest, WithoutACommunicator) {
  Start(3, 16, "placement: split, delivery: direct");
  First first = Take(0, false);
  EXPECT_EQ(Exchange(first, first.rows), BALLAST_FAILED_PRECONDITION);
  EXPECT_THAT(ballast_last_error(), HasSubstr("no communicator"));
  Drop(&first);
}

// The communicator joins the ranks of one module.
TEST_F(EmbeddingsErrorTest, ModulesOnRanksOfTheirOwnAreRefused) {
  Start(3, 16, "placement: split, delivery: direct", [](v1::Config* config) {
    config->mutable_topology()->set_colocated(false);
  });
  First first = Take(0, true);
  EXPECT_EQ(Exchange(first, first.rows), BALLAST_FAILED_PRECONDITION);
  EXPECT_THAT(ballast_last_error(), HasSubstr("modules on separate ranks"));
  Drop(&first);
}

// Gradients of several ranks would have to be added up.
TEST_F(EmbeddingsErrorTest, PacksThatRanksShareAreRefused) {
  Start(3, 16, "placement: split, delivery: direct", [](v1::Config* config) {
    v1::Packing& packing = *config->mutable_packing();
    packing.set_mode(v1::Packing::MODE_SCHEDULED);
    packing.set_max_tokens_per_rank(512);
    packing.set_dynamic_cp(2);
  });
  First first = Take(0, true);
  EXPECT_EQ(Exchange(first, first.rows), BALLAST_FAILED_PRECONDITION);
  EXPECT_THAT(ballast_last_error(), HasSubstr("embedding_send_order"));
  Drop(&first);
}

TEST_F(EmbeddingsErrorTest, APeerThatLeavesEndsTheExchange) {
  Start(3, 16, "placement: split, delivery: direct");
  First first = Take(0, true);
  std::thread waits([&] {
    EXPECT_EQ(Exchange(first, first.rows), BALLAST_UNAVAILABLE);
    EXPECT_THAT(ballast_last_error(), HasSubstr("left the exchange"));
    // Final, as Next's errors are.
    const ballast_batch* next = nullptr;
    EXPECT_EQ(ballast_shim_next(first.shims[0], nullptr, &next),
              BALLAST_UNAVAILABLE);
  });
  ballast_communicator_destroy(std::exchange(here_[0][1], nullptr));
  waits.join();
  Drop(&first);
}

TEST_F(EmbeddingsErrorTest, CancelEndsTheExchange) {
  Start(3, 16, "placement: split, delivery: direct");
  First first = Take(0, true);
  std::thread waits(
      [&] { EXPECT_EQ(Exchange(first, first.rows), BALLAST_CANCELLED); });
  EXPECT_EQ(ballast_shim_cancel(first.shims[0]), BALLAST_OK);
  waits.join();
  Drop(&first);
}

TEST_F(EmbeddingsErrorTest, PeersWithOtherWidthsEndWithBothSizes) {
  Start(3, 16, "placement: split, delivery: direct");
  std::vector<First> firsts(kDp);
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < kDp; ++rank) {
    firsts[rank] = Take(rank, true);
  }
  for (uint32_t rank = 0; rank < kDp; ++rank) {
    ranks.emplace_back([&, rank] {
      ballast_embedding_rows rows = firsts[rank].rows;
      if (rank == 2) rows.dtype = BALLAST_FLOAT32;
      EXPECT_EQ(Exchange(firsts[rank], rows), BALLAST_INVALID_ARGUMENT);
      EXPECT_THAT(ballast_last_error(), HasSubstr("bytes to rank"));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (First& first : firsts) Drop(&first);
}

}  // namespace
}  // namespace ballast
