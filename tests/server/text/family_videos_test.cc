// Texts of InternVL's and LLaVA-OneVision's videos: ids as transformers'
// processors make them (make_family_video_vectors.py); of LLaVA-Video's: as a
// second writing of its training code makes them (make_llava_video_chats.py).
#include "server/text/media_text.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "server/model/model_profile.h"
#include "server/model/model_rows.h"
#include "server/model/profiles.h"
#include "server/text/model_tokenizer.h"
#include "server/text/sample_text.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kFolder[] = "tests/server/text/testdata/";

// A video of `frames` frames of 256 tokens.
StreamText VideoOf(uint32_t frames) {
  VideoPlan plan;
  plan.grid_t = frames;
  plan.tokens = uint64_t{frames} * 256;
  return TextOfVideo(VideoRule::kInternVl, plan, 1);
}

// A family with a small tokenizer.
class FamilyVideosTest : public ::testing::Test {
 protected:
  explicit FamilyVideosTest(const std::string& family = NameUnderRules(
                                "internvl3", v1::Model::RULES_TRANSFORMERS)) {
    model_.set_profile(family);
    model_.set_chat_template(family);
    model_.set_tokenizer(absl::StrCat(kFolder, "family_chats.tokenizer.json"));
    model_.mutable_token_ids()->set_end_of_text(7);
    EXPECT_TRUE(ApplyModelProfile(&model_).ok());
    tokenizer_ = OpenModelTokenizer(&model_).value();
    family_ = ModelText::Create(model_, tokenizer_.get()).value();
    options_ = {family_.get(), 1u << 20};
  }

  absl::StatusOr<TextSample> Build(const std::string& text,
                                   const std::vector<ImageSize>& sizes,
                                   const std::vector<StreamText>& videos,
                                   TextForm form = TextForm::kConversation) {
    return BuildText(text, form, sizes, options_, videos);
  }

  // The ids as text; a run of placeholders as [N].
  std::string Shown(absl::Span<const int32_t> ids) const {
    std::string text;
    for (size_t i = 0; i < ids.size();) {
      size_t n = 1;
      if (ids[i] == model_.token_ids().image()) {
        while (i + n < ids.size() && ids[i + n] == ids[i]) ++n;
        absl::StrAppend(&text, "[", n, "]");
      } else {
        EXPECT_TRUE(tokenizer_->Decode({ids[i]}, &text).ok());
      }
      i += n;
    }
    return text;
  }

  // Builds the conversations of a file of vectors, with videos of `video_of`.
  void CheckVectors(const std::string& file,
                    StreamText (*video_of)(uint32_t frames)) {
    const nlohmann::json vectors = ReadJsonOrFail(absl::StrCat(kFolder, file));
    for (const nlohmann::json& vector : vectors) {
      const std::string text =
          nlohmann::json{{"messages", vector["messages"]}}.dump();
      SCOPED_TRACE(text);
      std::vector<ImageSize> sizes;
      for (const nlohmann::json& size : vector["images"]) {
        sizes.push_back({.width = size[1], .height = size[0]});
      }
      std::vector<StreamText> videos;
      for (const uint32_t frames : vector["frames"]) {
        videos.push_back(video_of(frames));
      }
      std::vector<int32_t> wanted;
      for (const nlohmann::json& run : vector["ids"]) {
        wanted.insert(
            wanted.end(), run.is_array() ? run[1].get<size_t>() : 1,
            run.is_array() ? run[0].get<int32_t>() : run.get<int32_t>());
      }
      const auto built = Build(text, sizes, videos);
      ASSERT_TRUE(built.ok()) << built.status();
      EXPECT_EQ(built->ids, wanted);
      // Measuring agrees, and says that other limits give another text.
      const auto measured =
          MeasureText(text, TextForm::kConversation, sizes, options_, videos);
      ASSERT_TRUE(measured.ok()) << measured.status();
      uint64_t placeholders = *family_->images().Placeholders(sizes);
      for (const StreamText& video : videos)
        placeholders += uint64_t{video.runs} * video.run_tokens;
      EXPECT_EQ(measured->text_tokens + placeholders, wanted.size());
      EXPECT_EQ(measured->label_tokens, built->label_tokens);
      EXPECT_TRUE(measured->limited);
    }
  }

