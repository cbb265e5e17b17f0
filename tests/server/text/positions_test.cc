#include "server/text/positions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/model/model_profile.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int32_t kImage = 151655;

v1::Model MakeModel(uint32_t axes) {
  v1::Model model;
  model.set_merge(2);
  model.set_position_axes(axes);
  model.mutable_token_ids()->set_image(kImage);
  return model;
}

absl::Status Compute(const std::vector<int32_t>& ids,
                     const std::vector<GridThw>& grids,
                     std::vector<int32_t>* out, uint32_t axes = 3) {
  out->assign(axes * ids.size(), -1);
  return ComputePositions(ids, grids, MakeModel(axes), absl::MakeSpan(*out));
}

// Text, an image of 4x4 patches at merge 2, text: positions continue after the
// larger side of the merged grid.
TEST(PositionsTest, TextContinuesAfterTheLargerSideOfAnImage) {
  std::vector<int32_t> out;
  ASSERT_TRUE(Compute({11, 12, 99, kImage, kImage, kImage, kImage, 13},
                      {{1, 4, 4}}, &out)
                  .ok());
  const int32_t expected[] = {0, 1, 2, 3, 3, 3, 3, 5,  //
                              0, 1, 2, 3, 3, 4, 4, 5,  //
                              0, 1, 2, 3, 4, 3, 4, 5};
  EXPECT_THAT(out, ElementsAreArray(expected));
}

constexpr int32_t kVideo = 151656;
constexpr int32_t kAudio = 151646;

// A part of a sample: `text` tokens, or a medium of t x h x w tokens.
struct Part {
  int text = 0;
  int t = 0, h = 0, w = 0;
  double seconds = 0;  // of a video: between temporal patches
};

// Positions as get_rope_index_2 and get_rope_index_25 of the authors' training
// code (rope2d.py of Qwen's repositories) define them: a part begins one after
// the largest position of all axes of the part before. `per_second` is 0 for
// Qwen2-VL, whose patches are one apart.
std::vector<int32_t> PlaceAsAuthors(const std::vector<Part>& parts,
                                    double per_second) {
  std::vector<std::vector<int32_t>> axes(3);
  int32_t next = 0;
  for (const Part& part : parts) {
    const int32_t from = next;
    const auto put = [&](int32_t t, int32_t h, int32_t w) {
      axes[0].push_back(from + t);
      axes[1].push_back(from + h);
      axes[2].push_back(from + w);
      next = std::max({next, from + t + 1, from + h + 1, from + w + 1});
    };
    for (int i = 0; i < part.text; ++i) put(i, i, i);
    for (int i = 0; i < part.t * part.h * part.w; ++i) {
      const int patch = i / (part.h * part.w);
      const double time =
          per_second == 0 ? patch : patch * part.seconds * per_second;
      put(static_cast<int32_t>(std::floor(time)), i / part.w % part.h,
          i % part.w);
    }
  }
  std::vector<int32_t> out;
  for (const auto& axis : axes) out.insert(out.end(), axis.begin(), axis.end());
  return out;
}

