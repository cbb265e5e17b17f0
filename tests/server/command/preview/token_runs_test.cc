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
constexpr int32_t kSound = 1003;

class TokenRunsTest : public testing::Test {
 protected:
  TokenRunsTest() : tokenizer_(*MakeTokenizer("bytes")) {
    special_.set_image(kImage);
    special_.set_im_start(kStart);
    special_.set_video(kVideo);
    special_.set_audio(kSound);
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
              ElementsAre(FieldsAre(0, 2, false, false, false, "ab", false),
                          FieldsAre(2, 1, false, false, true, "c", false),
                          FieldsAre(3, 1, false, false, false, "d", false)));
}

TEST_F(TokenRunsTest, PlaceholdersAreARunWithoutText) {
  EXPECT_THAT(Find({'a', kImage, kImage, 'b'}, {kNone, kNone, kNone, kNone}),
              ElementsAre(FieldsAre(0, 1, false, false, false, "a", false),
                          FieldsAre(1, 2, true, false, false, "", false),
                          FieldsAre(3, 1, false, false, false, "b", false)));
}

TEST_F(TokenRunsTest, PlaceholdersOfVideosAreRunsOfTheirOwn) {
  EXPECT_THAT(Find({kImage, kVideo, kVideo, 'b'}, {kNone, kNone, kNone, kNone}),
              ElementsAre(FieldsAre(0, 1, true, false, false, "", false),
                          FieldsAre(1, 2, false, true, false, "", false),
                          FieldsAre(3, 1, false, false, false, "b", false)));
}

TEST_F(TokenRunsTest, PlaceholdersOfSoundAreRunsOfTheirOwn) {
  EXPECT_THAT(Find({kVideo, kSound, kSound, 'b'}, {kNone, kNone, kNone, kNone}),
              ElementsAre(FieldsAre(0, 1, false, true, false, "", false),
                          FieldsAre(1, 2, false, false, false, "", true),
                          FieldsAre(3, 1, false, false, false, "b", false)));
}

// "ü" is two bytes, thus two tokens.
TEST_F(TokenRunsTest, UnknownIdsHaveNamesAndCharactersStayWhole) {
  EXPECT_THAT(
      Find({0xc3, 0xbc, kStart, 0xc3, 0xbc, 2000},
           {kNone, kNone, kNone, kNone, kNone, kNone}),
      ElementsAre(FieldsAre(0, 6, false, false, false,
                            "\xc3\xbc<|im_start|>\xc3\xbc<|2000|>", false)));
}

}  // namespace
}  // namespace ballast
