// The shared tokenizer against what Hugging Face tokenizers made of its texts.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/text/bpe/bpe_tokenizer.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

TEST(GoldenTextTest, IdsAreThoseOfHuggingFace) {
  const char* shared = std::getenv("BALLAST_SHARED_DIR");
  const std::string golden =
      std::string(shared == nullptr ? "" : shared) + "/golden/";
  if (shared == nullptr || !std::ifstream(golden + "text.json")) {
    GTEST_SKIP() << "BALLAST_SHARED_DIR with golden/text.json is not here";
  }
  const auto tokenizer =
      MakeBpeTokenizer(ReadFileOrFail(golden + "tokenizer.json"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const nlohmann::json cases = ReadJsonOrFail(golden + "text.json")["cases"];
  ASSERT_FALSE(cases.empty());
  for (const nlohmann::json& expected : cases) {
    EXPECT_EQ(EncodeOrFail(**tokenizer, expected["text"]),
              expected["ids"].get<std::vector<int32_t>>())
        << expected["text"];
  }
}

}  // namespace
}  // namespace ballast
