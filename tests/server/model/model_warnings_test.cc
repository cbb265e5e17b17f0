#include "server/model/model_warnings.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"

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

std::vector<std::string> Differ(const std::string& profile,
                                const std::string& json) {
  return AudioDifferences(json, "F", profile, *FindAudioFamily(profile));
}

TEST(AudioDifferencesTest, NamesNumbersOfTheExtractor) {
  EXPECT_THAT(
      Differ("qwen2_audio", R"({"hop_length": 320, "n_fft": 512})"),
      ElementsAre(
          "model.profile: found qwen2_audio, whose audio has hop_length 160, "
          "where F has 320: the checkpoint's own extractor makes other "
          "features "
          "of a clip; write a file of the model with base: \"qwen2_audio\" and "
          "a section audio for it (docs/audio.md)",
          HasSubstr("n_fft 400, where F has 512")));
  EXPECT_THAT(Differ("qwen2_5_omni", R"({"n_samples": 480000})"),
              ElementsAre(HasSubstr("n_samples 4.8e+06")));
  EXPECT_THAT(Differ("voxtral", R"({"feature_size": 80, "dither": 0.1})"),
              ElementsAre(HasSubstr("feature_size 128, where F has 80"),
                          HasSubstr("dither 0, where F has 0.1")));
  EXPECT_THAT(
      Differ("gemma3n", R"({"feature_extractor": {"mel_floor": 1e-10}})"),
      ElementsAre(HasSubstr("mel_floor 1e-05, where F has 1e-10")));
  EXPECT_THAT(Differ("granite_speech", R"({"sampling_rate": 8000})"),
              ElementsAre(HasSubstr("sampling_rate 16000, where F has 8000")));
}

// The numbers of transformers' extractors, as their to_dict gives them.
TEST(AudioDifferencesTest, ReleasedExtractorsAgree) {
  const std::string whisper =
      R"({"feature_size": 128, "sampling_rate": 16000, "hop_length": 160,
          "n_fft": 400, "dither": 0.0, "n_samples": )";
  for (const char* profile : {"qwen2_audio", "voxtral", "qwen3_omni_moe"}) {
    EXPECT_THAT(Differ(profile, absl::StrCat(whisper, "480000}")), IsEmpty())
        << profile;
  }
  EXPECT_THAT(
      Differ("qwen2_5_omni",
             absl::StrCat(whisper, R"(4800000, "do_normalize": true})")),
      IsEmpty());
  EXPECT_THAT(Differ("phi4_multimodal",
                     R"({"feature_size": 80, "hop_length": 160, "n_fft": 512,
                         "win_length": 400, "preemphasis": 0.97})"),
              IsEmpty());
  EXPECT_THAT(Differ("gemma3n",
                     R"({"feature_size": 128, "frame_length": 512,
                         "hop_length": 160, "fft_length": 1024,
                         "preemphasis": 0.97, "min_frequency": 125.0,
                         "max_frequency": 7600.0, "mel_floor": 1e-05})"),
              IsEmpty());
  EXPECT_THAT(Differ("gemma4",
                     R"({"feature_size": 128, "frame_length": 320,
                         "hop_length": 160, "fft_length": 512,
                         "preemphasis": 0.0, "min_frequency": 0.0,
                         "max_frequency": 8000.0, "mel_floor": 0.001})"),
              IsEmpty());
  EXPECT_THAT(Differ("granite_speech",
                     R"({"n_mels": 80, "hop_length": 160, "n_fft": 512,
                         "win_length": 400})"),
              IsEmpty());
  for (const char* json : {"", "[]", R"({"hop_length": "160"})"}) {
    EXPECT_THAT(Differ("qwen2_audio", json), IsEmpty()) << json;
  }
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
  v1::Model hears = ModelOf("qwen2_audio");
  hears.set_tokenizer(folder + "/tokenizer.json");
  std::ofstream(folder + "/preprocessor_config.json")
      << R"({"hop_length": 80})";
  EXPECT_THAT(ModelWarnings(hears),
              ElementsAre(HasSubstr("hop_length 160, where " + folder)));
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
