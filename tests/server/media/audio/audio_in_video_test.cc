#include "server/media/audio/audio_in_video.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "server/media/audio/audio_plan.h"
#include "server/model/profiles.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/media/audio/golden_audio.h"

namespace ballast {
namespace {

using Json = nlohmann::json;

AudioInVideo ReadVideo(const Json& one) {
  AudioInVideo video;
  video.grid_t = one["video_grid_thw"][0];
  video.grid_h = one["video_grid_thw"][1].get<uint32_t>() / 2;
  video.grid_w = one["video_grid_thw"][2].get<uint32_t>() / 2;
  video.seconds_per_grid = one["second_per_grid"];
  video.audio_tokens = one["audio_tokens"];
  return video;
}

template <typename T>
std::string HashPositions(const AudioInVideoPositions& places, int before,
                          int after) {
  std::string bytes;
  float text = 0;
  for (const std::vector<float>* axis :
       {&places.time, &places.row, &places.column}) {
    std::vector<T> values;
    for (int i = 0; i < before; ++i) values.push_back(static_cast<T>(i));
    for (const float value : *axis) values.push_back(static_cast<T>(value));
    text = axis->back() + 1;
    for (int i = 0; i < after; ++i) values.push_back(static_cast<T>(text++));
    bytes.append(reinterpret_cast<const char*>(values.data()),
                 values.size() * sizeof(T));
  }
  return Sha256Hex(
      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

TEST(AudioInVideoTest, OrderAndPositionsAreTransformers) {
  if (!SharedDirWith(kGoldenAudio)) GTEST_SKIP() << NotShared(kGoldenAudio);
  int positions = 0;
  const Json golden = ReadGoldenAudio();
  for (const Json& one : golden["audio_in_video"]) {
    SCOPED_TRACE(one.dump().substr(0, 200));
    const auto& rule =
        FindAudioFamily(one["model"].get<std::string>())->in_video();
    const AudioInVideo video = ReadVideo(one);
    std::string order = "S1 s1";
    for (const AudioInVideoRun& run : OrderAudioInVideo(rule, video)) {
      absl::StrAppend(&order, run.is_audio ? " A" : " V", run.tokens);
    }
    EXPECT_EQ(order + " e1 E1", one["order"].get<std::string>());
    if (!one["order_agrees"].get<bool>()) continue;
    ++positions;
    const int before = one["text_before"];
    const int after = one["text_after"];
    const AudioInVideoPositions places =
        PlaceAudioInVideo(rule, video, static_cast<float>(before));
    EXPECT_EQ(one["pos_dtype"] == "int64"
                  ? HashPositions<int64_t>(places, before, after)
                  : HashPositions<float>(places, before, after),
              one["pos_sha"].get<std::string>());
  }
  EXPECT_EQ(positions, 20);
}

TEST(AudioInVideoTest, TokensThatAreLateForTheirChunkCloseItAlone) {
  // Patches of 4 tokens, 200 ids apart, in chunks of 50 ids.
  const auto& rule = FindAudioFamily("qwen2_5_omni")->in_video();
  std::string order;
  for (const AudioInVideoRun& run :
       OrderAudioInVideo(rule, {2, 2, 2, /*seconds_per_grid=*/8, 120})) {
    absl::StrAppend(&order, run.is_audio ? " A" : " V", run.tokens);
  }
  EXPECT_EQ(order, " V4 A50 V1 A50 V1 A20 V2");
}

}  // namespace
}  // namespace ballast