TEST(PositionsTest, TextContinuesAfterTheLargestPositionOfAVideo) {
  const std::vector<std::vector<Part>> samples = {
      {{2}, {0, 1, 1, 2}, {1}, {0, 4, 2, 1, 25.0 / 24}, {2}},
      {{1}, {0, 36, 19, 19, 0.5}, {3}},  // longer than its sides
      {{1}, {0, 2, 19, 7, 0.5}, {3}},    // and not
      {{0, 3, 1, 1, 1.3}, {0, 2, 1, 2, 4}, {1}, {0, 1, 5, 3}, {4}},
  };
  for (const bool has_seconds : {false, true}) {
    for (const std::vector<Part>& parts : samples) {
      std::vector<int32_t> ids;
      std::vector<GridThw> images;
      std::vector<GridThw> videos;
      for (const Part& part : parts) {
        ids.insert(ids.end(), part.text, 11);
        if (part.text > 0) continue;
        const GridThw grid = {static_cast<uint32_t>(part.t),
                              static_cast<uint32_t>(2 * part.h),
                              static_cast<uint32_t>(2 * part.w)};
        const bool is_video = part.seconds > 0;
        ids.insert(ids.end(), part.t * part.h * part.w,
                   is_video ? kVideo : kImage);
        (is_video ? videos : images).push_back(grid);
        if (is_video && has_seconds) {
          videos.back().interval = static_cast<float>(2 * part.seconds);
        }
      }
      v1::Model model = MakeModel(3);
      model.mutable_token_ids()->set_video(kVideo);
      std::vector<int32_t> out(3 * ids.size());
      ASSERT_TRUE(
          ComputePositions(ids, images, model, absl::MakeSpan(out), videos)
              .ok());
      EXPECT_THAT(out,
                  ElementsAreArray(PlaceAsAuthors(parts, has_seconds ? 2 : 0)));
    }
  }
}

// As get_rope_index of transformers 5.23 places them for Qwen2.5-VL: text
// continues 2 after a video's start, since its frames have 2 rows of tokens.
TEST(PositionsTest, ByTransformersTextContinuesAfterAVideosSides) {
  const std::vector<int32_t> ids = {11,     kVideo, kVideo, kVideo, kVideo,
                                    kVideo, kVideo, kVideo, kVideo, 14};
  v1::Model model = MakeModel(3);
  model.mutable_token_ids()->set_video(kVideo);
  model.set_profile("qwen2_5_vl+transformers");
  std::vector<int32_t> out(3 * ids.size());
  ASSERT_TRUE(ComputePositions(ids, {}, model, absl::MakeSpan(out),
                               {{4, 4, 2, 2 * 1.3f}})
                  .ok());
  const int32_t expected[] = {0, 1, 1, 3, 3, 6, 6, 8, 8, 3,  //
                              0, 1, 2, 1, 2, 1, 2, 1, 2, 3,  //
                              0, 1, 1, 1, 1, 1, 1, 1, 1, 3};
  EXPECT_THAT(out, ElementsAreArray(expected));
}

v1::Model OmniModel(const std::string& profile = "qwen2_5_omni") {
  v1::Model model = MakeModel(3);
  model.set_profile(profile);
  model.mutable_token_ids()->set_video(kVideo);
  model.mutable_token_ids()->set_audio(kAudio);
  return model;
}

// A text, a video of two patches of 1x2 tokens, a second and thus 25 positions
// apart, a text: as get_rope_index of transformers' Qwen2.5-Omni places them,
// the text behind the last time.
TEST(PositionsTest, TextOfOmniContinuesAfterAVideosTimes) {
  const std::vector<int32_t> ids = {11, kVideo, kVideo, kVideo, kVideo, 12};
  std::vector<int32_t> out(3 * ids.size());
  const GridThw video = {2, 2, 4, 1, /*ids_per_second=*/25, /*seconds=*/1};
  ASSERT_TRUE(
      ComputePositions(ids, {}, OmniModel(), absl::MakeSpan(out), {video})
          .ok());
  const int32_t expected[] = {0, 1, 1, 26, 26, 27,  //
                              0, 1, 1, 1,  1,  27,  //
                              0, 1, 2, 1,  2,  27};
  EXPECT_THAT(out, ElementsAreArray(expected));
}

