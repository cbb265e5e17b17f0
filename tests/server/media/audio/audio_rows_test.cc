#include "server/media/audio/audio_rows.h"

#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/model/profiles.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

AudioFacts MakeFacts(uint32_t rate, uint64_t frames) {
  AudioFacts facts;
  facts.format = AudioFormat::kVorbis;
  facts.rate = rate;
  facts.channels = 2;
  facts.frames = frames;
  facts.samples = ResampledCount(frames, rate);
  return facts;
}

StreamFacts MakeClip(uint32_t rate, uint64_t frames) {
  return *ToIndexedClip(MakeFacts(rate, frames));
}

std::string FaultOf(const std::string& model, const StreamFacts& clip) {
  const auto plan = PlanIndexedClip(*FindAudioFamily(model), clip);
  EXPECT_TRUE(IsDataFault(plan.status())) << plan.status();
  return std::string(plan.status().message());
}

TEST(IndexedClipTest, KeepsTheFacts) {
  const AudioFacts facts = MakeFacts(44'100, 4'000'000'000);
  const auto clip = ToIndexedClip(facts);
  ASSERT_TRUE(clip.ok()) << clip.status();
  EXPECT_EQ(clip->kind(), MediumKind::kAudio);
  const AudioFacts found = GetAudioFacts(*clip);
  EXPECT_EQ(found.format, facts.format);
  EXPECT_EQ(found.rate, facts.rate);
  EXPECT_EQ(found.channels, facts.channels);
  EXPECT_EQ(found.frames, facts.frames);
  EXPECT_EQ(found.samples, facts.samples);
  const auto long_one = ToIndexedClip(MakeFacts(44'100, 5'000'000'000));
  EXPECT_TRUE(IsDataFault(long_one.status())) << long_one.status();
}

// Two frames beyond a clip's end where the encoder's convolutions see them;
// none beyond the 30 s that it takes.
TEST(IndexedClipTest, PlansTheRowsThatTravel) {
  const auto plan = [](const std::string& model, uint64_t samples) {
    const auto planned =
        PlanIndexedClip(*FindAudioFamily(model), MakeClip(16'000, samples));
    EXPECT_TRUE(planned.ok()) << planned.status();
    return *planned;
  };
  EXPECT_EQ(plan("qwen2_audio", 16'001).frames, 101u);
  EXPECT_EQ(plan("qwen2_audio", 16'001).rows, 103u);
  EXPECT_EQ(plan("qwen2_audio", 600'000).rows, 3000u);
  EXPECT_EQ(plan("qwen2_audio", 600'000).frames, 3000u);
  EXPECT_EQ(plan("qwen2_audio", 600'000).range.samples, 480'000u);
  EXPECT_EQ(plan("qwen2_5_omni", 16'001).rows, 101u);
  EXPECT_EQ(plan("qwen3_omni_moe", 16'001).rows, 100u);
  // Chunks of 30 s, all of which become tokens.
  EXPECT_EQ(plan("voxtral", 480'001).rows, 6000u);
  EXPECT_EQ(plan("voxtral", 480'001).frames, 3001u);
}

TEST(IndexedClipTest, PlansAPartOfAFile) {
  StreamFacts clip = MakeClip(8'000, 16'000);  // 2 s
  clip.flags |= StreamFacts::kHasStart | StreamFacts::kHasEnd;
  clip.start = 0.5;
  clip.end = 1.25;
  const auto plan = PlanIndexedClip(*FindAudioFamily("qwen2_audio"), clip);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->range.first, 8'000u);
  EXPECT_EQ(plan->range.samples, 12'000u);
  EXPECT_EQ(plan->frames, 75u);
  clip.start = 3;
  clip.end = 4;
  EXPECT_THAT(FaultOf("qwen2_audio", clip), HasSubstr("contains no audio"));
}

TEST(IndexedClipTest, RefusesWhatGivesNothing) {
  // 320 samples are two frames and no token.
  EXPECT_THAT(FaultOf("qwen2_audio", MakeClip(16'000, 320)),
              HasSubstr("2 frames and 0 tokens; wanted a longer one"));
  EXPECT_THAT(FaultOf("phi4_multimodal", MakeClip(16'000, 399)),
              HasSubstr("the model takes 400"));
  EXPECT_THAT(FaultOf("qwen3_omni_moe", MakeClip(16'000, uint64_t{1} << 28)),
              HasSubstr("take a clip of it"));
}

TEST(IndexedClipTest, DescribesRowsForRanks) {
  const auto shape = [](const char* model) {
    return GetClipShape(*FindAudioFamily(model));
  };
  EXPECT_EQ(shape("qwen2_audio").width(), 128u);
  EXPECT_EQ(shape("granite_speech").width(), 160u);  // pairs of 80
  // The least that is a token: three frames, or a chunk of 30 s.
  EXPECT_EQ(shape("qwen2_audio").dummy_rows(), 3u);
  EXPECT_EQ(shape("voxtral").dummy_rows(), 3000u);
}

}  // namespace
}  // namespace ballast