  v1::Model model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<const ModelText> family_;
  TextOptions options_;
};

TEST_F(FamilyVideosTest, IdsEqualThoseOfTheProcessor) {
  CheckVectors("family_videos.json", VideoOf);
}

// LLaVA-OneVision, whose videos have a placeholder of their own.
class OneVisionVideosTest : public FamilyVideosTest {
 protected:
  OneVisionVideosTest()
      : FamilyVideosTest(
            NameUnderRules("llava_onevision", v1::Model::RULES_TRANSFORMERS)) {}

  // A video of `frames` frames of 196 tokens, and a newline.
  static StreamText PooledVideoOf(uint32_t frames) {
    VideoPlan plan;
    plan.grid_t = frames;
    plan.tokens = uint64_t{frames} * 196 + 1;
    return TextOfVideo(VideoRule::kOneVision, plan, 1);
  }
};

TEST_F(OneVisionVideosTest, IdsEqualThoseOfTheProcessor) {
  CheckVectors("onevision_videos.json", PooledVideoOf);
}

TEST_F(OneVisionVideosTest, NeedsTheTokenOfVideos) {
  model_.mutable_token_ids()->set_video(7);
  const auto given = ModelText::Create(model_, tokenizer_.get());
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ((*given)->model().token_ids().video(), 7);
  // The configuration's model is left as it is, also for jobs without videos.
  model_.mutable_token_ids()->set_video(-1);
  const auto own = ModelText::Create(model_, tokenizer_.get());
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ((*own)->model().token_ids().video(),
            *tokenizer_->SpecialTokenId("<video>"));
}

// LLaVA-Video, whose videos have the placeholder of images.
class LlavaVideosTest : public FamilyVideosTest {
 protected:
  LlavaVideosTest() : FamilyVideosTest("llava_video") {}

  // A video of `frames` frames of 210 tokens, and its sentence.
  static StreamText VideoOf(uint32_t frames, double length = 0,
                            const std::vector<double>& times = {}) {
    VideoPlan plan;
    plan.grid_t = frames;
    plan.tokens = uint64_t{frames} * 210;
    plan.told_length = length;
    plan.told_seconds = times;
    return TextOfVideo(VideoRule::kLlava, plan, 1);
  }

  std::string GetFault(const std::string& text, size_t images, size_t videos,
                       TextForm form = TextForm::kConversation) {
    return std::string(Build(text, std::vector<ImageSize>(images, {500, 400}),
                             std::vector<StreamText>(videos, VideoOf(1)), form)
                           .status()
                           .message());
  }
};

TEST_F(LlavaVideosTest, IdsEqualThoseOfItsTrainingCode) {
  const nlohmann::json vectors =
      ReadJsonOrFail(absl::StrCat(kFolder, "llava_video_chats.json"));
  ASSERT_EQ(vectors.size(), 12u);
  for (const nlohmann::json& vector : vectors) {
    SCOPED_TRACE(vector.dump());
    std::vector<ImageSize> sizes;
    if (vector.contains("images")) sizes.resize(vector["images"].size());
    for (ImageSize& size : sizes) size = {500, 400};
    std::vector<StreamText> videos;
    if (vector.contains("frames")) {
      videos.push_back(
          VideoOf(vector["frames"], vector["length"], vector["times"]));
    }
    std::vector<int32_t> wanted;
    for (const nlohmann::json& run : vector["ids"]) {
      wanted.insert(
          wanted.end(), run.is_array() ? run[1].get<size_t>() : 1,
          run.is_array() ? run[0].get<int32_t>() : run.get<int32_t>());
    }
    const auto built = Build(vector.dump(), sizes, videos);
    ASSERT_TRUE(built.ok()) << built.status();
    EXPECT_EQ(built->ids, wanted);
    const auto measured = MeasureText(vector.dump(), TextForm::kConversation,
                                      sizes, options_, videos);
    ASSERT_TRUE(measured.ok()) << measured.status();
    uint64_t placeholders = *family_->images().Placeholders(sizes);
    for (const StreamText& video : videos) placeholders += video.run_tokens;
    EXPECT_EQ(measured->text_tokens + placeholders, wanted.size());
  }
}