// Texts, images, videos, clips and videos with their audio: equal to
// transformers' to the bit, also Qwen3-Omni's fractions.
TEST(PositionsTest, OfOmniModelsAreTransformers) {
  std::ifstream file("tests/server/text/testdata/omni_positions.json");
  const auto cases = nlohmann::json::parse(file);
  int fractions = 0;
  for (const auto& one : cases) {
    SCOPED_TRACE(one.dump().substr(0, 200));
    std::vector<int32_t> ids;
    for (const auto& run : one["ids"]) {
      ids.insert(ids.end(), run[1].get<size_t>(), run[0].get<int32_t>());
    }
    const std::string profile = one["model"];
    const uint32_t per_second = profile == "qwen2_5_omni" ? 25 : 13;
    std::vector<GridThw> images;
    for (const auto& grid : one["images"]) {
      images.push_back({grid[0], grid[1], grid[2]});
    }
    std::vector<GridThw> videos;
    for (const auto& video : one["videos"]) {
      videos.push_back({video[0][0], video[0][1], video[0][2], 1, per_second,
                        video[1].get<double>(), video[2].get<uint64_t>()});
    }
    const v1::Model model = OmniModel(profile);
    std::vector<int32_t> out(3 * ids.size());
    const absl::Status placed =
        ComputePositions(ids, images, model, absl::MakeSpan(out), videos);
    ASSERT_TRUE(placed.ok()) << placed;
    for (size_t i = 0; i < out.size(); ++i) {
      const auto& wanted = one["positions"][i / ids.size()][i % ids.size()];
      if (profile == "qwen2_5_omni") {
        ASSERT_EQ(out[i], wanted.get<int32_t>()) << i;
      } else {
        const float found = std::bit_cast<float>(out[i]);
        ASSERT_EQ(found, wanted.get<float>()) << i;
        fractions += found != std::floor(found);
      }
    }
  }
  EXPECT_EQ(cases.size(), 14u);
  EXPECT_EQ(fractions, 86);
  std::vector<int32_t> counted(6);
  CountPositions(OmniModel("qwen3_omni_moe"), absl::MakeSpan(counted));
  EXPECT_EQ(std::bit_cast<float>(counted[5]), 1);
  CountPositions(OmniModel(), absl::MakeSpan(counted));
  EXPECT_EQ(counted[5], 1);
}

// The same with three tokens of the video's audio, which follow those of the
// only chunk: two marks share a position at each end, audio and video begin at
// one, and the marks behind follow the last run, not the largest position.
TEST(PositionsTest, AVideoWithItsAudioIsPlacedAsByOmni) {
  const std::vector<int32_t> ids = {11,     12,     1,      2,      kVideo,
                                    kVideo, kVideo, kVideo, kAudio, kAudio,
                                    kAudio, 3,      4,      13};
  std::vector<int32_t> out(3 * ids.size());
  const GridThw video = {2, 2, 4, 1, 25, 1, /*audio_tokens=*/3};
  const auto place = [&](const std::vector<int32_t>& of) {
    return ComputePositions(of, {}, OmniModel(), absl::MakeSpan(out), {video});
  };
  ASSERT_TRUE(place(ids).ok());
  const int32_t expected[] = {0, 1, 2, 2, 3, 3, 28, 28, 3, 4, 5, 6, 6, 7,  //
                              0, 1, 2, 2, 3, 3, 3,  3,  3, 4, 5, 6, 6, 7,  //
                              0, 1, 2, 2, 3, 4, 3,  4,  3, 4, 5, 6, 6, 7};
  EXPECT_THAT(out, ElementsAreArray(expected));
  std::vector<int32_t> swapped = ids;
  std::swap(swapped[7], swapped[8]);
  EXPECT_THAT(std::string(place(swapped).message()),
              HasSubstr("token 7 is 151646 within a video with its audio; "
                        "wanted 151656, a placeholder of the video"));
  // Nothing before it, or behind it.
  std::vector<int32_t> cut(ids.begin() + 3, ids.end());
  out.resize(3 * cut.size());
  EXPECT_THAT(std::string(place(cut).message()),
              HasSubstr("two marks at both ends does not fit"));
  cut.assign(ids.begin(), ids.begin() + 12);
  out.resize(3 * cut.size());
  EXPECT_THAT(std::string(place(cut).message()),
              HasSubstr("two marks at both ends does not fit"));
}

