#include "server/recipe/turns_json.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

std::string Finish(TurnsJson json, size_t images) {
  const auto text = std::move(json).Finish(images);
  return text.ok() ? *text : std::string(text.status().message());
}

TEST(TurnsJsonTest, EscapesTexts) {
  TurnsJson json;
  json.AddTurn("user", absl::string_view("\"\\\n\0\x1f\x7f\xff", 7));
  EXPECT_EQ(Finish(json, 0),
            "{\"messages\":[{\"role\":\"user\",\"content\":"
            "\"\\\"\\\\\\u000a\\u0000\\u001f\x7f\xff\"}]}");
}

// Texts of several words' length with each byte at each place.
TEST(TurnsJsonTest, EscapesEachByteAtEachPlace) {
  for (int c = 0; c < 256; ++c) {
    const auto byte = static_cast<char>(c);
    std::string escaped(1, byte);
    if (c < 0x20) {
      escaped = absl::StrFormat("\\u%04x", c);
    } else if (byte == '"' || byte == '\\') {
      escaped.insert(0, "\\");
    }
    for (size_t length = 1; length < 20; ++length) {
      for (size_t at = 0; at < length; ++at) {
        std::string text(length, 'x');
        text[at] = byte;
        std::string json;
        AppendJsonText(text, &json);
        EXPECT_EQ(json, absl::StrCat("\"", text.substr(0, at), escaped,
                                     text.substr(at + 1), "\""));
      }
    }
  }
}

TEST(TurnsJsonTest, WritesKeysOfTurnsAndBesideThem) {
  TurnsJson json;
  json.AddBareTurn("assistant");
  json.AddKey("tool_calls", R"([{"a":1}])");
  json.BeginTurn("user");
  json.AddTextPart("thinking", "\"so\"");
  json.AddBeside("tools", "[]");
  EXPECT_EQ(Finish(json, 0),
            R"({"messages":[{"role":"assistant","tool_calls":[{"a":1}]},)"
            R"({"role":"user","content":[{"type":"thinking",)"
            R"("thinking":"\"so\""}]}],"tools":[]})");
}

TEST(TurnsJsonTest, PutsMarksBeforeTheFirstUserTurn) {
  TurnsJson json;
  json.AddTurn("system", "s");
  json.AddTurn("human", "q");
  json.AddTurn("gpt", "a");
  EXPECT_EQ(Finish(json, 2), R"({"messages":[{"role":"system","content":"s"},)"
                             R"({"role":"human","content":"<image><image>q"},)"
                             R"({"role":"gpt","content":"a"}]})");
  // Where a turn has one, all stay as they are, whatever their number.
  json.AddTurn("user", "a<image>");
  EXPECT_EQ(Finish(json, 2),
            R"({"messages":[{"role":"system","content":"s"},)"
            R"({"role":"human","content":"q"},{"role":"gpt","content":"a"},)"
            R"({"role":"user","content":"a<image>"}]})");
}

// The image would stand in the answer, with as many marks as images.
TEST(TurnsJsonTest, AnAnswerThatSpellsOutAMarkHasNoImage) {
  TurnsJson json;
  json.AddTurn("user", "Which tag?");
  json.AddTurn("assistant", "<image>");
  EXPECT_EQ(Finish(json, 1),
            R"({"messages":[{"role":"user","content":"<image>Which tag?"},)"
            R"({"role":"assistant","content":"<image>"}]})");
  // Nobody asks: its text has the place.
  TurnsJson alone;
  alone.AddTurn("gpt", "See <image>");
  EXPECT_EQ(Finish(alone, 1),
            R"({"messages":[{"role":"gpt","content":"See <image>"}]})");
}

TEST(TurnsJsonTest, PutsMarksOfVideosBehindThoseOfImages) {
  const auto content = [](absl::string_view said, size_t images,
                          size_t videos) {
    TurnsJson json;
    json.AddTurn("user", said);
    return *std::move(json).Finish(images, videos);
  };
  const auto wanted = [](const std::string& said) {
    return R"({"messages":[{"role":"user","content":")" + said + R"("}]})";
  };
  EXPECT_EQ(content("q", 1, 2), wanted("<image><video><video>q"));
  EXPECT_EQ(content("<image>q", 1, 1), wanted("<video><image>q"));
  EXPECT_EQ(content("<video>q", 1, 1), wanted("<image><video>q"));
  EXPECT_EQ(content("<video>q", 0, 1), wanted("<video>q"));
  // LLaVA marks videos so.
  EXPECT_EQ(content("<image>q", 0, 1), wanted("<image>q"));
}

TEST(TurnsJsonTest, WritesParts) {
  TurnsJson json;
  json.BeginTurn("assistant");
  json.AddText("a");
  EXPECT_EQ(
      Finish(json, 1),
      R"({"messages":[{"role":"assistant","content":[)"
      R"({"type":"text","text":"<image>"},{"type":"text","text":"a"}]}]})");
  json.AddPart("image_url");
  EXPECT_EQ(Finish(json, 1),
            R"({"messages":[{"role":"assistant","content":[)"
            R"({"type":"text","text":"a"},{"type":"image_url"}]}]})");
  json = TurnsJson();
  json.BeginTurn("user");
  json.AddPart("video", {{"start", 0.1}, {"fps", 2}});
  json.AddTurn("assistant", "a");
  json.AddSettings({{"weight", 0}});
  EXPECT_EQ(Finish(json, 0),
            R"({"messages":[{"role":"user","content":[{"type":"video",)"
            R"("start":0.10000000000000001,"fps":2}]},)"
            R"({"role":"assistant","content":"a","weight":0}]})");
  TurnsJson empty;
  empty.BeginTurn("user");
  EXPECT_EQ(Finish(empty, 0), R"({"messages":[{"role":"user","content":[]}]})");
}

TEST(TurnsJsonTest, RefusesNoneAndTooLongTurns) {
  EXPECT_EQ(Finish(TurnsJson(), 0), "no turns");
  const std::string text(kMaxTextBytes / 2, 'x');
  TurnsJson json;
  json.AddTurn("user", text);
  EXPECT_FALSE(json.TooLong());
  json.AddTurn("user", text);
  EXPECT_TRUE(json.TooLong());
  EXPECT_EQ(Finish(json, 0), "its text has over 67108864 bytes");
  // Escaped it is too long, too.
  const std::string controls(kMaxTextBytes / 4, '\1');
  TurnsJson escaped;
  escaped.AddTurn("user", controls);
  EXPECT_FALSE(escaped.TooLong());
  EXPECT_EQ(Finish(escaped, 0), "its text has over 67108864 bytes");
}

}  // namespace
}  // namespace ballast
