#include "server/text/bpe/bpe_tokenizer.h"

#include <cstdint>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/shared_dir.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Normalized {
  bool changed;
  std::string text;
  std::vector<NfcChange> changes;
};

Normalized Normalize(const std::string& text) {
  Normalized result{false, text, {}};
  result.changed = NormalizeNfc(text, &result.text, &result.changes);
  return result;
}

// Expected values are from the Unicode standard (chapter 3.11, annex 15).
TEST(NfcTest, ComposesAndOrders) {
  const std::pair<const char*, const char*> cases[] = {
      {"e\u0301", "\u00e9"},
      {"A\u030a", "\u00c5"},
      {"\u212b", "\u00c5"},                // the Angstrom sign
      {"\u2126", "\u03a9"},                // the Ohm sign
      {"s\u0323\u0307", "\u1e69"},         // both marks, in order
      {"s\u0307\u0323", "\u1e69"},         // and in disorder
      {"q\u0307\u0323", "q\u0323\u0307"},  // ordered, nothing composed
      {"\u1100\u1161\u11a8", "\uac01"},    // Hangul by rule
      {"\uac00\u11a8", "\uac01"},
      {"\u0958", "\u0915\u093c"},  // excluded from composition
      {"\u0344", "\u0308\u0301"},
      {"\uf900", "\u8c48"},  // a singleton
      {"\U0001d15e", "\U0001d157\U0001d165"},
      {"a\u0327\u0301\u0301", "\u00e1\u0327\u0301"},
  };
  for (const auto& [text, expected] : cases) {
    const Normalized result = Normalize(std::string("x ") + text + " y");
    EXPECT_TRUE(result.changed) << text;
    EXPECT_EQ(result.text, std::string("x ") + expected + " y") << text;
  }
}

TEST(NfcTest, LeavesNormalizedTextUnchanged) {
  for (const char* text :
       {"", "plain", "caf\u00e9", "\u1e69", "\uac01", "q\u0323\u0307",
        "\U0001f469\u200d\U0001f4bb", "\u0301alone", "\u05d0\u05b7"}) {
    EXPECT_FALSE(Normalize(text).changed) << text;
  }
}

TEST(NfcTest, MapsChangedTextToTheOriginal) {
  // a b e+acute c, twice.
  const Normalized result = Normalize("abe\u0301ce\u0301");
  ASSERT_EQ(result.text, "ab\u00e9c\u00e9");
  ASSERT_EQ(result.changes.size(), 2u);
  // In bytes: e and its mark take three, composed two.
  const size_t expected[] = {0, 1, 2, 5, 5, 6, 9, 9};
  for (size_t end = 0; end < 8; ++end) {
    EXPECT_EQ(OriginalEnd(result.changes, end), expected[end]) << end;
  }
}

TEST(NfcTest, ManyMarksTakeLittleTime) {
  std::string text = "a";
  for (int i = 0; i < 100000; ++i) text += i % 2 == 0 ? "\u0307" : "\u0323";
  const Normalized result = Normalize(text);
  // The dots below are ordered first, and one of each is composed.
  EXPECT_TRUE(result.changed);
  EXPECT_EQ(result.text.substr(0, 5), "\u1ea1\u0323");
}

