#ifndef BALLAST_TESTS_SERVER_TEXT_BPE_TEST_TOKENIZERS_H_
#define BALLAST_TESTS_SERVER_TEXT_BPE_TEST_TOKENIZERS_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/text/text_token.h"
#include "tests/fakes/read_file.h"

namespace ballast {

// The path of a file of testdata.
std::string TestDataPath(const std::string& name);

// A tokenizer.json for tests to modify: all 256 bytes as tokens whose ids are
// the bytes' values, then `merges` in order, from id 256 on, in the byte
// alphabet; ByteLevel without a pattern, no normalizer, no added tokens.
nlohmann::json SmallTokenizerJson(
    std::initializer_list<std::pair<std::string, std::string>> merges = {});

// An entry of `added_tokens` with all flags off.
nlohmann::json AddedTokenJson(int32_t id, const std::string& content);

// The ids of a text; fails the running test if it cannot be encoded.
std::vector<int32_t> EncodeOrFail(const Tokenizer& tokenizer,
                                  const std::string& text);

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_TEXT_BPE_TEST_TOKENIZERS_H_
