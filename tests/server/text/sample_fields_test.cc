#include "server/text/sample_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "absl/status/status.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Field = v1::Source::Field;

uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

absl::StatusOr<std::vector<uint32_t>> Read(const FieldSpec& spec,
                                           const std::string& json) {
  const std::vector<FieldSpec> specs = {spec};
  auto fields = ReadFields({specs, json});
  if (!fields.ok()) return fields.status();
  return (*fields)[0];
}

TEST(ReadFieldsTest, ReadsOneOfASample) {
  const FieldSpec real = {"x", Field::TYPE_FLOAT32, Field::PER_SAMPLE, {}};
  const FieldSpec whole = {"x", Field::TYPE_INT32, Field::PER_SAMPLE, {}};
  EXPECT_THAT(*Read(real, R"({"x": 0.1})"), ElementsAre(Bits(0.1f)));
  EXPECT_THAT(*Read(real, R"({"x": -3})"), ElementsAre(Bits(-3)));
  EXPECT_THAT(*Read(whole, R"({"x": -3})"), ElementsAre(0xFFFFFFFDu));
  EXPECT_THAT(*Read(whole, R"({"x": 2147483647})"), ElementsAre(0x7FFFFFFFu));
  EXPECT_THAT(*Read(whole, "{\"x\": 4.0, \"s\": \"\xff\"}"), ElementsAre(4u));
}

TEST(ReadFieldsTest, ReadsOneOfEachTurn) {
  const FieldSpec spec = {"x", Field::TYPE_INT32, Field::PER_TURN, {}};
  EXPECT_THAT(*Read(spec, R"({"messages": [{"x": 4}, {"x": 5}]})"),
              ElementsAre(4u, 5u));
  EXPECT_THAT(*Read(spec, R"({"conversations": [{}, {}], "x": [4, 5]})"),
              ElementsAre(4u, 5u));
  EXPECT_THAT(*Read(spec, R"({"messages": "[{\"x\": 4}]"})"), ElementsAre(4u));
  EXPECT_EQ(Read(spec, R"({"messages": [{"x": 4}, {}]})").status().message(),
            "field x: turn 2: missing; wanted the key in the record, or a "
            "default in sources[].fields");
  EXPECT_EQ(
      Read(spec, R"({"messages": [{}, {}], "x": [1]})").status().message(),
      "field x: found 1 numbers for 2 turns; wanted one for each");
  EXPECT_THAT(std::string(Read(spec, R"({"text": "a"})").status().message()),
              HasSubstr("found no turns"));
}

TEST(ReadFieldsTest, FillsInDefaults) {
  FieldSpec spec = {"x", Field::TYPE_FLOAT32, Field::PER_SAMPLE, 2.5};
  for (const char* json : {"", "{}", R"({"x": null})", "[1, 2]"}) {
    EXPECT_THAT(*Read(spec, json), ElementsAre(Bits(2.5))) << json;
  }
  spec.per = Field::PER_TURN;
  EXPECT_THAT(*Read(spec, R"({"messages": [{}, {"x": 1}]})"),
              ElementsAre(Bits(2.5), Bits(1)));
  EXPECT_THAT(*Read(spec, ""), IsEmpty());
  spec.per = Field::PER_TOKEN;
  EXPECT_THAT(*Read(spec, "{}"), IsEmpty());
  EXPECT_THAT(*Read(spec, R"({"x": [null, 1]})"),
              ElementsAre(Bits(2.5), Bits(1)));
  EXPECT_EQ(MissingBits(spec), Bits(2.5));
  EXPECT_EQ(MissingBits({"x", Field::TYPE_INT32, Field::PER_SAMPLE, {}}), 0u);
}

TEST(ReadFieldsTest, RefusesWhatTheTypeDoesNotHold) {
  const FieldSpec real = {"x", Field::TYPE_FLOAT32, Field::PER_SAMPLE, {}};
  const FieldSpec whole = {"x", Field::TYPE_INT32, Field::PER_SAMPLE, {}};
  for (const char* value : {"\"1\"", "true", "[1]", "{}", "1e+39"}) {
    const std::string json = std::string("{\"x\": ") + value + "}";
    EXPECT_EQ(Read(real, json).status().message(),
              std::string("field x: found ") + value +
                  "; wanted a number that a float32 holds");
  }
  for (const char* value : {"0.5", "2147483648", "-2147483649", "\"1\""}) {
    const std::string json = std::string("{\"x\": ") + value + "}";
    EXPECT_EQ(Read(whole, json).status().message(),
              std::string("field x: found ") + value +
                  "; wanted a whole number of 32 bits");
  }
  const FieldSpec tokens = {"x", Field::TYPE_INT32, Field::PER_TOKEN, 3};
  EXPECT_EQ(Read(tokens, R"({"x": 1})").status().message(),
            "field x: found 1; wanted a list of numbers");
  EXPECT_EQ(Read(tokens, R"({"x": [1, "a"]})").status().message(),
            "field x: number 1: found \"a\"; wanted a whole number of 32 "
            "bits");
  EXPECT_THAT(std::string(Read(real, "{").status().message()),
              HasSubstr("not JSON"));
}

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
  ExpectRefused("[9, 6]", {1}, "image tokens 0 to 0 are not between");
  ExpectRefused("[5, 9]", {1}, "image tokens 1 to 1 are not between");
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