std::unique_ptr<Tokenizer> Make(const json& file) {
  auto tokenizer = MakeBpeTokenizer(file.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TEST(BpeTokenizerTest, AppendsToTheOutput) {
  const auto tokenizer = Make(SmallTokenizerJson({{"a", "b"}}));
  std::vector<int32_t> ids = {7};
  ASSERT_TRUE(tokenizer->Encode("abc", &ids).ok());
  EXPECT_THAT(ids, ElementsAre(7, 256, 'c'));
}

TEST(BpeTokenizerTest, NamesTheOffsetOfInvalidUtf8) {
  const auto tokenizer = Make(SmallTokenizerJson());
  std::vector<int32_t> ids;
  const absl::Status status = tokenizer->Encode("ab\xC3(", &ids);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("at byte 2"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("0xC3"));
}

TEST(BpeTokenizerTest, FindsNormalizedTokensInNormalizedText) {
  json file = SmallTokenizerJson();
  file["normalizer"] = {{"type", "NFC"}};
  json token = AddedTokenJson(256, "e\u0301");
  token["normalized"] = true;
  file["added_tokens"] = {token, AddedTokenJson(257, "a\u0301")};
  const auto tokenizer = Make(file);
  EXPECT_THAT(EncodeOrFail(*tokenizer, "\u00e9"), ElementsAre(256));
  EXPECT_THAT(EncodeOrFail(*tokenizer, "e\u0301"), ElementsAre(256));
  // The other token is searched for in the original text.
  EXPECT_THAT(EncodeOrFail(*tokenizer, "a\u0301"), ElementsAre(257));
  EXPECT_THAT(EncodeOrFail(*tokenizer, "\u00e1"), ElementsAre(0xC3, 0xA1));
}

TEST(BpeTokenizerTest, EndsReferToTheTextBeforeNormalizing) {
  json file = SmallTokenizerJson();
  file["normalizer"] = {{"type", "NFC"}};
  const auto tokenizer = Make(file);
  std::vector<int32_t> ids;
  std::vector<size_t> ends;
  ASSERT_TRUE(tokenizer->EncodeWithEnds("xe\u0301y", &ids, &ends).ok());
  EXPECT_THAT(ids, ElementsAre('x', 0xC3, 0xA9, 'y'));
  EXPECT_THAT(ends, ElementsAre(1, 4, 4, 5));
}

TEST(BpeTokenizerTest, APrefixedSpaceBelongsToTheFirstToken) {
  json file = SmallTokenizerJson();
  file["pre_tokenizer"]["add_prefix_space"] = true;
  const auto tokenizer = Make(file);
  std::vector<int32_t> ids;
  std::vector<size_t> ends;
  ASSERT_TRUE(tokenizer->EncodeWithEnds("ab", &ids, &ends).ok());
  EXPECT_THAT(ids, ElementsAre(' ', 'a', 'b'));
  EXPECT_THAT(ends, ElementsAre(0, 1, 2));
}

TEST(BpeTokenizerTest, KnowsItsAddedTokens) {
  json file = SmallTokenizerJson();
  file["added_tokens"] = json::array({AddedTokenJson(256, "<x>")});
  const auto tokenizer = Make(file);
  EXPECT_EQ(tokenizer->SpecialTokenId("<x>"), 256);
  EXPECT_EQ(tokenizer->SpecialTokenId("a"), std::nullopt);
  std::string text;
  ASSERT_TRUE(tokenizer->Decode({256, 'a'}, &text).ok());
  EXPECT_EQ(text, "<x>a");
  EXPECT_EQ(tokenizer->Decode({257}, &text).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(tokenizer->Decode({-1}, &text).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(BpeTokenizerTest, TheDigestIsTheFiles) {
  json file = SmallTokenizerJson({{"a", "b"}});
  const std::string digest = Make(file)->digest();
  EXPECT_EQ(Make(file)->digest(), digest);
  file["model"]["ignore_merges"] = true;
  EXPECT_NE(Make(file)->digest(), digest);
}

TEST(BpeTokenizerTest, ThreadsEncodeAtTheSameTime) {
  const auto tokenizer = Make(SmallTokenizerJson({{"a", "b"}, {"ab", "ab"}}));
  const std::string text = "ab abab <x> abb baab";
  const std::vector<int32_t> expected = EncodeOrFail(*tokenizer, text);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        EXPECT_EQ(EncodeOrFail(*tokenizer, text), expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Compares the shared tokenizer's ids with Hugging Face's.

TEST(GoldenTextTest, IdsEqualHuggingFaces) {
  constexpr char kGolden[] = "golden/text.json";
  const std::optional<std::string> shared = SharedDirWith(kGolden);
  if (!shared) GTEST_SKIP() << NotShared(kGolden);
  const std::string golden = *shared + "/golden/";
  const auto tokenizer = MakeBpeTokenizer(ReadFile(golden + "tokenizer.json"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const nlohmann::json cases = ReadJsonOrFail(golden + "text.json")["cases"];
  ASSERT_FALSE(cases.empty());
  for (const nlohmann::json& expected : cases) {
    EXPECT_EQ(EncodeOrFail(**tokenizer, expected["text"]),
              expected["ids"].get<std::vector<int32_t>>())
        << expected["text"];
  }
}

// Compares with Hugging Face's ids of many texts, as written by
// make_vectors.py.

struct Vectors {
  const char* name;
  // True if decoding returns the text, and each token covers its own bytes:
  // nothing is normalised, prefixed or dropped.
  bool lossless;
};

class BpeVectorsTest : public ::testing::TestWithParam<Vectors> {
 protected:
  BpeVectorsTest()
      : texts_(ReadJsonOrFail(TestDataPath("texts.json"))),
        ids_(ReadJsonOrFail(
            TestDataPath(std::string(GetParam().name) + ".ids.json"))),
        tokenizer_(MakeBpeTokenizer(ReadFile(
            TestDataPath(std::string(GetParam().name) + ".tokenizer.json")))) {}

  const nlohmann::json texts_;
  const nlohmann::json ids_;
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer_;
};

TEST_P(BpeVectorsTest, IdsEqualHuggingFaces) {
  ASSERT_TRUE(tokenizer_.ok()) << tokenizer_.status();
  ASSERT_GT(texts_.size(), 200u);
  ASSERT_EQ(ids_.size(), texts_.size());
  for (size_t i = 0; i < texts_.size(); ++i) {
    EXPECT_EQ(EncodeOrFail(**tokenizer_, texts_[i]),
              ids_[i].get<std::vector<int32_t>>())
        << "text " << i << ": " << texts_[i];
  }
}

TEST_P(BpeVectorsTest, EndsCoverTheText) {
  ASSERT_TRUE(tokenizer_.ok()) << tokenizer_.status();
  for (const std::string text : texts_) {
    SCOPED_TRACE(text);
    std::vector<int32_t> ids;
    std::vector<size_t> ends;
    ASSERT_TRUE((*tokenizer_)->EncodeWithEnds(text, &ids, &ends).ok());
    ASSERT_EQ(ends.size(), ids.size());
    size_t begin = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_LE(begin, ends[i]);
      ASSERT_LE(ends[i], text.size());
      if (GetParam().lossless) {
        std::string spelled;
        ASSERT_TRUE((*tokenizer_)->Decode({ids[i]}, &spelled).ok());
        EXPECT_EQ(spelled, text.substr(begin, ends[i] - begin));
      }
      begin = ends[i];
    }
    if (GetParam().lossless) {
      EXPECT_EQ(begin, text.size());
    }
  }
}

TEST_P(BpeVectorsTest, DecodingReturnsTheText) {
  if (!GetParam().lossless)
    GTEST_SKIP() << "not applicable: this tokenizer changes texts";
  ASSERT_TRUE(tokenizer_.ok()) << tokenizer_.status();
  for (const std::string text : texts_) {
    std::string decoded;
    ASSERT_TRUE(
        (*tokenizer_)->Decode(EncodeOrFail(**tokenizer_, text), &decoded).ok());
    EXPECT_EQ(decoded, text);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BpeVectorsTest,
    ::testing::Values(Vectors{"flags", false}, Vectors{"gaps", false},
                      Vectors{"gpt2", true}, Vectors{"llama3", true},
                      Vectors{"o200k", true}, Vectors{"prefix_space", false},
                      Vectors{"qwen2", false}, Vectors{"sequence", false}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ballast
