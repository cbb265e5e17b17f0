#include "server/corpus/conversation_json.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ConversationJsonTest, FindsImages) {
  EXPECT_THAT(*ConversationImages(R"({"image": "a/b.jpg"})"),
              ElementsAre("a/b.jpg"));
  EXPECT_THAT(*ConversationImages(R"({"image": ["b.jpg", "a\u0041.png"]})"),
              ElementsAre("b.jpg", "aA.png"));
  EXPECT_THAT(*ConversationImages(R"({"image": []})"), IsEmpty());
  EXPECT_THAT(*ConversationImages(R"({"image": null, "id": 1})"), IsEmpty());
  EXPECT_THAT(
      *ConversationImages(
          R"({"video": null, "conversations": [{"value": "<image>"}]})"),
      IsEmpty());
}

TEST(ConversationJsonTest, RefusesWithTheReason) {
  const auto reason = [](absl::string_view json) {
    const absl::Status status = ConversationImages(json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    return std::string(status.message());
  };
  EXPECT_THAT(reason(""), HasSubstr("not JSON: "));
  EXPECT_THAT(reason("{"), HasSubstr("not JSON: "));
  EXPECT_THAT(reason("{\"a\": \"\xff\"}"), HasSubstr("not JSON: "));
  EXPECT_THAT(reason(std::string(5000, '[')), HasSubstr("not JSON: "));
  EXPECT_EQ(reason("[]"), "not a JSON object");
  EXPECT_EQ(reason(R"({"image": 5})"),
            "`image` is neither a string nor a list of strings");
  EXPECT_EQ(reason(R"({"image": ["a.jpg", ["b.jpg"]]})"),
            "`image` is neither a string nor a list of strings");
  EXPECT_EQ(reason(R"({"image": ""})"), "path \"\" is empty");
  EXPECT_EQ(reason(R"({"image": ["a.jpg", "../b.jpg"]})"),
            "path \"../b.jpg\" holds \"..\"");
  EXPECT_EQ(reason(R"({"image": "/etc/passwd"})"),
            "path \"/etc/passwd\" is absolute");
  EXPECT_EQ(reason(R"({"image": "a\u0000.jpg"})"),
            "path \"a\\000.jpg\" holds a control character");
  std::string many = R"({"image": ["a")";
  for (int i = 0; i < 10'000; ++i) absl::StrAppend(&many, ",\"a\"");
  EXPECT_EQ(reason(many + "]}"), "over 10000 images");
}

TEST(ConversationJsonTest, RefusesVideo) {
  EXPECT_EQ(CheckConversation(R"({"video": "a.mp4"})").message(),
            "video is not supported: key `video`");
  EXPECT_EQ(CheckConversation(R"({"video": []})").message(),
            "video is not supported: key `video`");
  for (const absl::string_view mark : {"<video>", R"(\u003cvideo>)"}) {
    const std::string json = absl::StrCat(
        R"({"conversations": [{"from": "human", "value": "Hi"},
            {"from": "human", "value": "See )",
        mark, R"("}]})");
    EXPECT_EQ(CheckConversation(json).message(),
              "video is not supported: mark `<video>`");
  }
  // Elsewhere it is no mark; other shapes are the text builder's business.
  EXPECT_TRUE(CheckConversation(R"({"id": "<video>"})").ok());
  EXPECT_TRUE(
      CheckConversation(R"({"conversations": [1, {"value": 2}]})").ok());
  EXPECT_TRUE(CheckConversation(R"({"conversations": "no"})").ok());
}

}  // namespace
}  // namespace ballast
