#include "server/text/bpe/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/text/bpe/bpe_tokenizer.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> EncodeBy(const json& file, const std::string& text) {
  const auto tokenizer = MakeBpeTokenizer(file.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? EncodeOrFail(**tokenizer, text)
                        : std::vector<int32_t>();
}

void ExpectRefused(const json& file, const std::string& complaint) {
  const absl::Status status = MakeBpeTokenizer(file.dump()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(complaint));
}

TEST(TokenizerJsonTest, ReadsBothFormsOfMerges) {
  const json pairs = SmallTokenizerJson({{"a", "b"}, {"ab", "c"}});
  json lines = pairs;
  lines["model"]["merges"] = {"#version: 0.2", "a b", "ab c"};
  for (const json& file : {pairs, lines}) {
    EXPECT_THAT(EncodeBy(file, "abcab"), ElementsAre(257, 256));
  }
}

TEST(TokenizerJsonTest, AcceptsOldFilesWithoutTheNewerKeys) {
  json file = SmallTokenizerJson({{"a", "b"}});
  file["model"].erase("type");
  file["pre_tokenizer"].erase("use_regex");
  file.erase("normalizer");
  file.erase("added_tokens");
  file.erase("version");
  EXPECT_THAT(EncodeBy(file, "ab ab"), ElementsAre(256, ' ', 256));
}

TEST(TokenizerJsonTest, StepsOfAPreTokenizerRunInOrder) {
  json file = SmallTokenizerJson({{"a", "b"}, {"ab", "ab"}});
  EXPECT_THAT(EncodeBy(file, "abab"), ElementsAre(257));
  const json byte_level = file["pre_tokenizer"];
  const auto split = [](const json& pattern, const char* behavior,
                        bool invert) {
    return json{{"type", "Split"},
                {"pattern", pattern},
                {"behavior", behavior},
                {"invert", invert}};
  };
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {split({{"Regex", "ab"}}, "Isolated", false), byte_level}}};
  EXPECT_THAT(EncodeBy(file, "abab"), ElementsAre(256, 256));
  file["pre_tokenizer"]["pretokenizers"][0] =
      split({{"String", "+"}}, "Isolated", false);
  EXPECT_THAT(EncodeBy(file, "ab+abab"), ElementsAre(256, '+', 257));
  // Text that is not matched is removed.
  file["pre_tokenizer"]["pretokenizers"][0] =
      split({{"Regex", "[a-z]+"}}, "Removed", true);
  EXPECT_THAT(EncodeBy(file, "ab+ab"), ElementsAre(256, 256));
}

// Keys that do not affect the ids are ignored.
TEST(TokenizerJsonTest, PostProcessorAndDecoderDoNotMatter) {
  json file = SmallTokenizerJson();
  file["post_processor"] = {{"type", "RobertaProcessing"}};
  file["decoder"] = {{"type", "ByteLevel"}};
  EXPECT_THAT(EncodeBy(file, "a"), ElementsAre('a'));
}

TEST(TokenizerJsonTest, RefusesUnsupportedKeysByName) {
  struct Fault {
    const char* where;  // a JSON pointer
    json value;
    const char* complaint;
  };
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", "a"}}},
                      {"behavior", "Isolated"}};
  const auto before_bytes = [](const json& step) {
    return json{{"type", "Sequence"},
                {"pretokenizers",
                 {step,
                  {{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"use_regex", false}}}}};
  };
  const auto changed_split = [&](const char* key, const json& value) {
    json changed = split;
    changed[key] = value;
    return before_bytes(changed);
  };
  const std::vector<Fault> faults = {
      {"/model/type", "WordPiece", "model.type: found \"WordPiece\""},
      {"/model/type", "Unigram", "wanted BPE"},
      {"/model/dropout", 0.1, "model.dropout: found 0.1"},
      {"/model/continuing_subword_prefix", "##",
       "model.continuing_subword_prefix: found \"##\""},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix"},
      {"/model/extra", 1, "model.extra: found 1"},
      {"/model/vocab", json::array(), "model.vocab: found []"},
      {"/model/vocab/a", -1, "model.vocab.a: found -1"},
      {"/model/vocab/a", "x", "model.vocab.a: found \"x\""},
      {"/model/vocab/a", 98, "id 98 is given twice"},
      {"/model/merges", "a b", "model.merges: found \"a b\""},
      {"/model/merges/0", "ab", "model.merges[0]: found \"ab\""},
      {"/model/merges/0", "a b c", "wanted \"LEFT RIGHT\""},
      {"/model/merges/0", json::array({"a"}), "model.merges[0]"},
      {"/model/merges/0", json::array({"a", "q9"}), "\"q9\" is not in"},
      {"/normalizer", {{"type", "NFKC"}}, "normalizer: found {\"type\":\"NFKC"},
      {"/normalizer",
       {{"type", "Sequence"},
        {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}},
       "normalizer.normalizers[1]: found {\"type\":\"Lowercase"},
      {"/pre_tokenizer", nullptr, "pre_tokenizer: missing"},
      {"/pre_tokenizer", {{"type", "Whitespace"}}, "Split, ByteLevel"},
      {"/pre_tokenizer", split, "ByteLevel to be the last"},
      {"/pre_tokenizer", changed_split("behavior", "MergedWithNext"),
       "pre_tokenizer.pretokenizers[0].behavior: found \"MergedWithNext\""},
      {"/pre_tokenizer", changed_split("invert", 3), "pretokenizers[0].invert"},
      {"/pre_tokenizer", changed_split("pattern", {{"Regex", "\\w+"}}),
       "pretokenizers[0].pattern: pattern: an unsupported escape"},
      {"/pre_tokenizer", changed_split("pattern", {{"Regex", "a*"}}),
       "matches the empty text"},
      {"/pre_tokenizer", changed_split("pattern", {{"String", ""}}),
       "pattern.String: found \"\""},
      {"/pre_tokenizer",
       before_bytes({{"type", "ByteLevel"}, {"add_prefix_space", false}}),
       "ByteLevel to be the last"},
      {"/pre_tokenizer/add_prefix_space", "yes",
       "pre_tokenizer.add_prefix_space: found \"yes\""},
      {"/truncation", {{"max_length", 5}}, "truncation: found"},
      {"/padding", {{"strategy", "Fixed"}}, "padding: found"},
      {"/vocabulary", 1, "vocabulary: found 1"},
  };
  for (const Fault& fault : faults) {
    json file = SmallTokenizerJson({{"a", "b"}});
    file[json::json_pointer(fault.where)] = fault.value;
    SCOPED_TRACE(fault.where);
    ExpectRefused(file, fault.complaint);
  }
}

