#include "server/text/media_text.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/model/model_rows.h"
#include "server/model/model_videos.h"
#include "server/model/profiles.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// 3 temporal patches of 4x6 patches, 1.25 s apart.
VideoPlan Plan() {
  VideoPlan plan;
  plan.grid_t = 3;
  plan.grid_h = 4;
  plan.grid_w = 6;
  plan.seconds = {0.25, 1.5, 12.75};
  plan.seconds_per_patch = 1.25;
  return plan;
}

TEST(VideoTextTest, Qwen2WritesOneRun) {
  const StreamText text = TextOfVideo(VideoRule::kQwen2, Plan(), 2);
  EXPECT_EQ(text.runs, 1u);
  EXPECT_EQ(text.run_tokens, 3u * 2 * 3);
  EXPECT_THAT(text.before, IsEmpty());
}

// Python: f"<{0.25:.1f} seconds>" is "<0.2 seconds>", that of 12.75 "<12.8
// seconds>": both values are exact, and halves round to even.
TEST(VideoTextTest, Qwen3WritesTheTimeBeforeEachPatch) {
  const StreamText text = TextOfVideo(VideoRule::kQwen3, Plan(), 2);
  EXPECT_EQ(text.runs, 3u);
  EXPECT_EQ(text.run_tokens, 2u * 3);
  EXPECT_THAT(text.before,
              ElementsAre("<0.2 seconds>", "<1.5 seconds>", "<12.8 seconds>"));
}

TEST(VideoTextTest, InternVlNumbersItsFrames) {
  VideoPlan plan;
  plan.grid_t = 3;
  plan.tokens = 3 * 256;
  const StreamText text = TextOfVideo(VideoRule::kInternVl, plan, 1);
  EXPECT_EQ(text.runs, 3u);
  EXPECT_EQ(text.run_tokens, 256u);
  EXPECT_THAT(text.before, ElementsAre("Frame1: ", "\nFrame2: ", "\nFrame3: "));
}

TEST(VideoTextTest, EachRunIsBetweenTheMarksOfAnImage) {
  const auto written = [](VideoRule rule) {
    std::vector<std::string> pieces;
    for (const ImageTextPiece& piece :
         VideoPieces(TextOfVideo(rule, Plan(), 2),
                     {.before = "<a>", .after = "<z>"}, /*has_own_id=*/true)) {
      EXPECT_EQ(piece.is_video, piece.placeholders != 0);
      pieces.push_back(piece.placeholders == 0
                           ? piece.text
                           : std::to_string(piece.placeholders));
    }
    return pieces;
  };
  EXPECT_THAT(written(VideoRule::kQwen2), ElementsAre("<a>", "18", "<z>"));
  const std::vector<std::string> qwen3 = written(VideoRule::kQwen3);
  ASSERT_EQ(qwen3.size(), 7u);
  EXPECT_EQ(qwen3[1], "6");
  EXPECT_EQ(qwen3[2].substr(0, 4), "<z><");
  EXPECT_EQ(qwen3[6], "<z>");
}

TEST(VideoTextTest, GridsFollowTheModel) {
  const struct {
    const char* model;
    size_t grids;
    uint32_t t;
    float interval;
  } cases[] = {{"qwen2_vl", 1, 3, 1},
               {"qwen2_5_vl", 1, 3, 2.5},
               {"qwen3_vl", 3, 1, 1},
               {"qwen2_5_omni", 1, 3, 1},
               {"qwen3_5_vl", 3, 1, 1}};
  for (const auto& c : cases) {
    std::vector<GridThw> grids;
    AppendGrids(*FindVideoModel(c.model), Plan(), &grids);
    ASSERT_EQ(grids.size(), c.grids) << c.model;
    for (const GridThw& grid : grids) {
      EXPECT_EQ(grid.t, c.t) << c.model;
      EXPECT_EQ(grid.h, 4u);
      EXPECT_EQ(grid.w, 6u);
      EXPECT_EQ(grid.interval, c.interval) << c.model;
      const bool is_omni = absl::string_view(c.model) == "qwen2_5_omni";
      EXPECT_EQ(grid.ids_per_second, is_omni ? 25u : 0u) << c.model;
      EXPECT_EQ(grid.seconds, is_omni ? 1.25 : 0) << c.model;
    }
  }
}

// 2 s of 320x240 pixels at 10 frames a second.
StreamFacts MakeVideo() {
  StreamFacts video = {};
  video.fps = 10;
  video.frames = 20;
  video.width = 320;
  video.height = 240;
  return video;
}

// `samples` at 16 kHz.
StreamFacts MakeClip(uint32_t samples, uint32_t flags = 0) {
  StreamFacts clip = {};
  clip.flags = StreamFacts::kIsRows | flags;
  clip.fps = 16000;
  clip.frames = samples;
  clip.key_frames = 1;
  std::strncpy(clip.codec, "wav", sizeof(clip.codec) - 1);
  return clip;
}

absl::StatusOr<MediaText> PlanOmni(const std::vector<StreamFacts>& videos,
                                   const std::vector<StreamFacts>& clips) {
  const VideoModel model = *FindVideoModel("qwen2_5_omni");
  std::vector<StreamFacts> streams = videos;
  streams.insert(streams.end(), clips.begin(), clips.end());
  return PlanMediaText(&model, FindRowsRule("qwen2_5_omni"),
                       MediaList({}, {}, streams));
}

