#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/config_loader.h"

namespace ballast {
namespace {

std::string WarningOf(const std::string& source, const std::string& model) {
  const auto config = ParseConfig(
      absl::StrCat("sources: [", source, "]\n", model,
                   "batch: {global: 4, micro: 4}\n"
                   "topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}"),
      "ballast.yaml", "/data");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? TrialTokenizerWarning(config->config) : "";
}

constexpr char kTars[] = "{name: a, format: webdataset, path: a.tar}";
constexpr char kDrawn[] =
    "{name: a, format: mock, lengths: {mode: lognormal, min: 1, max: 9, "
    "mean: 4, sigma: 1}}";

// Nothing else tells that the key was forgotten: the job runs.
TEST(TrialTokenizerTest, WarnsOfTheDefault) {
  EXPECT_NE(WarningOf(kTars, ""), "");
  EXPECT_NE(WarningOf(kTars, "model: {profile: qwen3_vl}\n"), "");
  EXPECT_NE(WarningOf(kTars, "model: {tokenizer: bytes}\n"), "");
  EXPECT_EQ(WarningOf(kTars, "model: {tokenizer: tokenizer.json}\n"), "");
  EXPECT_EQ(WarningOf(kDrawn, ""), "");
}

}  // namespace
}  // namespace ballast