TEST(PositionsTest, RefusesVideosThatDoNotFit) {
  v1::Model model = MakeModel(3);
  model.mutable_token_ids()->set_video(kVideo);
  std::vector<int32_t> out(9);
  const auto reason = [&](const std::vector<int32_t>& ids,
                          const std::vector<GridThw>& videos) {
    return std::string(
        ComputePositions(ids, {}, model, absl::MakeSpan(out), videos)
            .message());
  };
  EXPECT_THAT(reason({1, kVideo, kVideo}, {{2, 2, 4}}),
              HasSubstr("video 0, grid (2, 2, 4): more tokens"));
  EXPECT_THAT(reason({kVideo, 1, kVideo}, {{2, 2, 2}}),
              HasSubstr("video 0 has 2 tokens, but only 1 placeholders"));
  EXPECT_THAT(reason({1, 2, 3}, {{1, 2, 2}}),
              HasSubstr("only 0 of 1 videos have placeholders"));
}

TEST(PositionsTest, TextAloneCountsOnEveryAxis) {
  std::vector<int32_t> out;
  ASSERT_TRUE(Compute({5, 6, 7}, {}, &out).ok());
  const int32_t expected[] = {0, 1, 2, 0, 1, 2, 0, 1, 2};
  EXPECT_THAT(out, ElementsAreArray(expected));
  ASSERT_TRUE(Compute({}, {}, &out).ok());
}

// Two adjacent images still count as two.
TEST(PositionsTest, CountsAdjacentImagesSeparately) {
  std::vector<int32_t> out;
  const std::vector<int32_t> ids(3, kImage);
  ASSERT_TRUE(Compute(ids, {{1, 2, 4}, {1, 2, 2}}, &out).ok());
  const int32_t expected[] = {0, 0, 2, 0, 0, 2, 0, 1, 2};
  EXPECT_THAT(out, ElementsAreArray(expected));
}

TEST(PositionsTest, OneAxisCountsTokens) {
  std::vector<int32_t> ids(20, kImage);
  ids[0] = ids[19] = 7;
  std::vector<int32_t> out;
  ASSERT_TRUE(Compute(ids, {{1, 6, 12}}, &out, 1).ok());
  std::vector<int32_t> expected(20);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(out, expected);
}

TEST(PositionsTest, RefusesGridsThatDoNotFit) {
  struct Case {
    std::vector<int32_t> ids;
    std::vector<GridThw> grids;
    const char* complaint;
  };
  const uint32_t most = 0xfffffffe;
  const Case cases[] = {
      {{1, kImage}, {}, "token 1 belongs to no image"},
      {{1, 2}, {{1, 2, 2}}, "only 0 of 1"},
      {{kImage, 2}, {{1, 2, 4}}, "only 1 placeholders"},
      {{kImage, kImage}, {{1, 2, 2}}, "token 1 belongs to no image"},
      {{kImage}, {{1, 4, 4}}, "more tokens"},
      {{kImage}, {{most, most, most}}, "more tokens"},
      {{kImage}, {{most, 2, 2}}, "more tokens"},
      {{kImage}, {{1, 3, 2}}, "multiples of merge"},
      {{kImage}, {{1, 0, 2}}, "a side is 0"},
      {{kImage}, {{0, 2, 2}}, "a side is 0"},
  };
  for (const Case& bad : cases) {
    for (const uint32_t axes : {1, 3}) {
      std::vector<int32_t> out;
      const absl::Status status = Compute(bad.ids, bad.grids, &out, axes);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(bad.complaint));
    }
  }
}

TEST(PositionsTest, RefusesAnOutputOfTheWrongSizeOrModel) {
  std::vector<int32_t> out(5);
  EXPECT_EQ(
      ComputePositions({1, 2}, {}, MakeModel(3), absl::MakeSpan(out)).code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      ComputePositions({1, 2, 3, 4, 5}, {}, MakeModel(2), absl::MakeSpan(out))
          .code(),
      absl::StatusCode::kInvalidArgument);
}

