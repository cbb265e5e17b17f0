// Images that travel encoded, decoded on the GPU: batches equal to the byte to
// those of `decode: host`, packed on the host.

#include <optional>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/config_loader.h"
#include "server/job/index_sources.h"
#include "tests/fakes/shared_dir.h"
#include "tests/fakes/test_cluster.h"
#include "tests/gpu/cuda_world.h"
#include "tests/gpu/device_testing.h"
#include "tests/gpu/same_as_on_host.h"
#include "tests/integration/encoded_job.h"
#include "tests/integration/resized_models.h"

namespace ballast {
namespace {

constexpr uint64_t kSteps = 3;

// Whether an image of the batches travelled encoded.
bool AnyEncoded(const TestCluster::Batches& batches) {
  for (const auto& [key, batch] : batches) {
    for (const uint32_t bytes :
         batch.schedule->micro_batches(batch.micro_batch).encoded_bytes()) {
      if (bytes != 0) return true;
    }
  }
  return false;
}

// Runs `device` on GPUs, whose engines must decode, and `host` on the host.
void ExpectSameJobs(const LoadedConfig& device, const LoadedConfig& host,
                    CudaWorldOptions options, int servers = 2) {
  JpegEngineCounts decoded;
  options.decoded = &decoded;
  const auto on_host = OrDie(TestCluster::Start(host, servers));
  const TestCluster::Batches want =
      OrDie(on_host->RunRanks(options.step, options.steps));
  const auto on_device = OrDie(TestCluster::Start(device, servers));
  const auto got = RunCudaRanks(on_device->addresses(), options);
  ASSERT_TRUE(got.ok()) << got.status();
  ExpectSameBatches(*got, want, options.pixel_type);
  EXPECT_TRUE(AnyEncoded(*got));
  EXPECT_GT(decoded.by_hardware, 0)
      << decoded.by_host << " images were decoded on the host instead";
}

void ExpectSameJobs(const EncodedJob& job, const std::string& directory,
                    const CudaWorldOptions& options) {
  ExpectSameJobs(GetConfig(job, directory, "device"),
                 GetConfig(job, directory, "host"), options,
                 job.vision_dp > 1 ? 2 : 1);
}

using Case = std::tuple<std::tuple<uint32_t, uint32_t>, const char*, bool>;

class EncodedImagesGpuTest : public ::testing::TestWithParam<Case> {};

TEST_P(EncodedImagesGpuTest, SameBatchesAsDecodedOnTheHost) {
  const auto& [dp, delivery, overlap] = GetParam();
  EncodedJob job;
  std::tie(job.vision_dp, job.language_dp) = dp;
  job.delivery = delivery;
  CudaWorldOptions options;
  options.overlap = overlap;
  options.steps = kSteps;
  ExpectSameJobs(job, MixedJpegs(), options);
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, EncodedImagesGpuTest,
    ::testing::Combine(::testing::Values(std::make_tuple(1u, 1u),
                                         std::make_tuple(2u, 2u),
                                         std::make_tuple(4u, 2u)),
                       ::testing::Values("exchange", "direct", "hybrid", "off"),
                       ::testing::Bool()));

TEST(EncodedImagesGpuTest, Bfloat16) {
  EncodedJob job;
  job.vision_dp = job.language_dp = 2;
  CudaWorldOptions options;
  options.pixel_type = PixelType::kBfloat16;
  options.steps = kSteps;
  ExpectSameJobs(job, MixedJpegs(), options);
}

TEST(EncodedImagesGpuTest, OtherResizes) {
  for (const std::string& model : ResizedModels()) {
    SCOPED_TRACE(model);
    EncodedJob job;
    job.model = model;
    CudaWorldOptions options;
    options.steps = kSteps;
    ExpectSameJobs(job, MixedJpegs(), options);
  }
}

TEST(EncodedImagesGpuTest, DamagedFiles) {
  EncodedJob job;
  job.vision_dp = job.language_dp = 2;
  CudaWorldOptions options;
  options.steps = kSteps;
  ExpectSameJobs(job, DamagedJpegs(), options);
}

TEST(EncodedImagesGpuTest, DummyImagesAndRanksWithoutImages) {
  EncodedJob job;
  job.vision_dp = 4;
  job.language_dp = 2;
  job.balance = ", align_images: true";
  CudaWorldOptions options;
  options.steps = 2 * kSteps;
  ExpectSameJobs(job, FewJpegs(), options);
}

TEST(EncodedImagesGpuTest, ScheduledPacking) {
  EncodedJob job;
  job.vision_dp = job.language_dp = 2;
  job.more = "packing: {mode: scheduled, max_tokens_per_rank: 4096}\n";
  CudaWorldOptions options;
  options.steps = kSteps;
  ExpectSameJobs(job, MixedJpegs(), options);
}

TEST(EncodedImagesGpuTest, OverNccl) {
  EncodedJob job;
  job.vision_dp = job.language_dp = DeviceCount();
  CudaWorldOptions options;
  options.exchange = Exchange::kNccl;
  options.steps = kSteps;
  ExpectSameJobs(job, MixedJpegs(), options);
}

// The 64 conversations of BALLAST_SHARED_DIR/corpus.
TEST(EncodedImagesGpuTest, Photographs) {
  constexpr char kSamples[] = "corpus/samples.jsonl";
  const std::optional<std::string> shared = SharedDirWith(kSamples);
  if (!shared) GTEST_SKIP() << NotShared(kSamples);
  const std::string corpus = *shared + "/corpus";
  const auto config = [&](const std::string& decode) {
    auto loaded = OrDie(ParseConfig(
        absl::StrCat(
            "sources: [{name: photos, format: jsonl, path: '", corpus,
            "/samples.jsonl', media_root: '", corpus,
            "'}]\nmodel: {profile: qwen2_5_vl, max_pixels: 602112, decode: ",
            decode,
            "}\nbatch: {global: 32, micro: 16, max_tokens: 32768}\n"
            "topology: {modules: {vision: {dp: 4}, language: {dp: 4}}}\n"
            "balance: {delivery: exchange}\n"
            "serve: {memory: 512MiB, listen: ['unix:/replaced']}\n"),
        "corpus.yaml", ::testing::TempDir()));
    EXPECT_TRUE(IndexSources(loaded, {}).ok());
    EXPECT_TRUE(CheckSources(loaded, {}).ok());
    return loaded;
  };
  CudaWorldOptions options;
  options.steps = 2;
  ExpectSameJobs(config("device"), config("host"), options);
}

}  // namespace
}  // namespace ballast