TEST(MediaTextTest, VideosThenClips) {
  const VideoModel qwen3 = *FindVideoModel("qwen3_vl");
  const VideoPlan plan = *PlanIndexedVideo(qwen3, MakeVideo());
  const std::vector<StreamFacts> two = {MakeVideo(), MakeVideo()};
  const auto text = PlanMediaText(&qwen3, nullptr, MediaList({}, {}, two));
  ASSERT_TRUE(text.ok()) << text.status();
  ASSERT_EQ(text->texts.size(), 2u);
  EXPECT_EQ(text->texts[0].runs, plan.grid_t);
  EXPECT_EQ(text->texts[0].runs * text->texts[0].run_tokens, plan.tokens);
  EXPECT_EQ(text->grids.size(), 2u * plan.grid_t);  // one for each run
  EXPECT_EQ(text->placeholders, 2 * plan.tokens);

  const uint64_t tokens =
      PlanIndexedVideo(*FindVideoModel("qwen2_5_omni"), MakeVideo())->tokens;
  const auto both = PlanOmni({MakeVideo()}, {MakeClip(16000)});
  ASSERT_TRUE(both.ok()) << both.status();
  ASSERT_EQ(both->texts.size(), 2u);
  EXPECT_EQ(both->texts[0].kind, MediumKind::kVideo);
  EXPECT_EQ(both->texts[1].kind, MediumKind::kAudio);
  EXPECT_EQ(both->texts[1].run_tokens, 25u);  // 100 frames
  EXPECT_EQ(both->placeholders, tokens + 25);
  EXPECT_THAT(PlanOmni({}, {})->texts, IsEmpty());
  EXPECT_EQ(PlanOmni({}, {MakeClip(16000), MakeClip(10)}).status().message(),
            "audio 1: a clip of 10 samples at 16 kHz gives 1 frames and 0 "
            "tokens; wanted a longer one");
  const std::vector<StreamFacts> clip = {MakeClip(16000)};
  EXPECT_FALSE(PlanMediaText(&qwen3, nullptr, MediaList({}, {}, clip)).ok());
  EXPECT_FALSE(PlanMediaText(nullptr, nullptr, MediaList({}, {}, two)).ok());
}

// Four frames of the 2 s are two patches, 1 s apart, so all of the video is of
// the first 2 s and comes before its audio.
TEST(MediaTextTest, TheAudioOfAVideoStandsAmongItsTokens) {
  const VideoModel omni = *FindVideoModel("qwen2_5_omni");
  const VideoPlan plan = *PlanIndexedVideo(omni, MakeVideo());
  ASSERT_EQ(plan.grid_t, 2u);
  const auto text =
      PlanOmni({MakeVideo()}, {MakeClip(40000, StreamFacts::kInVideo)});
  ASSERT_TRUE(text.ok()) << text.status();
  ASSERT_EQ(text->texts.size(), 1u);
  EXPECT_EQ(text->grids[0].audio_tokens, 62u);  // 250 frames
  EXPECT_EQ(text->grids[0].seconds, plan.seconds_per_patch);
  EXPECT_EQ(text->placeholders, plan.tokens + 62);
  std::string written;
  for (const ImageTextPiece& piece : VideoPieces(
           text->texts[0], {.before = "<a>", .after = "<z>"},
           /*has_own_id=*/true, &FindAudioFamily("qwen2_5_omni")->marks())) {
    if (piece.placeholders == 0) {
      written += piece.text;
    } else {
      EXPECT_NE(piece.is_audio, piece.is_video);
      absl::StrAppend(&written, piece.is_audio ? " A" : " V",
                      piece.placeholders, " ");
    }
  }
  EXPECT_EQ(written, absl::StrCat("<a><|audio_bos|> V", plan.tokens,
                                  "  A62 <|audio_eos|><z>"));
  EXPECT_FALSE(PlanOmni({}, {MakeClip(40000, StreamFacts::kInVideo)}).ok());
}

// Clips stand in the order of the text; that of the second video is in it.
TEST(MediaTextTest, ClipsStandAmongVideosWithTheirAudio) {
  const uint64_t tokens =
      PlanIndexedVideo(*FindVideoModel("qwen2_5_omni"), MakeVideo())->tokens;
  const StreamFacts of_first = MakeClip(40000, StreamFacts::kInVideo);
  const StreamFacts of_second = MakeClip(16000, StreamFacts::kInVideo);
  const auto text =
      PlanOmni({MakeVideo(), MakeVideo()},
               {MakeClip(8000), of_first, MakeClip(32000), of_second});
  ASSERT_TRUE(text.ok()) << text.status();
  ASSERT_EQ(text->texts.size(), 4u);
  EXPECT_EQ(text->grids[0].audio_tokens, 62u);
  EXPECT_EQ(text->grids[1].audio_tokens, 25u);
  EXPECT_EQ(text->texts[1].kind, MediumKind::kVideo);
  EXPECT_EQ(text->texts[2].kind, MediumKind::kAudio);
  EXPECT_EQ(text->texts[2].run_tokens, 12u);  // 50 frames
  EXPECT_EQ(text->texts[3].run_tokens, 50u);  // 200 frames
  EXPECT_EQ(text->placeholders, 2 * tokens + 62 + 25 + 12 + 50);
  EXPECT_EQ(PlanOmni({MakeVideo(), MakeVideo()}, {MakeClip(8000), of_first})
                .status()
                .message(),
            "2 videos with the audio of 1");
  EXPECT_EQ(PlanOmni({MakeVideo()}, {MakeClip(8000), of_first, MakeClip(10)})
                .status()
                .message(),
            "audio 1: a clip of 10 samples at 16 kHz gives 1 frames and 0 "
            "tokens; wanted a longer one");
}

}  // namespace
}  // namespace ballast
