#include "server/text/bpe/bpe_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "absl/status/status.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Merges = std::vector<std::pair<std::string, std::string>>;

// The letters a to d have ids 0 to 3, merged tokens the next ones.
BpeModel::Spec SmallSpec(const Merges& merges) {
  BpeModel::Spec spec;
  for (const char* letter : {"a", "b", "c", "d"}) {
    spec.vocab.emplace_back(letter, static_cast<int32_t>(spec.vocab.size()));
  }
  spec.merges = merges;
  for (const auto& [left, right] : merges) {
    const std::string joined = left + right;
    const bool known =
        std::any_of(spec.vocab.begin(), spec.vocab.end(),
                    [&](const auto& entry) { return entry.first == joined; });
    if (known) continue;
    spec.vocab.emplace_back(joined, static_cast<int32_t>(spec.vocab.size()));
  }
  return spec;
}

// Uses fresh working memory each time, so that nothing is cached.
std::vector<int32_t> Encode(const BpeModel& model, const std::string& word) {
  BpeModel::Scratch scratch;
  std::vector<int32_t> ids;
  model.EncodeWord(word, &scratch, &ids);
  return ids;
}

// The definition of BPE: while some pair merges, merge the best one, the
// leftmost of equal ones.
std::vector<int32_t> EncodeByDefinition(const BpeModel::Spec& spec,
                                        const std::string& word) {
  std::map<std::string, int32_t> ids(spec.vocab.begin(), spec.vocab.end());
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (size_t i = 0; i < spec.merges.size(); ++i) ranks[spec.merges[i]] = i;
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  while (true) {
    size_t best = spec.merges.size();
    size_t at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find({parts[i], parts[i + 1]});
      if (found != ranks.end() && found->second < best) {
        best = found->second;
        at = i;
      }
    }
    if (best == spec.merges.size()) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + at + 1);
  }
  std::vector<int32_t> result;
  for (const std::string& part : parts) result.push_back(ids.at(part));
  return result;
}

TEST(BpeModelTest, MergesTheBestPairFirst) {
  const auto model = BpeModel::Create(SmallSpec({{"b", "c"}, {"a", "b"}}));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Encode(*model, "abc"), ElementsAre(0, 4));
  EXPECT_THAT(Encode(*model, "abd"), ElementsAre(5, 3));
  EXPECT_THAT(Encode(*model, ""), IsEmpty());
}

TEST(BpeModelTest, MergesTheLeftmostOfEqualPairs) {
  const auto model = BpeModel::Create(SmallSpec({{"a", "a"}}));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Encode(*model, "aaa"), ElementsAre(4, 0));
}

TEST(BpeModelTest, ShortAndLongWordsFollowTheDefinition) {
  const BpeModel::Spec spec = SmallSpec({{"a", "b"},
                                         {"b", "a"},
                                         {"ab", "ab"},
                                         {"c", "c"},
                                         {"cc", "c"},
                                         {"d", "ab"},
                                         {"dab", "cc"},
                                         {"a", "a"},
                                         {"abab", "d"},
                                         {"aa", "ba"},
                                         {"b", "b"}});
  const auto model = BpeModel::Create(spec);
  ASSERT_TRUE(model.ok()) << model.status();
  std::mt19937 random(7);
  for (const size_t length : {1, 2, 5, 29, 30, 31, 32, 33, 34, 100}) {
    for (int round = 0; round < 20; ++round) {
      std::string word;
      for (size_t i = 0; i < length; ++i) word += "abcd"[random() % 4];
      EXPECT_EQ(Encode(*model, word), EncodeByDefinition(spec, word)) << word;
    }
  }
}

TEST(BpeModelTest, CachedWordsEncodeTheSame) {
  const BpeModel::Spec spec = SmallSpec({{"a", "b"}, {"ab", "c"}});
  const auto model = BpeModel::Create(spec);
  ASSERT_TRUE(model.ok()) << model.status();
  BpeModel::Scratch scratch;
  for (int round = 0; round < 2; ++round) {
    for (const char* word : {"abc", "ab", "abcabc", "d"}) {
      std::vector<int32_t> ids;
      model->EncodeWord(word, &scratch, &ids);
      EXPECT_EQ(ids, EncodeByDefinition(spec, word)) << word;
    }
  }
}