TEST_F(LlavaVideosTest, RefusesWhatItsTrainingCodeDoesNotTake) {
  const std::string chat =
      R"({"conversations": [{"from": "human", "value": "<video>"},
          {"from": "gpt", "value": "a"}]})";
  EXPECT_EQ(GetFault(chat, 0, 1), "");
  EXPECT_THAT(GetFault(chat, 0, 2),
              HasSubstr("2 videos; LLaVA-Video's training code takes one video "
                        "a sample"));
  EXPECT_THAT(GetFault(chat, 1, 1), HasSubstr("a video with 1 images"));
  EXPECT_THAT(GetFault("<video> words", 0, 1, TextForm::kDocument),
              HasSubstr("a video in a document"));
  // Its training code would train on the text alone.
  EXPECT_THAT(GetFault(R"({"conversations": [{"from": "human", "value": "b"},
                         {"from": "gpt", "value": "a"}]})",
                       0, 1),
              HasSubstr("has 0 <image> marks"));
}

TEST_F(LlavaVideosTest, TimesBelongToTheFirstTurnOfTheUser) {
  const auto with = [](const std::string& role) {
    return absl::StrCat(R"({"messages": [{"role": "system", "content": "S"},
                                         {"role": ")",
                        role, R"(", "content": "<video>a"}]})");
  };
  const StreamText video = VideoOf(1, 1.0, {0});
  const auto built = Build(with("user"), {}, {video});
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_THAT(Shown(built->ids), HasSubstr("user\n[210]\nThe video lasts for "
                                           "1.00 seconds, and 1 frames"));
  EXPECT_THAT(
      std::string(Build(with("assistant"), {}, {video}).status().message()),
      HasSubstr("does not begin with a turn of the user"));
}

TEST_F(LlavaVideosTest, AnIdOfVideosIsTheConfigurations) {
  EXPECT_EQ(family_->video_placeholder(), model_.token_ids().image());
  model_.mutable_token_ids()->set_video(7);
  const auto given = ModelText::Create(model_, tokenizer_.get());
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ((*given)->video_placeholder(), 7);
}

// As LLaVA's data have it: `<image>` in a sample of videos alone.
TEST_F(FamilyVideosTest, TheMarkOfAnImageStandsForAVideoWhereThereAreNoImages) {
  const auto with = [](const std::string& mark) {
    return absl::StrCat(R"({"messages": [{"role": "user", "content": "a )",
                        mark,
                        R"( b"}, {"role": "assistant", "content": "c"}]})");
  };
  const auto one = Build(with("<video>"), {}, {VideoOf(2)});
  const auto other = Build(with("<image>"), {}, {VideoOf(2)});
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(one->ids, other->ids);
  EXPECT_THAT(Shown(one->ids),
              HasSubstr("a Frame1: <img>[256]</img>\nFrame2: <img>[256]</img>\n"
                        " b<|im_end|>"));
}

// Frames come first in a document without marks, and stand where marks are.
TEST_F(FamilyVideosTest, DocumentsTakeVideos) {
  const auto plain = Build("words", {}, {VideoOf(1)}, TextForm::kDocument);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_THAT(Shown(plain->ids), HasSubstr("Frame1: <img>[256]</img>words"));
  const auto marked =
      Build("some <video>words", {}, {VideoOf(1)}, TextForm::kDocument);
  ASSERT_TRUE(marked.ok()) << marked.status();
  EXPECT_THAT(Shown(marked->ids),
              HasSubstr("some Frame1: <img>[256]</img>words"));
  EXPECT_THAT(
      std::string(Build("[1, 2]", {}, {VideoOf(1)}, TextForm::kPackedJson)
                      .status()
                      .message()),
      HasSubstr("video is not supported in a text of token ids"));
}