TEST(PositionsTest, EqualsHuggingFace) {
  constexpr char kGolden[] = "golden/rope.json";
  const std::optional<std::string> shared = SharedDirWith(kGolden);
  if (!shared) GTEST_SKIP() << NotShared(kGolden);
  std::ifstream file(*shared + "/" + kGolden);
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_FALSE(golden.at("cases").empty());
  for (const nlohmann::json& rope : golden.at("cases")) {
    std::vector<GridThw> grids;
    for (const nlohmann::json& grid : rope.at("image_grid_thw")) {
      grids.push_back({grid[0], grid[1], grid[2]});
    }
    std::vector<int32_t> expected;
    for (const nlohmann::json& axis : rope.at("position_ids")) {
      for (const nlohmann::json& position : axis) expected.push_back(position);
    }
    std::vector<int32_t> out;
    const absl::Status status =
        Compute(rope.at("input_ids").get<std::vector<int32_t>>(), grids, &out);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(out, expected);
  }
}

// Compares the positions of families' images with those of their models.

constexpr int32_t kFamilyImage = 5;

v1::Model ModelOf(const std::string& profile) {
  v1::Model model;
  model.set_profile(profile);
  model.mutable_token_ids()->set_image(kFamilyImage);
  EXPECT_TRUE(ApplyModelProfile(&model).ok());
  return model;
}

// make_family_positions.py made the cases: the first placeholder of each image,
// and its rows and columns of tokens.
TEST(FamilyPositionsTest, EqualThoseOfTheModels) {
  const nlohmann::json cases =
      ReadJsonOrFail("tests/server/text/testdata/family_positions.json");
  ASSERT_EQ(cases.size(), 24u);
  for (const nlohmann::json& expected : cases) {
    SCOPED_TRACE(expected.dump());
    const v1::Model model = ModelOf(expected["family"]);
    std::vector<int32_t> ids(expected["tokens"].get<size_t>(), 9);
    std::vector<GridThw> grids;
    for (const nlohmann::json& image : expected["images"]) {
      const uint32_t rows = image[1], columns = image[2];
      // HunyuanVL: a newline a row, and both ends.
      const uint32_t tokens = model.position_axes() == 4
                                  ? rows * (columns + 1) + 2
                                  : rows * columns;
      std::fill_n(ids.begin() + image[0].get<size_t>(), tokens, kFamilyImage);
      grids.push_back({1, rows * model.merge(), columns * model.merge()});
    }
    std::vector<int32_t> wanted;
    for (const nlohmann::json& axis : expected["positions"]) {
      for (const nlohmann::json& id : axis) wanted.push_back(id);
    }
    std::vector<int32_t> positions(model.position_axes() * ids.size());
    const absl::Status status =
        ComputePositions(ids, grids, model, absl::MakeSpan(positions));
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(positions, wanted);
  }
}

TEST(FamilyPositionsTest, OtherFamiliesHaveOneAxis) {
  for (const char* name : {"gemma3", "llama4", "internvl3", "pixtral"}) {
    EXPECT_EQ(ModelOf(name).position_axes(), 1u);
  }
}

TEST(FamilyPositionsTest, RefusesImagesThatDoNotFit) {
  const v1::Model model = ModelOf("hunyuan_vl");
  std::vector<int32_t> positions(4 * 10);
  const std::vector<int32_t> ids = {1,
                                    kFamilyImage,
                                    kFamilyImage,
                                    kFamilyImage,
                                    kFamilyImage,
                                    kFamilyImage,
                                    kFamilyImage,
                                    kFamilyImage,
                                    kFamilyImage,
                                    1};
  const auto message = [&](const std::vector<GridThw>& grids) {
    return std::string(
        ComputePositions(ids, grids, model, absl::MakeSpan(positions))
            .message());
  };
  EXPECT_EQ(message({{1, 4, 4}}), "");
  EXPECT_THAT(message({{1, 4, 6}}),
              HasSubstr("image 0 has 10 tokens from token 1"));
  EXPECT_THAT(message({{1, 1u << 31, 1u << 31}}), HasSubstr("image 0"));
  positions.pop_back();
  EXPECT_THAT(message({}), HasSubstr("room for 39 position ids"));
}

}  // namespace
}  // namespace ballast
