#include "server/config/model_warnings.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/model_profile.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Model ModelOf(const std::string& profile) {
  v1::Model model;
  model.set_profile(profile);
  model.set_tokenizer("bytes");
  EXPECT_TRUE(ApplyModelProfile(&model).ok());
  return model;
}

std::vector<std::string> Warned(const std::string& profile,
                                const std::string& json) {
  return NormWarnings(json, "F", ModelOf(profile));
}

TEST(NormWarningsTest, NamesKeyValuesAndWhatToWrite) {
  EXPECT_THAT(
      Warned("qwen2_5_vl", R"({"image_mean": [0.5, 0.5, 0.25]})"),
      ElementsAre(
          "model.mean: found [0.48145466, 0.4578275, 0.40821073], where F has "
          "image_mean [0.5, 0.5, 0.25]: the checkpoint's own processor "
          "normalises images otherwise; write mean: [0.5, 0.5, 0.25] for it"));
  EXPECT_THAT(Warned("gemma3", R"({"image_mean": 0.5, "image_std": 0.25})"),
              ElementsAre(AllOf(HasSubstr("model.std: found [0.5, 0.5, 0.5]"),
                                HasSubstr("std: [0.25, 0.25, 0.25]"))));
}

TEST(NormWarningsTest, EqualValuesAndSilentFilesWarnOfNothing) {
  const std::string clip =
      R"("image_mean": [0.48145466, 0.4578275, 0.40821073],
         "image_std": [0.26862954, 0.26130258, 0.27577711])";
  EXPECT_THAT(Warned("qwen2_5_vl", absl::StrCat("{", clip, "}")), IsEmpty());
  // As transformers 5 saves a whole processor.
  EXPECT_THAT(
      Warned("glm4v", absl::StrCat(R"({"image_processor": {)", clip, "}}")),
      IsEmpty());
  EXPECT_THAT(Warned("gemma4", R"({"do_normalize": false,
                                   "image_mean": [0.5, 0.5, 0.5]})"),
              IsEmpty());
  for (const char* json :
       {"", "{", "[]", "7", "{}", R"({"image_mean": null})",
        R"({"image_mean": [0.5, "a", 1]})", R"({"image_mean": [1, 2]})",
        R"({"image_mean": {}, "do_normalize": 7, "image_processor": 1})"}) {
    EXPECT_THAT(Warned("qwen2_5_vl", json), IsEmpty()) << json;
  }
}

TEST(NormWarningsTest, AProcessorThatDoesNotNormaliseStatesZeroAndOne) {
  EXPECT_THAT(Warned("gemma3", R"({"do_normalize": false})"),
              ElementsAre(AllOf(HasSubstr("model.mean: found [0.5, 0.5, 0.5]"),
                                HasSubstr("do_normalize: false, [0, 0, 0]")),
                          HasSubstr("write std: [1, 1, 1]")));
}

TEST(ModelWarningsTest, ReadsTheFilesBesideTheTokenizer) {
  const std::string folder =
      absl::StrCat(testing::TempDir(), "/model_warnings");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  v1::Model model = ModelOf("internvl3");
  model.set_tokenizer(folder + "/tokenizer.json");
  EXPECT_THAT(ModelWarnings(model), IsEmpty());
  std::ofstream(folder + "/processor_config.json")
      << R"({"image_processor": {"image_mean": [0.5, 0.5, 0.5]}})";
  EXPECT_THAT(ModelWarnings(model),
              ElementsAre(HasSubstr(folder + "/processor_config.json has "
                                             "image_mean [0.5, 0.5, 0.5]")));
  // Which the other one comes before.
  std::ofstream(folder + "/preprocessor_config.json")
      << R"({"image_mean": [0.485, 0.456, 0.406]})";
  EXPECT_THAT(ModelWarnings(model), IsEmpty());
  model.set_tokenizer("bytes");
  EXPECT_THAT(ModelWarnings(model), IsEmpty());
}

// As a section that an older version printed lacks them.
TEST(ModelWarningsTest, AFamilyOfOnesOwnWithoutTheMarksOfItsProfile) {
  v1::Model model = ModelOf("glm4v");
  EXPECT_THAT(ModelWarnings(model), IsEmpty());
  v1::ImageFamily::Marks& marks =
      *model.mutable_image_family()->mutable_marks();
  marks.clear_before();
  EXPECT_THAT(ModelWarnings(model), IsEmpty());
  marks.clear_after();
  EXPECT_THAT(ModelWarnings(model),
              ElementsAre(AllOf(HasSubstr("model.image_family.marks"),
                                HasSubstr("<|begin_of_image|>"),
                                HasSubstr("<|end_of_image|>"))));
  marks.set_placeholder("<other>");
  EXPECT_THAT(ModelWarnings(model), IsEmpty());
}

}  // namespace
}  // namespace ballast