TEST(BpeModelTest, IgnoreMergesTakesWholeWordsAsTheyAre) {
  BpeModel::Spec spec = SmallSpec({{"a", "b"}});
  spec.vocab.emplace_back("abd", 9);
  const auto merging = BpeModel::Create(spec);
  spec.ignore_merges = true;
  const auto ignoring = BpeModel::Create(spec);
  ASSERT_TRUE(merging.ok() && ignoring.ok());
  EXPECT_THAT(Encode(*merging, "abd"), ElementsAre(4, 3));
  EXPECT_THAT(Encode(*ignoring, "abd"), ElementsAre(9));
  EXPECT_THAT(Encode(*ignoring, "abda"), ElementsAre(4, 3, 0));
}

TEST(BpeModelTest, BytesWithoutATokenAreDropped) {
  const auto model = BpeModel::Create(SmallSpec({{"a", "b"}}));
  ASSERT_TRUE(model.ok()) << model.status();
  // Its neighbours are then adjacent, as in Hugging Face.
  EXPECT_THAT(Encode(*model, "axb"), ElementsAre(4));
  EXPECT_THAT(Encode(*model, std::string(40, 'x') + "a"), ElementsAre(0));
}

TEST(BpeModelTest, TokensStandForBytes) {
  BpeModel::Spec spec;
  spec.vocab = {{"\xC4\xA0", 0}, {"\xC4\x8A", 3}, {"<|x \xE2\x82\xAC|>", 5}};
  const auto model = BpeModel::Create(spec);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->bytes(0), " ");
  EXPECT_EQ(model->bytes(3), "\n");
  EXPECT_EQ(model->bytes(5), "<|x \xE2\x82\xAC|>");
  for (const int32_t none : {-1, 1, 4, 6}) {
    EXPECT_TRUE(model->bytes(none).empty()) << none;
  }
}

TEST(BpeModelTest, RefusesInvalidVocabularies) {
  const auto expect = [](const BpeModel::Spec& spec, const char* complaint) {
    const absl::Status status = BpeModel::Create(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(complaint));
  };
  expect({{{"a", -1}}, {}, false}, "id -1");
  expect({{{"a", BpeModel::kMaxId}}, {}, false}, "wanted 0 to");
  expect({{{"a", 0}, {"a", 1}}, {}, false}, "is listed twice");
  expect({{{"a", 0}, {"b", 0}}, {}, false}, "given twice, once to \"b\"");
  expect({{{"a", 0}, {"b", 1}}, {{"a", "b"}}, false},
         "model.merges[0]: \"ab\" is not in model.vocab");
  expect({{{"a", 0}, {"ab", 1}}, {{"a", "b"}}, false}, "\"b\" is not in");
}

// Quadratic time would take minutes.
TEST(BpeModelTest, OneVeryLongWordTakesLittleTime) {
  const auto model =
      BpeModel::Create(SmallSpec({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}}));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(Encode(*model, std::string(1 << 18, 'a')).size(), 1u << 15);
}

TEST(ByteAlphabetTest, IsGpt2s) {
  EXPECT_EQ(ToByteAlphabet("Hi there\n"), "Hi\u0120there\u010a");
  EXPECT_EQ(ToByteAlphabet("\u00e9"), "\u00c3\u00a9");
  EXPECT_EQ(ToByteAlphabet(std::string("\0\x7F\xAD", 3)), "\u0100\u0121\u0143");
}

TEST(ByteAlphabetTest, EveryByteRoundTrips) {
  std::set<std::string> names;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    const std::string name = ToByteAlphabet(bytes);
    EXPECT_TRUE(names.insert(name).second) << byte;
    EXPECT_EQ(FromByteAlphabet(name), bytes);
  }
}

TEST(ByteAlphabetTest, OtherTextIsRejected) {
  for (const char* text : {" ", "\n", "a b", "\u0144", "\u20ac", "\xC4",
                           "\xC4(", "\xFF", "\u00ad"}) {
    EXPECT_EQ(FromByteAlphabet(text), std::nullopt) << text;
  }
  EXPECT_EQ(FromByteAlphabet(""), "");
}

}  // namespace

}  // namespace ballast
