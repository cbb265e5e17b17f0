#include "server/corpus/mock/mock_source.h"
#include "tests/fakes/shared_dir.h"

#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

std::vector<uint32_t> Draw(const LognormalLengths& lengths, size_t count) {
  MockLengths drawn(lengths);
  std::vector<uint32_t> all(count);
  for (uint32_t& length : all) length = drawn.Next();
  return all;
}

// Expected values from numpy's legacy generator.
TEST(MockLengthsTest, EqualsNumpy) {
  EXPECT_THAT(
      Draw({1024, 8192, 4096, 1.1}, 8),
      testing::ElementsAre(8192, 3473, 6564, 8192, 8192, 1024, 6360, 1893));
  EXPECT_THAT(
      Draw({1024, 2048, 1536, 1.1}, 8),
      testing::ElementsAre(2048, 1302, 2048, 2048, 2048, 1024, 2048, 1024));
  EXPECT_THAT(
      Draw({100, 4096, 2048, 1.1}, 8),
      testing::ElementsAre(4096, 1736, 3282, 4096, 4096, 381, 3180, 946));
}

// With wide bounds, the lengths' logarithms are the normal draws that seed 0
// begins with; a length of more than 10^4 tokens has them to 4 digits.
TEST(MockLengthsTest, LogarithmsAreNumpysNormalDraws) {
  const double kSigma = 0.1;
  const std::vector<uint32_t> lengths = Draw({1, 1u << 24, 1e7, kSigma}, 6);
  const double normals[] = {1.76405235, 0.40015721, 0.97873798,
                            2.2408932,  1.86755799, -0.97727788};
  const double mu = std::log(1e7) - kSigma * kSigma / 2;
  for (int i = 0; i < 6; ++i) {
    EXPECT_NEAR((std::log(lengths[i]) - mu) / kSigma, normals[i], 1e-5);
  }
}

TEST(MockLengthsTest, EqualsTheGoldenFile) {
  constexpr char kGolden[] = "golden/mock_lognormal.json";
  const std::optional<std::string> shared = SharedDirWith(kGolden);
  if (!shared) GTEST_SKIP() << NotShared(kGolden);
  std::ifstream file(*shared + "/" + kGolden);
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_FALSE(golden.at("cases").empty());
  for (const nlohmann::json& test : golden.at("cases")) {
    MockLengths lengths({test.at("min_seq_len"), test.at("max_seq_len"),
                         test.at("mean_seq_len"), test.at("lognormal_sigma")});
    const auto first = test.at("first_64").get<std::vector<uint32_t>>();
    uint64_t sum = 0;
    for (size_t i = 0; i < 1000000; ++i) {
      const uint32_t length = lengths.Next();
      if (i < first.size()) {
        EXPECT_EQ(length, first[i]) << i;
      }
      sum += length;
    }
    EXPECT_EQ(sum, test.at("sum_1000000").get<uint64_t>());
  }
}

TEST(MockLengthsTest, WithoutDeviationEveryLengthIsTheMean) {
  EXPECT_THAT(Draw({1, 100, 64, 0}, 3), testing::Each(testing::AnyOf(63, 64)));
  EXPECT_THAT(Draw({7, 7, 64, 1}, 5), testing::Each(7));
}

TEST(MockLengthsTest, ExtremeParametersStayWithinTheBounds) {
  for (const double mean : {1e-300, 1.0, 16777216.0}) {
    for (const uint32_t length : Draw({3, 1u << 24, mean, 100}, 1000)) {
      EXPECT_GE(length, 3u);
      EXPECT_LE(length, 1u << 24);
    }
  }
}

// With or without a heading: the first line counts unless it is no number.
TEST(ParseLengthsTest, ReadsNumbersAndAHeading) {
  using ::testing::ElementsAre;
  EXPECT_THAT(*ParseLengths("5\n6\n"), ElementsAre(5, 6));
  EXPECT_THAT(*ParseLengths("length\n5\n6"), ElementsAre(5, 6));
  EXPECT_THAT(*ParseLengths("a,b\n5, 6\n7,8\n"), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(*ParseLengths("\n 5 \r\n\n16777216\n"), ElementsAre(5, 16777216));
  const struct {
    const char* text;
    const char* message;
  } kBad[] = {
      {"", "holds no length"},
      {"length\n", "holds no length"},
      {"length\nlength\n", "line 2: found \"length\""},
      {"1.5\n", "line 1: found \"1.5\""},
      {"3\n0\n", "line 2: found \"0\""},
      {"3\n-1\n", "line 2: found \"-1\""},
      {"3,\n", "line 1: found \"\""},
      {"3,x\n", "line 1: found \"x\""},
      {"3\n16777217\n", "line 2: found \"16777217\""},
  };
  for (const auto& bad : kBad) {
    const absl::Status status = ParseLengths(bad.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.message));
  }
}

TEST(MockLengthsTest, NamesTheValueOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    LognormalLengths lengths;
    const char* name;
  } kBad[] = {
      {{0, 8, 4, 1}, "min is 0"},
      {{1, 0, 4, 1}, "max is 0"},
      {{1, (1u << 24) + 1, 4, 1}, "max is 16777217"},
      {{9, 8, 4, 1}, "min is 9; wanted at most max, which is 8"},
      {{1, 8, 0, 1}, "mean is 0"},
      {{1, 8, nan, 1}, "mean is nan"},
      {{1, 8, 1e8, 1}, "mean is 1e+08"},
      {{1, 8, 4, -1}, "sigma is -1"},
      {{1, 8, 4, nan}, "sigma is nan"},
      {{1, 8, 4, 101}, "sigma is 101"},
  };
  for (const auto& bad : kBad) {
    const absl::Status status = CheckLognormalLengths(bad.lengths);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.name));
  }
  EXPECT_TRUE(CheckLognormalLengths({1, 1u << 24, 16777216, 100}).ok());
}

}  // namespace
}  // namespace ballast
