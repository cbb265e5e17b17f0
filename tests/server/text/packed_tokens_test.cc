#include "server/text/packed_tokens.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PackedTokensTest : public ::testing::Test {
 protected:
  PackedTokensTest() {
    ids_.set_image(9);
    ids_.set_video(8);
    ids_.set_vision_start(5);
    ids_.set_vision_end(6);
  }

  // Shows each token: its id, with + if it is supervised; images as #number.
  static std::vector<std::string> Shown(
      const absl::StatusOr<std::vector<TextToken>>& tokens) {
    if (!tokens.ok()) return {std::string(tokens.status().message())};
    std::vector<std::string> shown;
    for (const TextToken& token : *tokens) {
      const std::string id = std::to_string(token.id);
      shown.push_back(token.kind == TextToken::Kind::kImage        ? "#" + id
                      : token.kind == TextToken::Kind::kSupervised ? id + "+"
                                                                   : id);
    }
    return shown;
  }

  void ExpectRefused(const std::string& json, std::vector<uint32_t> images,
                     const char* complaint) {
    const absl::Status status =
        ParsePackedJson(json, {images, {}}, ids_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(std::string(status.message()), HasSubstr(complaint));
  }

  v1::TokenIds ids_;
};

TEST_F(PackedTokensTest, BytesAreLittleEndian) {
  EXPECT_THAT(
      Shown(ParsePackedBytes(
          std::string("\1\0\0\0\0\1\0\0\xFF\xFF\xFF\x7F", 12), {}, ids_)),
      ElementsAre("1+", "256+", "2147483647+"));
}

TEST_F(PackedTokensTest, JsonIsAListOrAnObject) {
  EXPECT_THAT(Shown(ParsePackedJson("[1, 2]", {}, ids_)),
              ElementsAre("1+", "2+"));
  EXPECT_THAT(Shown(ParsePackedJson(R"({"tokens": [1], "x": 2})", {}, ids_)),
              ElementsAre("1+"));
  EXPECT_THAT(
      Shown(ParsePackedJson(
          R"({"tokens": [1, 2, 3], "labels": [-100, 2, -100]})", {}, ids_)),
      ElementsAre("1", "2+", "3"));
}

TEST_F(PackedTokensTest, ImagesAreFolded) {
  const std::vector<uint32_t> lengths = {2, 1};
  EXPECT_THAT(Shown(ParsePackedJson("[1, 5, 9, 9, 6, 5, 9, 6, 2]",
                                    {lengths, {}}, ids_)),
              ElementsAre("1+", "5", "#0", "6", "5", "#1", "6", "2+"));
  // Vision start and end without an image between are ordinary tokens.
  EXPECT_THAT(Shown(ParsePackedJson("[5, 6]", {}, ids_)),
              ElementsAre("5+", "6+"));
}

TEST_F(PackedTokensTest, RefusesPlaceholdersThatDoNotFitTheImages) {
  ExpectRefused("[5, 9, 9, 6]", {3},
                "image 0 (from 0) has 2 image tokens from token 1 on");
  ExpectRefused("[5, 9, 6]", {}, "token 1 begins image 0");
  ExpectRefused("[1]", {1}, "the tokens hold 0 images, the sample has 1");
  ExpectRefused("[9, 6]", {1}, "image tokens 0 to 0 do not stand between");
  ExpectRefused("[5, 9]", {1}, "image tokens 1 to 1 do not stand between");
  ExpectRefused("[5, 9, 6, 9, 6]", {1, 1}, "image tokens 3 to 3");
  ExpectRefused("[8]", {}, "videos are not supported");
}

TEST_F(PackedTokensTest, RefusesInvalidTokens) {
  ExpectRefused("", {}, "not valid JSON");
  ExpectRefused("[]", {}, "no tokens");
  ExpectRefused("{}", {}, "`tokens` is not a list");
  ExpectRefused("5", {}, "`tokens` is not a list");
  ExpectRefused("[1, -1]", {}, "token 1 is -1");
  ExpectRefused("[1, 2147483648]", {}, "token 1 is 2147483648");
  ExpectRefused("[1.5]", {}, "token 0 is 1.5");
  ExpectRefused("[\"a\"]", {}, "token 0 is \"a\"");
  ExpectRefused(R"({"tokens": [1], "labels": [1, 2]})", {}, "2 labels for 1");
  ExpectRefused(R"({"tokens": [1], "labels": [2]})", {},
                "label 0 is 2, wanted -100 or 1");
  ExpectRefused(R"({"tokens": [1], "labels": 1})", {}, "`labels` is not");
  for (const std::string& bytes :
       {std::string("abc"), std::string("\0\0\0\x80", 4), std::string()}) {
    EXPECT_EQ(ParsePackedBytes(bytes, {}, ids_).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace ballast
