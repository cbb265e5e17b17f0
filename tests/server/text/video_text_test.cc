#include "server/text/video_text.h"
#include "server/video/model_videos.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  const VideoText text = TextOfVideo(VideoRule::kQwen2, Plan(), 2);
  EXPECT_EQ(text.runs, 1u);
  EXPECT_EQ(text.run_tokens, 3u * 2 * 3);
  EXPECT_THAT(text.before, IsEmpty());
}

// Python: f"<{0.25:.1f} seconds>" is "<0.2 seconds>", that of 12.75 "<12.8
// seconds>": both values are exact, and halves round to even.
TEST(VideoTextTest, Qwen3WritesTheTimeBeforeEachPatch) {
  const VideoText text = TextOfVideo(VideoRule::kQwen3, Plan(), 2);
  EXPECT_EQ(text.runs, 3u);
  EXPECT_EQ(text.run_tokens, 2u * 3);
  EXPECT_THAT(text.before,
              ElementsAre("<0.2 seconds>", "<1.5 seconds>", "<12.8 seconds>"));
}

TEST(VideoTextTest, InternVlNumbersItsFrames) {
  VideoPlan plan;
  plan.grid_t = 3;
  plan.tokens = 3 * 256;
  const VideoText text = TextOfVideo(VideoRule::kInternVl, plan, 1);
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
    }
  }
}

}  // namespace
}  // namespace ballast
