#include "server/delivery/placeholder.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"
#include "proto/block/block_layout.h"
#include "server/config/model_profile.h"
#include "server/text/model_tokenizer.h"

namespace ballast {
namespace {

// A placeholder has a token for each row of the tower's output, of the id that
// the model replaces by it.
TEST(FamilyPlaceholderTest, VideosHaveTheIdThatTheModelWants) {
  for (const char* profile : {"internvl3", "llava_onevision", "llava_video"}) {
    v1::Model model;
    model.set_profile(profile);
    model.set_chat_template(profile);
    model.set_tokenizer(
        "tests/server/text/testdata/family_chats.tokenizer.json");
    model.mutable_token_ids()->set_end_of_text(7);
    ASSERT_TRUE(ApplyModelProfile(&model).ok());
    const auto tokenizer = OpenModelTokenizer(&model);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const auto family = ModelText::Create(model, tokenizer->get());
    ASSERT_TRUE(family.ok()) << family.status();
    const std::vector<TileShape> sides = {{448, 448}};
    const uint64_t of_images = (*family)->Placeholders(sides).value();
    const std::vector<VideoText> videos = {{2, 30, {}}, {1, 7, {}}};
    constexpr uint32_t kBehind = 5;
    SampleRequest request = {};
    request.record.tokens = of_images + 67 + kBehind;
    const LanguagePayload layout = LayOutLanguage(request.record.tokens, 1);
    AlignedBuffer payload = AlignedBuffer::Create(layout.bytes).value();
    request.payload = payload.bytes();
    FillLanguagePlaceholder(request, **family, sides, videos, {});
    const auto* ids =
        reinterpret_cast<const int32_t*>(payload.bytes().data() + layout.ids);
    const auto count = [&](int32_t id) {
      return static_cast<uint64_t>(
          std::count(ids, ids + request.record.tokens, id));
    };
    const int32_t image = model.token_ids().image();
    const int32_t video = (*family)->video_placeholder();
    if (std::string(profile) != "llava_onevision") {
      EXPECT_EQ(video, image);
      EXPECT_EQ(count(image), of_images + 67);
    } else {
      EXPECT_EQ(video, *(*tokenizer)->SpecialTokenId("<video>"));
      EXPECT_EQ(count(image), of_images);
      EXPECT_EQ(count(video), 67u);
    }
    EXPECT_EQ(count(model.token_ids().pad()), kBehind);
  }
}

}  // namespace
}  // namespace ballast