TEST(TokenizerJsonTest, RefusesInvalidAddedTokens) {
  const auto refused = [](const json& tokens, const char* complaint) {
    json file = SmallTokenizerJson();
    file["added_tokens"] = tokens;
    ExpectRefused(file, complaint);
  };
  json token = AddedTokenJson(256, "<x>");
  refused(3, "added_tokens: found 3");
  refused(json::array({3}), "added_tokens[0]: found 3");
  token.erase("lstrip");
  refused(json::array({token}), "added_tokens[0].lstrip: missing");
  token = AddedTokenJson(256, "");
  refused(json::array({token}), "added_tokens[0].content: found \"\"");
  token = AddedTokenJson(256, std::string(2000, 'x'));
  refused(json::array({token}), "content of 2000 bytes");
  token = AddedTokenJson(256, "<x>");
  refused({token, AddedTokenJson(257, "<x>")}, "each content once");
  token["new_flag"] = true;
  refused(json::array({token}), "added_tokens[0].new_flag");
}

// Hugging Face assigns the ids of added tokens itself, whatever the file says.
// A file with other ids would be encoded differently by Hugging Face and by us.
TEST(TokenizerJsonTest, RefusesIdsThatHuggingFaceWouldChange) {
  json file = SmallTokenizerJson();
  file["added_tokens"] = {AddedTokenJson(256, "<x>"), AddedTokenJson('a', "a"),
                          AddedTokenJson(257, "<y>")};
  EXPECT_THAT(EncodeBy(file, "<x>a<y>"), ElementsAre(256, 'a', 257));
  file["added_tokens"][2]["id"] = 300;
  ExpectRefused(file, "wanted 257");
  file["added_tokens"][2] = AddedTokenJson(5, "b");
  ExpectRefused(file, "wanted 98");
}

TEST(TokenizerJsonTest, UnknownBytesNeedNoUnknownToken) {
  json file = SmallTokenizerJson();
  file["model"]["unk_token"] = "a";
  EXPECT_THAT(EncodeBy(file, "x"), ElementsAre('x'));
  file["model"]["byte_fallback"] = true;
  EXPECT_THAT(EncodeBy(file, "x"), ElementsAre('x'));
  file["model"]["vocab"].erase("q");
  ExpectRefused(file, "model.byte_fallback");
  file["model"]["byte_fallback"] = false;
  ExpectRefused(file, "model.unk_token");
}

TEST(TokenizerJsonTest, BoundsTheStepsOfAPreTokenizer) {
  json file = SmallTokenizerJson();
  const json last = file["pre_tokenizer"];
  json steps = json::array();
  for (int i = 0; i < 64; ++i) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", "a"}}},
                     {"behavior", "Isolated"}});
  }
  steps.push_back(last);
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  ExpectRefused(file, "at most 32 steps");
}

TEST(TokenizerJsonTest, EveryTruncatedFileIsRefused) {
  const std::string whole = SmallTokenizerJson({{"a", "b"}}).dump();
  for (size_t size = 0; size < whole.size(); size += 13) {
    const absl::Status status =
        MakeBpeTokenizer(whole.substr(0, size)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("not JSON"));
  }
  EXPECT_THAT(std::string(MakeBpeTokenizer("[]").status().message()),
              HasSubstr("an object"));
}

}  // namespace
}  // namespace ballast
