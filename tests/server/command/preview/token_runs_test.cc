#include "server/command/preview/sample_view.h"

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using testing::ElementsAre;
using testing::FieldsAre;
using testing::IsEmpty;

constexpr int32_t kNone = -100;
constexpr int32_t kImage = 1000;
constexpr int32_t kStart = 1001;
constexpr int32_t kVideo = 1002;

class TokenRunsTest : public testing::Test {
 protected:
  TokenRunsTest() : tokenizer_(*MakeTokenizer("bytes")) {
    special_.set_image(kImage);
    special_.set_im_start(kStart);
    special_.set_video(kVideo);
  }

  std::vector<TokenRun> Find(const std::vector<int32_t>& ids,
                             const std::vector<int32_t>& labels) const {
    return FindTokenRuns(ids, labels, special_, *tokenizer_);
  }

  v1::TokenIds special_;
  const std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(TokenRunsTest, NoTokens) { EXPECT_THAT(Find({}, {}), IsEmpty()); }

// The label of a token is the next one: what is supervised begins after it.
TEST_F(TokenRunsTest, ALabelSupervisesTheNextToken) {
  EXPECT_THAT(Find({'a', 'b', 'c', 'd'}, {kNone, 'c', kNone, kNone}),
              ElementsAre(FieldsAre(0, 2, false, false, false, "ab"),
                          FieldsAre(2, 1, false, false, true, "c"),
                          FieldsAre(3, 1, false, false, false, "d")));
}

TEST_F(TokenRunsTest, PlaceholdersAreARunWithoutText) {
  EXPECT_THAT(Find({'a', kImage, kImage, 'b'}, {kNone, kNone, kNone, kNone}),
              ElementsAre(FieldsAre(0, 1, false, false, false, "a"),
                          FieldsAre(1, 2, true, false, false, ""),
                          FieldsAre(3, 1, false, false, false, "b")));
}

TEST_F(TokenRunsTest, PlaceholdersOfVideosAreRunsOfTheirOwn) {
  EXPECT_THAT(Find({kImage, kVideo, kVideo, 'b'}, {kNone, kNone, kNone, kNone}),
              ElementsAre(FieldsAre(0, 1, true, false, false, ""),
                          FieldsAre(1, 2, false, true, false, ""),
                          FieldsAre(3, 1, false, false, false, "b")));
}

// "ü" is two bytes, thus two tokens.
TEST_F(TokenRunsTest, UnknownIdsHaveNamesAndCharactersStayWhole) {
  EXPECT_THAT(Find({0xc3, 0xbc, kStart, 0xc3, 0xbc, 2000},
                   {kNone, kNone, kNone, kNone, kNone, kNone}),
              ElementsAre(FieldsAre(0, 6, false, false, false,
                                    "\xc3\xbc<|im_start|>\xc3\xbc<|2000|>")));
}

}  // namespace
}  // namespace ballast