TEST(MarkMediaTest, MarksStandForImagesAndVideosInTheirOrder) {
  // The texts and then the order, or the fault.
  const auto marked = [](uint64_t images, uint64_t videos,
                         std::vector<std::string> texts,
                         std::optional<uint64_t> clips = std::nullopt) {
    std::vector<std::string*> pointers;
    for (std::string& text : texts) pointers.push_back(&text);
    const auto order = MarkMedia(
        {{images, videos, clips.value_or(0)}},
        clips.has_value() ? FindRowsRule("qwen2_audio") : nullptr, pointers);
    if (!order.ok()) {
      return std::vector<std::string>{std::string(order.status().message())};
    }
    std::string kinds;
    for (const MediumKind of : *order) kinds += "ivs"[static_cast<int>(of)];
    texts.push_back(kinds);
    return texts;
  };
  EXPECT_THAT(marked(1, 2, {"a <image> <video>", "b<video>"}),
              ElementsAre("a <image> <image>", "b<image>", "ivv"));
  EXPECT_THAT(marked(0, 2, {"<image><video>x"}),
              ElementsAre("<image><image>x", "vv"));
  EXPECT_THAT(marked(2, 1, {"no marks"}), ElementsAre("no marks", "iiv"));
  EXPECT_THAT(marked(1, 1, {"<video> <image>"}),
              ElementsAre("<image> <image>", "vi"));
  EXPECT_THAT(marked(2, 2, {"<image><video>", "<image>", "<video>"}),
              ElementsAre("<image><image>", "<image>", "<image>", "iviv"));
  EXPECT_THAT(marked(1, 1, {"<video><video>"}),
              ElementsAre(HasSubstr("0 <image>, 2 <video> marks, the "
                                    "sample has 1 images, 1 videos")));
  EXPECT_THAT(marked(0, 1, {"<video>", "<video>"}),
              ElementsAre(HasSubstr("0 <image>, 2 <video>")));
  EXPECT_THAT(marked(1, 1, {"<image>"}),
              ElementsAre(HasSubstr("1 <image>, 0 <video>")));
  EXPECT_THAT(marked(1, 1, {"<audio><video>", "<image><audio>"}, 2),
              ElementsAre("<image><image>", "<image><image>", "svis"));
  EXPECT_THAT(marked(1, 0, {"no marks"}, 2), ElementsAre("no marks", "iss"));
  EXPECT_THAT(marked(0, 0, {"<audio>"}, 0),
              ElementsAre(HasSubstr("1 <audio> marks, the sample has 0 images, "
                                    "0 videos, 0 clips of audio")));
  // Of a model without audio the mark is text.
  EXPECT_THAT(marked(1, 0, {"<audio><image>"}),
              ElementsAre("<audio><image>", "i"));
}

TEST(MarkMediaTest, CountsTheMediaBeforeEachOther) {
  constexpr MediumKind kImage = MediumKind::kImage;
  constexpr MediumKind kVideo = MediumKind::kVideo;
  constexpr MediumKind kAudio = MediumKind::kAudio;
  EXPECT_THAT(CountsBefore({}, kVideo, kImage), ElementsAre());
  EXPECT_THAT(CountsBefore({kImage, kVideo, kVideo}, kVideo, kImage),
              ElementsAre(1, 1));
  EXPECT_THAT(CountsBefore({kVideo, kImage, kVideo, kAudio, kImage, kVideo},
                           kVideo, kImage),
              ElementsAre(0, 1, 2));
  EXPECT_THAT(CountsBefore({kAudio, kVideo, kImage, kVideo, kAudio, kAudio},
                           kAudio, kVideo),
              ElementsAre(0, 2, 2));
}

TEST_F(FamilyVideosTest, TellsTheImagesBeforeVideosOfAnyText) {
  const auto before = [&](const std::string& text, TextForm form) {
    const auto order = family_->FindOrder(text, form, {{2, 1, 0}});
    return order.ok()
               ? CountsBefore(*order, MediumKind::kVideo, MediumKind::kImage)
               : std::vector<uint32_t>{99};
  };
  EXPECT_THAT(before("words", TextForm::kDocument), ElementsAre(2));
  EXPECT_THAT(before("<image> <video> <image>", TextForm::kDocument),
              ElementsAre(1));
  EXPECT_THAT(before(R"({"messages": [{"role": "user", "content": [)"
                     R"({"type": "video"}, {"type": "image"},)"
                     R"( {"type": "text", "text": "<image>"}]}]})",
                     TextForm::kConversation),
              ElementsAre(0));
  EXPECT_THAT(before("<image>", TextForm::kDocument), ElementsAre(99));
}

}  // namespace
}  // namespace ballast
