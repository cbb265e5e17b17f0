// Compares the shared tokenizer's ids with Hugging Face's.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/text/bpe/bpe_tokenizer.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

TEST(GoldenTextTest, IdsEqualHuggingFaces) {
  constexpr char kGolden[] = "golden/text.json";
  const std::optional<std::string> shared = SharedDirWith(kGolden);
  if (!shared) GTEST_SKIP() << NotShared(kGolden);
  const std::string golden = *shared + "/golden/";
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
