#include "server/media/audio/log_mel.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/base/casts.h"
#include "server/media/audio/audio_plan.h"
#include "server/model/profiles.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/media/audio/golden_audio.h"

namespace ballast {
namespace {

using Json = nlohmann::json;

// A value of the vectors may lack: models with the same numbers share them.
struct Values {
  std::vector<double> values;
  double d64 = 0;
};

Values FindValues(const Json& models, const Json& one) {
  const Json* from = &one;
  while (from->contains("values") && (*from)["values"].is_string()) {
    from = &models[(*from)["values"].get<std::string>().substr(3)];
  }
  if (!from->contains("values")) return {};
  return {(*from)["values"].get<std::vector<double>>(),
          (*from)["d64"].get<double>()};
}

// The number as bfloat16, rounded half to even.
uint32_t ToBfloat16(float value) {
  const auto bits = absl::bit_cast<uint32_t>(value);
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

TEST(LogMelTest, IsWithinTheVectorsToleranceOfTransformers) {
  if (!SharedDirWith(kGoldenAudio)) GTEST_SKIP() << NotShared(kGoldenAudio);
  std::map<std::string, LogMel> makers;
  std::map<std::string, double> farthest;
  std::map<std::string, double> farthest_share;
  std::map<std::string, int> values_of;
  std::map<std::string, int> others_in_bfloat16;
  const Json golden = ReadGoldenAudio();
  uint64_t number = 0;
  int compared = 0;
  for (const Json& one : golden["cases"]) {
    const std::vector<float> samples = ToFloats(MakePcm(
        one["kind"], one["n"].get<int64_t>(), one["seed"].get<uint64_t>()));
    for (const auto& [model, wanted] : one["models"].items()) {
      SCOPED_TRACE(model + " " + one["id"].get<std::string>());
      const Values values = FindValues(one["models"], wanted);
      if (values.values.empty()) continue;
      const v1::AudioFamily& family = *FindAudioFamily(model);
      LogMel& maker =
          makers.emplace(model, *LogMel::Create(family)).first->second;
      const AudioPlan plan = *PlanAudio(family, samples.size());
      const auto made = maker.Compute(plan, samples, plan.shape);
      ASSERT_TRUE(made.ok()) << made.status();
      ASSERT_EQ(made->size(), plan.shape * maker.width());
      const auto points = SamplePoints(
          static_cast<int64_t>(plan.shape), static_cast<int64_t>(maker.width()),
          static_cast<int64_t>(plan.frames),
          one["seed"].get<uint64_t>() + 7 * number);
      for (size_t i = 0; i < points.size(); ++i) {
        const auto& [row, column] = points[i];
        const double value = (*made)[static_cast<size_t>(row) * maker.width() +
                                     static_cast<size_t>(column)];
        const double away = std::abs(value - values.values[i]);
        EXPECT_LE(away, 1e-5 + 2 * values.d64)
            << "row " << row << ", column " << column << ": " << value
            << ", wanted " << values.values[i];
        farthest[model] = std::max(farthest[model], away);
        ++values_of[model];
        others_in_bfloat16[model] +=
            ToBfloat16(static_cast<float>(value)) !=
            ToBfloat16(static_cast<float>(values.values[i]));
        farthest_share[model] =
            std::max(farthest_share[model], away / (1e-5 + 2 * values.d64));
      }
      ++compared;
    }
    ++number;
  }
  EXPECT_GT(compared, 300);
  for (const auto& [model, away] : farthest) {
    std::cout << model << ": at most " << away << " away, "
              << farthest_share[model] << " of the tolerance; "
              << others_in_bfloat16[model] << " of " << values_of[model]
              << " are others in bfloat16\n";
  }
}

TEST(LogMelTest, FirstFramesDoNotDependOnHowManyAreWanted) {
  const std::vector<float> samples = ToFloats(MakePcm("lateburst", 20011, 5));
  for (const std::string& name : AudioFamilyNames()) {
    const v1::AudioFamily& family = *FindAudioFamily(name);
    LogMel maker = *LogMel::Create(family);
    const AudioPlan plan = *PlanAudio(family, samples.size());
    const auto all = *maker.Compute(plan, samples, plan.shape);
    const auto valid = *maker.Compute(plan, samples, plan.frames);
    ASSERT_EQ(valid.size(), plan.frames * maker.width());
    EXPECT_TRUE(std::equal(valid.begin(), valid.end(), all.begin())) << name;
    const auto again = *maker.Compute(plan, samples, plan.frames);
    EXPECT_EQ(again, valid) << name;
  }
}

TEST(LogMelTest, RefusesWhatThePlanDoesNotHave) {
  const v1::AudioFamily& family = *FindAudioFamily("qwen2_audio");
  LogMel maker = *LogMel::Create(family);
  const AudioPlan plan = *PlanAudio(family, 1600);
  const std::vector<float> samples(1599);
  EXPECT_FALSE(maker.Compute(plan, samples, 1).ok());
  EXPECT_FALSE(
      maker.Compute(plan, std::vector<float>(1600), plan.shape + 1).ok());
  EXPECT_EQ(maker.Compute(plan, std::vector<float>(1600), 0)->size(), 0);
}

// Servers of other processors make the same features.
TEST(LogMelTest, EveryInstructionSetGivesTheSameBytes) {
  const std::vector<float> samples = ToFloats(MakePcm("speech", 20'001, 3));
  for (const std::string& model : AudioFamilyNames()) {
    const v1::AudioFamily& family = *FindAudioFamily(model);
    const AudioPlan plan = *PlanAudio(family, samples.size());
    const auto compute = [&] {
      return *(*LogMel::Create(family)).Compute(plan, samples, plan.frames);
    };
    const std::vector<float> best = compute();
    for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
      const int64_t target = left & -left;
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      EXPECT_EQ(compute(), best) << model << " " << hwy::TargetName(target);
      hwy::SetSupportedTargetsForTest(0);
    }
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

// Noise that is no number stays none, as in the processors.
TEST(LogMelTest, NoNumberStaysNone) {
  const v1::AudioFamily& family = *FindAudioFamily("qwen2_audio");
  std::vector<float> samples(16'000, 0.25F);
  samples[8000] = std::numeric_limits<float>::quiet_NaN();
  const AudioPlan plan = *PlanAudio(family, samples.size());
  const auto values =
      *(*LogMel::Create(family)).Compute(plan, samples, plan.frames);
  EXPECT_TRUE(std::isnan(values[50 * 128]));
}

}  // namespace
}  // namespace ballast
