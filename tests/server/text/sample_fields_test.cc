#include "server/text/sample_fields.h"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ballast
