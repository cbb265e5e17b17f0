// Damaged and hostile models are refused or encode something; at worst their
// own process ends.
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/text/sentencepiece/sentencepiece_tokenizer.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

constexpr char kText[] = "The fox <|im_start|> ﬁ ½ 😀 <s> 12\n\n  x";

// True if `model` is accepted. `text` is then encoded, successfully or not.
bool Survives(const std::string& model, const std::string& text) {
  const auto tokenizer = MakeSentencePieceTokenizer(model);
  if (!tokenizer.ok()) {
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument)
        << tokenizer.status();
    return false;
  }
  std::vector<int32_t> ids;
  std::vector<size_t> ends;
  const absl::Status status = (*tokenizer)->EncodeWithEnds(text, &ids, &ends);
  if (!status.ok()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return true;
  }
  EXPECT_EQ(ends.size(), ids.size());
  std::string decoded;
  EXPECT_TRUE((*tokenizer)->Decode(ids, &decoded).ok());
  return true;
}

class HostileModelTest : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string model_ =
      ReadFileOrFail(std::string("tests/server/text/sentencepiece/testdata/") +
                     GetParam() + ".model");
  std::mt19937 random_{5};
};

TEST_P(HostileModelTest, SurvivesAnyCut) {
  EXPECT_TRUE(Survives(model_, kText));
  for (int round = 0; round < 30; ++round) {
    Survives(model_.substr(0, random_() % model_.size()), kText);
  }
}

TEST_P(HostileModelTest, SurvivesChangedBytes) {
  int models = 0;
  for (int round = 0; round < 60; ++round) {
    std::string damaged = model_;
    for (int flip = 0; flip < 1 << round % 6; ++flip) {
      damaged[random_() % damaged.size()] = static_cast<char>(random_());
    }
    models += Survives(damaged, kText) ? 1 : 0;
  }
  // If all models were refused, only parsing would be tested.
  EXPECT_GT(models, 5);
}

// The library trusts the model's table of character replacements.
TEST_P(HostileModelTest, SurvivesAnotherEnd) {
  const size_t tail = std::min<size_t>(model_.size() / 4, 1500);
  for (int round = 0; round < 40; ++round) {
    std::string damaged = model_;
    for (int flip = 0; flip < 8; ++flip) {
      damaged[damaged.size() - 1 - random_() % tail] =
          static_cast<char>(random_());
    }
    Survives(damaged, kText);
  }
}

INSTANTIATE_TEST_SUITE_P(All, HostileModelTest,
                         ::testing::Values("llama", "symbols", "unigram"),
                         [](const auto& info) { return info.param; });

TEST(HostileBytesTest, AreNotAModel) {
  std::mt19937 random(6);
  for (int round = 0; round < 30; ++round) {
    std::string bytes(random() % 3000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    EXPECT_FALSE(Survives(bytes, kText));
  }
}

TEST(HostileTextTest, SurvivesLongTextsOfOneCharacter) {
  const std::string model =
      ReadFileOrFail("tests/server/text/sentencepiece/testdata/llama.model");
  for (const char* unit : {"a", " ", "😀", "<s>", "▁"}) {
    std::string text;
    while (text.size() < 200'000) text += unit;
    EXPECT_TRUE(Survives(model, text));
  }
}

}  // namespace
}  // namespace ballast
