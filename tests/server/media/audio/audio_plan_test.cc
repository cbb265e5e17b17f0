#include "server/media/audio/audio_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "server/model/profiles.h"
#include "server/sample/data_fault.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/media/audio/golden_audio.h"

namespace ballast {
namespace {

using Json = nlohmann::json;

TEST(AudioFamiliesTest, EachFileIsReadAndSaysWhatItMust) {
  EXPECT_EQ(AudioFamilyNames(),
            (std::vector<std::string>{
                "gemma3n", "gemma4", "granite_speech", "phi4_multimodal",
                "qwen2_5_omni", "qwen2_audio", "qwen3_omni_moe", "voxtral"}));
  EXPECT_EQ(FindAudioFamily("qwen2_vl"), nullptr);
  for (const std::string& name : AudioFamilyNames()) {
    const v1::AudioFamily& family = *FindAudioFamily(name);
    EXPECT_GT(family.frames().hop(), 0) << name;
    EXPECT_GT(family.frames().span(), 0) << name;
    EXPECT_NE(family.frames().valid(), 0) << name;
    EXPECT_NE(family.tokens().fixed() == 0, family.tokens().layers().empty())
        << name;
    for (const auto& layer : family.tokens().layers()) {
      EXPECT_GT(layer.stride(), 0) << name;
    }
    EXPECT_NE(family.features().window(), 0) << name;
    EXPECT_NE(family.features().scale(), 0) << name;
    EXPECT_GT(family.features().mels(), 0) << name;
    EXPECT_GT(family.features().max_hertz(), 0) << name;
    EXPECT_GT(family.features().floor(), 0) << name;
    if (family.has_in_video()) {
      EXPECT_NE(family.in_video().rule(), 0) << name;
      EXPECT_GT(family.in_video().ids_per_second(), 0) << name;
    }
  }
}

// The shape of transformers' tensor as frames.
uint64_t ShapeOf(const std::string& model, const Json& shape) {
  if (model == "voxtral") {
    return shape[0].get<uint64_t>() * shape[2].get<uint64_t>();
  }
  const bool is_transposed = model.starts_with("qwen");
  return shape[is_transposed ? 2 : 1].get<uint64_t>();
}

TEST(AudioPlanTest, EqualsTransformersForEveryClipAndModel) {
  if (!SharedDirWith(kGoldenAudio)) GTEST_SKIP() << NotShared(kGoldenAudio);
  int plans = 0;
  const Json golden = ReadGoldenAudio();
  for (const Json& one : golden["cases"]) {
    for (const auto& [model, wanted] : one["models"].items()) {
      SCOPED_TRACE(model + " " + one["id"].get<std::string>());
      const v1::AudioFamily* family = FindAudioFamily(model);
      ASSERT_NE(family, nullptr);
      const auto plan = PlanAudio(*family, one["n"].get<uint64_t>());
      ++plans;
      if (wanted.contains("error")) {
        EXPECT_TRUE(IsDataFault(plan.status())) << plan.status();
        continue;
      }
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(plan->frames, wanted["frames"].get<uint64_t>());
      EXPECT_EQ(plan->tokens, wanted["tokens"].get<uint64_t>());
      EXPECT_EQ(plan->shape, ShapeOf(model, wanted["shape"]));
    }
  }
  EXPECT_EQ(plans, 48 * 8);
}

TEST(AudioPlanTest, CountsDoNotDependOnTheBatchButForTwoModelsFrames) {
  if (!SharedDirWith(kGoldenAudio)) GTEST_SKIP() << NotShared(kGoldenAudio);
  const Json golden = ReadGoldenAudio();
  for (const Json& batch : golden["batches"]) {
    uint64_t longest = 0;
    for (const Json& n : batch["n"])
      longest = std::max(longest, n.get<uint64_t>());
    for (const auto& [model, clips] : batch["models"].items()) {
      for (size_t i = 0; i < clips.size(); ++i) {
        SCOPED_TRACE(model + " " + batch["id"].get<std::string>());
        const uint64_t n = batch["n"][i].get<uint64_t>();
        const auto plan = PlanAudio(*FindAudioFamily(model), n);
        ASSERT_TRUE(plan.ok()) << plan.status();
        const auto frames = clips[i]["frames"].get<uint64_t>();
        const auto tokens = clips[i]["tokens"].get<uint64_t>();
        if (model == "qwen3_omni_moe" && n < longest && n % 160 != 0) {
          // The processor counts the partial hop beside a longer clip.
          EXPECT_EQ(frames, std::min((n + 159) / 160, longest / 160));
          EXPECT_EQ(plan->frames, n / 160);
          continue;
        }
        EXPECT_EQ(plan->tokens, tokens);
        if (model == "gemma3n" && n < longest) {
          // Zeros up to the longer clip make a frame of each hop.
          EXPECT_EQ(frames, (n + 159) / 160);
          continue;
        }
        EXPECT_EQ(plan->frames, frames);
      }
    }
  }
}

TEST(AudioPlanTest, RefusesWhatNoModelTakes) {
  for (const std::string& name : AudioFamilyNames()) {
    const v1::AudioFamily& family = *FindAudioFamily(name);
    for (const uint64_t samples : {uint64_t{0}, kMaxAudioSamples + 1,
                                   std::numeric_limits<uint64_t>::max()}) {
      EXPECT_TRUE(IsDataFault(PlanAudio(family, samples).status())) << name;
    }
    EXPECT_TRUE(PlanAudio(family, kMaxAudioSamples).ok()) << name;
  }
}

TEST(AudioPlanTest, LengthsAfterResamplingAreLibrosas) {
  if (!SharedDirWith(kGoldenAudio)) GTEST_SKIP() << NotShared(kGoldenAudio);
  const Json golden = ReadGoldenAudio();
  for (const Json& one : golden["resample_lengths"]) {
    EXPECT_EQ(ResampledCount(one[1].get<uint64_t>(), one[0].get<uint32_t>()),
              one[2].get<uint64_t>())
        << one;
  }
}

TEST(CutClipTest, TakesSamplesAsQwenOmniUtilsSlicesThem) {
  const auto cut = [](std::optional<double> start, std::optional<double> end) {
    return CutClip({start, end}, 32000);
  };
  EXPECT_EQ(cut({}, {})->samples, 32000);
  EXPECT_EQ(cut(0.5, {})->first, 8000);
  EXPECT_EQ(cut(0.5, {})->samples, 24000);
  EXPECT_EQ(cut(0.00007, 0.00013)->first, 1);  // int(1.12), int(2.08)
  EXPECT_EQ(cut(0.00007, 0.00013)->samples, 1);
  EXPECT_EQ(cut(1.5, 9)->samples, 8000);
  for (const auto& [start, end] :
       std::vector<std::pair<double, double>>{{-1, 1},
                                              {1, 1},
                                              {1, 0.5},
                                              {2, 3},
                                              {NAN, 1},
                                              {0, NAN},
                                              {0, INFINITY},
                                              {1e300, 1e301},
                                              {0, 0.00001}}) {
    EXPECT_TRUE(IsDataFault(cut(start, end).status())) << start << " " << end;
  }
}

}  // namespace
}  // namespace ballast
