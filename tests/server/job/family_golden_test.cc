// Served blocks hold, for each setting of golden/families.json and each of its
// photographs, the crops that the family's processor makes.

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/sha256.h"
#include "server/command/commands.h"
#include "server/config/image_family_config.h"
#include "server/config/profiles.h"
#include "server/image_plan/image_family.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/job/family_job.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

constexpr char kGolden[] = "golden/families.json";

// Only crops matter here, and most families' tokens are not the tokenizer's:
// one placeholder stands for each image's features. Blocks hold pixels before
// they are normalised, so any mean and deviation do.
std::string ModelYaml(const std::string& name) {
  ImageFamily family = *FindImageFamily(name);
  family.marks = {};
  family.marks.placeholder = "<image>";
  return absl::StrCat(
      "\n  tokenizer: '",
      std::filesystem::absolute(
          "tests/server/text/testdata/family_chats.tokenizer.json")
          .string(),
      "'\n  token_ids: {end_of_text: 7}\n  chat_template: llava1_5\n"
      "  mean: [0.5, 0.4, 0.3]\n  std: [0.2, 0.3, 0.4]\n  ",
      absl::StrReplaceAll(FamilyYaml(family), {{"\n", "\n  "}}));
}

std::string GetHash(const std::vector<uint8_t>& bytes) {
  return Sha256Hex(bytes);
}

TEST(FamilyGoldenTest, BlocksHoldTheCropsOfTheProcessors) {
  const auto shared = SharedDirWith(kGolden);
  if (!shared) GTEST_SKIP() << NotShared(kGolden);
  const nlohmann::json golden =
      ReadJsonOrFail(*shared + "/" + kGolden)["families"];
  const std::string directory = ::testing::TempDir() + "/golden";
  std::filesystem::create_directories(directory);
  std::vector<TestSample> samples;
  std::vector<std::string> names;
  for (const auto& [name, unused] : golden["llava1_5"]["images"].items()) {
    names.push_back(name);
    std::filesystem::copy_file(
        *shared + "/corpus/images/" + name, directory + "/" + name,
        std::filesystem::copy_options::overwrite_existing);
    samples.push_back({R"([{"role": "user", "content": "<image>?"}])", {name}});
  }
  WriteConversations(directory, samples);
  ASSERT_EQ(golden.size(), 18u);
  for (const auto& [name, setting] : golden.items()) {
    SCOPED_TRACE(name);
    const auto job =
        FamilyJob::Open(directory, samples.size(), ModelYaml(name));
    ASSERT_TRUE(job.ok()) << job.status();
    const auto vision = (*job)->Build(v1::MODULE_VISION);
    ASSERT_TRUE(vision.ok()) << vision.status();
    for (uint32_t i = 0; i < samples.size(); ++i) {
      const std::string& file = names[vision->view().samples()[i].ordinal];
      SCOPED_TRACE(file);
      EXPECT_EQ(vision->view().samples()[i].flags, 0u);
      const std::vector<RgbImage> crops = vision->Crops(i);
      size_t next = 0;
      for (const auto& array : setting["images"][file]["arrays"]) {
        if (array.contains("sha256")) {
          const PatchBytes patches =
              ArrangePatches(crops, *FindImageFamily(name));
          EXPECT_EQ(GetHash(patches.values), array["sha256"]);
          next = crops.size();
          continue;
        }
        for (const auto& crop : array["crops"]) {
          ASSERT_LT(next, crops.size());
          EXPECT_EQ(crops[next].height, crop[0]);
          EXPECT_EQ(crops[next].width, crop[1]);
          EXPECT_EQ(GetHash(crops[next].pixels), crop[2]);
          ++next;
        }
      }
      EXPECT_EQ(next, crops.size());
    }
  }
}

}  // namespace
}  // namespace ballast
