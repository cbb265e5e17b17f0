// Real photographs on GPUs, in every delivery mode: the 64 conversations of
// BALLAST_SHARED_DIR/corpus, byte for byte as on the host.

#include <optional>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/config_loader.h"
#include "tests/fakes/shared_dir.h"
#include "tests/gpu/cuda_world.h"
#include "tests/gpu/device_testing.h"
#include "tests/gpu/same_as_on_host.h"

namespace ballast {
namespace {

constexpr char kSamples[] = "corpus/samples.jsonl";

using Case = std::tuple<const char*, const char*, bool>;

class CorpusGpuTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::optional<std::string> shared = SharedDirWith(kSamples);
    if (!shared) GTEST_SKIP() << NotShared(kSamples);
    corpus_ = *shared + "/corpus";
  }

  LoadedConfig MakeConfig(uint32_t dp, const std::string& profile,
                          const std::string& delivery) {
    return OrDie(ParseConfig(
        absl::StrCat(
            "sources: [{name: photos, format: jsonl, path: '", corpus_,
            "/samples.jsonl', media_root: '", corpus_, "'}]\nmodel: {profile: ",
            profile, ", max_pixels: 602112}\nbatch: {global: ", 8 * dp,
            ", micro: ", 4 * dp,
            ", max_tokens: 32768}\ntopology: {modules: {vision: {dp: ", dp,
            "}, language: {dp: ", dp, "}}}\nbalance: {delivery: ", delivery,
            "}\nserve: {memory: 512MiB, listen: ['unix:/replaced']}\n"),
        "corpus.yaml", ::testing::TempDir()));
  }

  std::string corpus_;
};

TEST_P(CorpusGpuTest, SameBatchesAsOnTheHost) {
  const auto& [profile, delivery, bfloat16] = GetParam();
  CudaWorldOptions options;
  options.steps = 2;
  options.pixel_type = bfloat16 ? PixelType::kBfloat16 : PixelType::kFloat32;
  ExpectSameAsOnHost(MakeConfig(4, profile, delivery), options);
}

INSTANTIATE_TEST_SUITE_P(
    Deliveries, CorpusGpuTest,
    ::testing::Combine(::testing::Values("qwen2_5_vl", "qwen3_vl"),
                       ::testing::Values("exchange", "direct", "hybrid", "off"),
                       ::testing::Bool()));

TEST_F(CorpusGpuTest, OverNccl) {
  CudaWorldOptions options;
  options.exchange = Exchange::kNccl;
  options.steps = 2;
  ExpectSameAsOnHost(MakeConfig(DeviceCount(), "qwen2_5_vl", "exchange"),
                     options);
}

}  // namespace
}  // namespace ballast
