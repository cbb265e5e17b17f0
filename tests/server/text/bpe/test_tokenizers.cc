#include "tests/server/text/bpe/test_tokenizers.h"

#include <gtest/gtest.h>

#include "server/text/bpe/bpe_model.h"

namespace ballast {

std::string TestDataPath(const std::string& name) {
  return "tests/server/text/bpe/testdata/" + name;
}

nlohmann::json SmallTokenizerJson(
    std::initializer_list<std::pair<std::string, std::string>> merges) {
  nlohmann::json vocab = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) {
    vocab[ToByteAlphabet(std::string(1, static_cast<char>(byte)))] = byte;
  }
  nlohmann::json list = nlohmann::json::array();
  int32_t next = 256;
  for (const auto& [left, right] : merges) {
    list.push_back({left, right});
    vocab[left + right] = next++;
  }
  return {
      {"version", "1.0"},
      {"added_tokens", nlohmann::json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "ByteLevel"},
        {"add_prefix_space", false},
        {"use_regex", false}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}}},
  };
}

nlohmann::json AddedTokenJson(int32_t id, const std::string& content) {
  return {{"id", id},        {"content", content}, {"single_word", false},
          {"lstrip", false}, {"rstrip", false},    {"normalized", false},
          {"special", false}};
}

std::vector<int32_t> EncodeOrFail(const Tokenizer& tokenizer,
                                  const std::string& text) {
  std::vector<int32_t> ids;
  const absl::Status status = tokenizer.Encode(text, &ids);
  EXPECT_TRUE(status.ok()) << status << " for " << text;
  return ids;
}

}  // namespace ballast
