// Decisions of `ballast-server init` from values; that the files run is shown
// by tests/integration/command_line/init_test.py.
#include "server/command/init/decide.h"

#include <map>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "server/command/init/look.h"
#include "server/command/init/model_choice.h"
#include "server/config/config_loader.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

SeenFiles Tars(const std::string& path) {
  SeenFiles files;
  files.path = path;
  files.files = 2;
  files.samples = 100;
  files.looked_at = 100;
  files.bytes = 5000000;
  files.media.most[MediumKind::kImage] = 2;
  files.most_text = 1000;
  return files;
}

Seen Folder() {
  Seen seen;
  seen.folder = "data";
  seen.files = {Tars("data/docs-[0-9]*.tar")};
  return seen;
}

v1::Config Loaded(const Seen& seen) {
  const auto setup = DecideSetup(seen);
  EXPECT_TRUE(setup.ok()) << setup.status();
  const auto config = ParseConfig(setup->yaml, "ballast.yaml", ".");
  EXPECT_TRUE(config.ok()) << config.status() << setup->yaml;
  return config->config;
}

TEST(DecideSetupTest, NamesOfSourcesHaveNoNumbersOfFiles) {
  for (const auto& [path, name] :
       std::vector<std::pair<std::string, std::string>>{
           {"data/train-[0-9]*-of-[0-9]*.tar", "train"},
           {"data/train-00000-of-00009.tar", "train"},
           {"data/docs-12.tar", "docs"},
           {"data/one-of-us.tar", "one-of-us"}}) {
    Seen seen = Folder();
    seen.files[0].path = path;
    EXPECT_EQ(Loaded(seen).sources(0).name(), name) << path;
  }
}

TEST(DecideSetupTest, FolderOfTarsBecomesASource) {
  const v1::Config config = Loaded(Folder());
  ASSERT_EQ(config.sources_size(), 1);
  EXPECT_EQ(config.sources(0).name(), "docs");
  EXPECT_EQ(config.sources(0).path(), "data/docs-[0-9]*.tar");
  EXPECT_EQ(config.topology().modules().at("vision").dp(), 1);
  EXPECT_EQ(config.batch().global() % config.batch().micro(), 0);
  // Two images of 1280 tokens, 1000 bytes of text, and half of that again.
  EXPECT_EQ(config.batch().max_tokens(), 8192);
  EXPECT_EQ(config.batch().on_too_long(), v1::Batch::ON_TOO_LONG_SKIP);
}

TEST(DecideSetupTest, EveryKeyHasAComment) {
  const auto setup = DecideSetup(Folder());
  ASSERT_TRUE(setup.ok());
  EXPECT_THAT(setup->yaml, HasSubstr("# 100 samples in 2 files, 5.0 MB"));
  EXPECT_THAT(setup->yaml, HasSubstr("# samples a step, over all ranks"));
}

TEST(DecideSetupTest, SourcesAreWeightedByTheirSamples) {
  Seen seen = Folder();
  seen.files.push_back(Tars("data/chat.jsonl"));
  seen.files[1].format = SeenFiles::Format::kJsonl;
  seen.files[1].samples = 300;
  seen.files[1].media_roots = {"data/media"};
  const v1::Config config = Loaded(seen);
  EXPECT_EQ(config.sources(0).weight(), 100);
  EXPECT_EQ(config.sources(1).weight(), 300);
  EXPECT_EQ(config.sources(1).format(), v1::Source::FORMAT_JSONL);
  EXPECT_THAT(config.sources(1).media_root(),
              ElementsAre(HasSubstr("data/media")));
}

TEST(DecideSetupTest, SamplesWithToolsNeedTheCheckpointsTemplate) {
  Seen seen = Folder();
  seen.files[0].for_own_template = 3;
  seen.files[0].first_for_own_template = "a.tar: sample 1: `tools`";
  EXPECT_EQ(Loaded(seen).model().chat_template(), "chatml");
  EXPECT_THAT(DecideSetup(seen)->unsure,
              Contains(HasSubstr("set chat_template: checkpoint")));
  seen.model.folder = "model";
  seen.model.config = R"({"model_type": "qwen2_5_vl"})";
  seen.model.has_tokenizer = true;
  seen.model.own_template = "{{ messages }}";
  EXPECT_EQ(Loaded(seen).model().chat_template(), "checkpoint");
  EXPECT_THAT(DecideSetup(seen)->found,
              Contains(HasSubstr("3 samples of 100 in data/docs-[0-9]*.tar: "
                                 "a.tar: sample 1: `tools`")));
}

TEST(DecideSetupTest, NamesTellTheSplit) {
  Seen seen = Folder();
  seen.files = {Tars("d/train-[0-9]*.tar"), Tars("d/validation-[0-9]*.tar"),
                Tars("test/x.tar")};
  const v1::Config config = Loaded(seen);
  EXPECT_EQ(config.sources(0).split(), v1::SPLIT_TRAIN);
  EXPECT_EQ(config.sources(1).split(), v1::SPLIT_VALID);
  EXPECT_EQ(config.sources(2).split(), v1::SPLIT_TEST);
  EXPECT_THAT(DecideSetup(seen)->unsure,
              Contains(HasSubstr("the split of validation: valid")));
  // A job needs a source to train on.
  seen.files = {Tars("test/x.tar")};
  EXPECT_EQ(Loaded(seen).sources(0).split(), v1::SPLIT_TRAIN);
}

TEST(DecideSetupTest, NamesOfSourcesAreUniqueAndValid) {
  Seen seen = Folder();
  seen.files = {Tars("a/x y.tar"), Tars("b/x y.tar"),
                Tars("\xC3\xA9/[0-9]*.tar"), Tars("c/[0-9]*.tar"),
                Tars("[0-9]*.tar")};
  const v1::Config config = Loaded(seen);  // which refuses bad names
  EXPECT_EQ(config.sources(0).name(), "x-y");
  EXPECT_EQ(config.sources(1).name(), "x-y-2");
  EXPECT_EQ(config.sources(3).name(), "c");
  EXPECT_EQ(config.sources(4).name(), "data");
}

TEST(DecideSetupTest, SettingsOfAStoreAreWritten) {
  Seen seen = Folder();
  seen.files = {Tars("s3://bucket/data/docs-[0-9]*.tar")};
  seen.in_store = true;
  EXPECT_EQ(Loaded(seen).sources(0).path(), "s3://bucket/data/docs-[0-9]*.tar");
  EXPECT_EQ(Loaded(seen).storage().s3().endpoint(), "");
  seen.store.endpoint = "https://store.example:9000";
  seen.store.credentials = "my \"keys\", {here}.ini";
  const v1::Config config = Loaded(seen);
  EXPECT_EQ(config.storage().s3().endpoint(), "https://store.example:9000");
  EXPECT_EQ(config.storage().s3().region(), "us-east-1");
  EXPECT_EQ(config.storage().s3().credentials(), "my \"keys\", {here}.ini");
  EXPECT_FALSE(config.storage().has_cache());
  seen.store = {.section = "azure", .account = "mine"};
  EXPECT_EQ(Loaded(seen).storage().azure().account(), "mine");
  seen.store = {.section = "gcs", .credentials = "anonymous"};
  EXPECT_EQ(Loaded(seen).storage().gcs().credentials(), "anonymous");
}

TEST(DecideSetupTest, EachGpuHasARank) {
  Seen seen = Folder();
  seen.gpus = 8;
  const v1::Config config = Loaded(seen);
  EXPECT_EQ(config.topology().modules().at("language").dp(), 8);
  EXPECT_EQ(config.batch().micro() % 8, 0);
}

TEST(DecideSetupTest, BlocksTakeAtMostAQuarterOfTheMemory) {
  Seen seen = Folder();
  EXPECT_EQ(Loaded(seen).serve().memory(), uint64_t{8} << 30);
  seen.memory_bytes = uint64_t{16} << 30;
  EXPECT_EQ(Loaded(seen).serve().memory(), uint64_t{4} << 30);
  seen.memory_bytes = uint64_t{1} << 30;
  EXPECT_EQ(Loaded(seen).serve().memory(), uint64_t{256} << 20);
}

TEST(DecideSetupTest, NothingToServeIsAnErrorThatSaysWhatWasSeen) {
  Seen seen;
  seen.folder = "data";
  seen.others = {{"data/chat.json", "a JSON array of conversations"}};
  const absl::Status status = DecideSetup(seen).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("data/chat.json: a JSON array of conversations"));
}

TEST(DecideSetupTest, BadSamplesAreSaid) {
  Seen seen = Folder();
  seen.files[0].bad = 3;
  seen.files[0].first_fault = "a.tar: sample 7: not JSON";
  EXPECT_THAT(DecideSetup(seen)->unsure,
              Contains(HasSubstr(
                  "3 bad samples of 100 in docs: a.tar: sample 7: not JSON")));
}

SeenModel Qwen() {
  SeenModel model;
  model.folder = "/models/qwen";
  model.has_tokenizer = true;
  model.config = R"({"model_type": "qwen2_5_vl"})";
  model.preprocessor =
      R"({"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14,
          "image_mean": [0.48145466, 0.4578275, 0.40821073]})";
  model.chat_template = "<|im_start|>system\nYou are a helpful assistant.";
  return model;
}

TEST(ChooseModelTest, TheModelsFilesDecide) {
  Seen seen = Folder();
  seen.model = Qwen();
  const v1::Model model = Loaded(seen).model();
  EXPECT_EQ(model.profile(), "qwen2_5_vl");
  EXPECT_EQ(model.tokenizer(), "/models/qwen/tokenizer.json");
  EXPECT_EQ(model.max_pixels(), 12845056);
  EXPECT_EQ(model.min_pixels(), 3136);
  EXPECT_EQ(model.system_prompt(), "You are a helpful assistant.");
  // 16384 tokens of an image, twice, and half of that again.
  EXPECT_EQ(Loaded(seen).batch().max_tokens(), 65536);
}

TEST(DecideSetupTest, ClipsBringTheModuleAudio) {
  Seen seen = Folder();
  seen.files[0].media.most[MediumKind::kImage] = 0;
  seen.files[0].media.with[MediumKind::kAudio] = 5;
  seen.files[0].media.most[MediumKind::kAudio] = 2;
  const v1::Config alone = Loaded(seen);
  EXPECT_EQ(alone.model().profile(), "qwen2_5_omni");
  EXPECT_EQ(alone.topology().modules().count("vision"), 0u);
  EXPECT_EQ(alone.topology().modules().at("audio").dp(), 1u);
  // Two clips of 750 tokens, 1000 bytes of text, and half of that again.
  EXPECT_EQ(alone.batch().max_tokens(), 4096u);
  seen.files[0].media.with[MediumKind::kImage] = 3;
  seen.files[0].media.most[MediumKind::kImage] = 1;
  const v1::Config both = Loaded(seen);
  EXPECT_EQ(both.topology().modules().at("vision").dp(), 1u);
  EXPECT_EQ(both.topology().modules().at("audio").dp(), 1u);
  // Videos, too, bring the module that sees them.
  seen.files[0].media.with[MediumKind::kImage] =
      seen.files[0].media.most[MediumKind::kImage] = 0;
  seen.files[0].media.with[MediumKind::kVideo] = 2;
  const v1::Config films = Loaded(seen);
  EXPECT_EQ(films.topology().modules().at("vision").dp(), 1u);
  EXPECT_EQ(films.topology().modules().at("audio").dp(), 1u);
  seen.files[0].media.with[MediumKind::kVideo] = 0;
  seen.files[0].media.with[MediumKind::kImage] = 3;
  seen.files[0].media.most[MediumKind::kImage] = 1;
  // A model that takes images alone.
  seen.model = Qwen();
  EXPECT_EQ(Loaded(seen).topology().modules().count("audio"), 0u);
  EXPECT_THAT(DecideSetup(seen)->unsure,
              Contains(HasSubstr("5 samples of those read with clips of audio, "
                                 "which the profile does not take")));
  // One that takes audio alone.
  seen.model.config = R"({"model_type": "qwen2_audio"})";
  seen.model.preprocessor = R"({"feature_size": 128})";
  const v1::Config hears = Loaded(seen);
  EXPECT_EQ(hears.model().profile(), "qwen2_audio");
  EXPECT_EQ(hears.model().chat_template(), "chatml");
  EXPECT_EQ(hears.model().system_prompt(), "You are a helpful assistant.");
  EXPECT_EQ(hears.topology().modules().count("vision"), 0u);
  EXPECT_EQ(hears.topology().modules().at("audio").dp(), 1u);
  EXPECT_THAT(DecideSetup(seen)->unsure,
              Contains(HasSubstr("3 samples of those read with images")));
  // With which the profile's features would be other ones.
  seen.model.preprocessor = R"({"feature_size": 128, "hop_length": 320})";
  EXPECT_THAT(std::string(DecideSetup(seen).status().message()),
              HasSubstr("found qwen2_audio, whose audio has hop_length 160, "
                        "where /models/qwen/preprocessor_config.json has 320"));
  seen.model.preprocessor = "";
  seen.model.config = R"({"model_type": "voxtral"})";
  seen.model.chat_template = "";
  EXPECT_THAT(std::string(DecideSetup(seen).status().message()),
              HasSubstr("voxtral has no template"));
}

TEST(ChooseModelTest, NumbersOfTheProcessorReplaceTheProfiles) {
  SeenModel model = Qwen();
  model.config = R"({"model_type": "qwen3_vl_moe"})";
  model.preprocessor =
      R"({"size": {"shortest_edge": 65536, "longest_edge": 1048576},
          "patch_size": 18, "image_mean": [0.1, 0.2, 0.3]})";
  Seen seen = Folder();
  seen.model = model;
  const v1::Model chosen = Loaded(seen).model();
  EXPECT_EQ(chosen.profile(), "qwen3_vl");
  EXPECT_EQ(chosen.patch(), 18);
  EXPECT_EQ(chosen.max_pixels(), 1048576);
  EXPECT_THAT(chosen.mean(), ElementsAre(0.1, 0.2, 0.3));
}

TEST(DecideSetupTest, PartsOfEnergonKeepTheirSplits) {
  Seen seen = Folder();
  SeenFiles train = Tars("data/nv-val");  // a name that is not asked
  train.format = SeenFiles::Format::kEnergon;
  train.split = "train";
  SeenFiles valid = train;
  valid.split = "valid";
  valid.crude = true;
  seen.files = {train, valid};
  const v1::Config config = Loaded(seen);
  EXPECT_EQ(config.sources(0).format(), v1::Source::FORMAT_ENERGON);
  EXPECT_EQ(config.sources(0).split(), v1::SPLIT_TRAIN);
  EXPECT_FALSE(config.sources(0).has_energon());
  EXPECT_EQ(config.sources(1).name(), "nv-val-valid");
  EXPECT_EQ(config.sources(1).split(), v1::SPLIT_VALID);
  EXPECT_EQ(config.sources(1).energon().crude(),
            v1::Source::Energon::CRUDE_WEBDATASET);
  EXPECT_THAT(DecideSetup(seen)->unsure,
              Contains(HasSubstr("nv-val-valid: its cooker is Python")));
}

// A model of a family, as its checkpoint's files state it.
SeenModel Family(const std::string& config, const std::string& processor) {
  SeenModel model;
  model.folder = "/models/m";
  model.has_tokenizer = true;
  model.config = config;
  model.preprocessor = processor;
  return model;
}

// As the released checkpoints have them (transformers 5.23's defaults).
TEST(ChooseModelTest, EveryFamilyHasAProfile) {
  const struct {
    const char* config;
    const char* processor;
    const char* profile;
  } kModels[] = {
      {R"({"model_type": "gemma3"})", R"({"size": {"height": 896}})", "gemma3"},
      {R"({"model_type": "gemma3"})", R"({"do_pan_and_scan": true})",
       "gemma3_pan_and_scan"},
      {R"({"model_type": "idefics3", "scale_factor": 2})",
       R"({"size": {"longest_edge": 1456},
           "max_image_size": {"longest_edge": 364}})",
       "idefics3"},
      {R"({"model_type": "internvl", "vision_config": {"patch_size": [14, 14]}})",
       R"({"size": {"height": 448, "width": 448}, "max_patches": 12})",
       "internvl3"},
      {R"({"model_type": "llama4"})",
       R"({"size": {"height": 336, "width": 336}, "max_patches": 16})",
       "llama4"},
      {R"({"model_type": "llava"})", R"({"crop_size": {"height": 336}})",
       "llava1_5"},
      {R"({"model_type": "llava"})", R"({"do_pad": true})", "llava1_5_pad"},
      {R"({"model_type": "llava", "vision_config": {"model_type": "pixtral"}})",
       R"({"patch_size": {"height": 16, "width": 16},
           "size": {"longest_edge": 1024}})",
       "pixtral"},
      {R"({"model_type": "llava_next", "vision_config": {"patch_size": 14}})",
       R"({"image_grid_pinpoints": [[336, 672], [672, 336], [672, 672],
                                    [1008, 336], [336, 1008]]})",
       "llava_next"},
      {R"({"model_type": "llava_onevision"})", R"({})", "llava_onevision"},
  };
  for (const auto& one : kModels) {
    Seen seen = Folder();
    seen.model = Family(one.config, one.processor);
    const v1::Model model = Loaded(seen).model();
    EXPECT_EQ(model.profile(), one.profile);
    EXPECT_EQ(model.tokenizer(), "/models/m/tokenizer.json") << one.profile;
    EXPECT_GT(ChooseModel(seen.model)->most_image_tokens, 200) << one.profile;
  }
}

// The authors' by default, with what the checkpoint's class has instead.
TEST(ChooseModelTest, SaysWhoseRulesHold) {
  const auto found = [](const char* config, const char* processor) {
    return ChooseModel(Family(config, processor)).value().found;
  };
  EXPECT_THAT(
      found(R"({"model_type": "llava"})", R"({"do_center_crop": true})"),
      Contains(AllOf(HasSubstr("model.rules: authors, by haotian-liu/LLaVA"),
                     HasSubstr("have other images"),
                     HasSubstr("model.rules: transformers follows them"))));
  EXPECT_THAT(found(R"({"model_type": "glm4v"})", "{}"),
              Contains(HasSubstr("have other chat")));
  EXPECT_THAT(found(R"({"model_type": "hunyuan_vl"})", "{}"),
              Not(Contains(HasSubstr("model.rules"))));
  EXPECT_THAT(found(R"({"model_type": "smolvlm"})",
                    R"({"max_image_size": {"longest_edge": 512}})"),
              Contains(HasSubstr("profile smolvlm_500m")));
}

TEST(ChooseModelTest, TheLongestImageOfAFamilyFits) {
  // InternVL: 12 tiles and a thumbnail of 256 tokens; its marks are text.
  const SeenModel internvl = Family(R"({"model_type": "internvl"})", "{}");
  EXPECT_EQ(ChooseModel(internvl)->most_image_tokens, 13 * 256);
  const SeenModel gemma = Family(R"({"model_type": "gemma3"})", "{}");
  EXPECT_EQ(ChooseModel(gemma)->most_image_tokens, 256);
}

// Mistral Small 3.1 has Pixtral's rule with other numbers: its images would
// silently become other crops.
TEST(ChooseModelTest, ACheckpointWithOtherNumbersIsRefused) {
  const absl::Status status =
      ChooseModel(
          Family(R"({"model_type": "mistral3", "spatial_merge_size": 2,
                             "vision_config": {"patch_size": 14}})",
                 R"({"patch_size": 14, "size": {"longest_edge": 1540}})"))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* part :
       {"preprocessor_config.json: patch_size: found 14, where profile pixtral "
        "has patch 16",
        "config.json: spatial_merge_size: found 2", "longest_edge: found 1540",
        "inspect family --model pixtral", "model.image_family"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

// As transformers 5 saves it.
TEST(ChooseModelTest, TheProcessorMayBeOneOfSeveralInAFile) {
  SeenModel model =
      Family(R"({"model_type": "llava"})",
             R"({"image_processor": {"crop_size": {"height": 224}}})");
  model.processor_file = "processor_config.json";
  EXPECT_THAT(std::string(ChooseModel(model).status().message()),
              HasSubstr("/processor_config.json: crop_size.height: found 224"));
}

TEST(ChooseModelTest, AFamilysMeanIsItsCheckpoints) {
  Seen seen = Folder();
  seen.model = Family(R"({"model_type": "glm4v"})",
                      R"({"image_mean": [0.1, 0.2, 0.3],
                          "image_std": [0.26862954, 0.26130258, 0.27577711]})");
  seen.model.chat_template = "<|im_start|>";
  const v1::Model model = Loaded(seen).model();
  EXPECT_EQ(model.profile(), "glm4v");
  EXPECT_THAT(model.mean(), ElementsAre(0.1, 0.2, 0.3));
  EXPECT_THAT(model.std(), ElementsAre(0.26862954, 0.26130258, 0.27577711));
}

// Models of one family of images have several templates: a wrong one would
// train on tokens that the model never sees again.
TEST(ChooseModelTest, ACheckpointWithAnotherTemplateThanItsFamilys) {
  const std::string glm = "<|user|>\n<|begin_of_image|><|image|>";
  const std::string thoughts = glm + "<think></think>";
  Seen seen = Folder();
  seen.model = Family(R"({"model_type": "glm4v_moe"})", "{}");
  for (const auto& [own, wanted] : std::map<std::string, std::string>{
           {glm, "glm4v"}, {thoughts, "glm46v"}, {"<|im_start|>", "chatml"}}) {
    seen.model.own_template = own;
    EXPECT_EQ(Loaded(seen).model().chat_template(), wanted) << own;
    EXPECT_EQ(testing::Value(ChooseModel(seen.model)->unsure,
                             Contains(HasSubstr("the chat template"))),
              wanted != "glm4v")
        << own;
  }
  seen.model = Family(R"({"model_type": "llava_next"})", "{}");
  EXPECT_EQ(Loaded(seen).model().chat_template(), "llava_next");
  seen.model.own_template = "{{ '[INST] ' }}<image>\n{{ ' [/INST]' }}";
  EXPECT_EQ(Loaded(seen).model().chat_template(), "checkpoint");
  EXPECT_THAT(ChooseModel(seen.model)->found,
              Contains(HasSubstr("since the template of llava_next is not the "
                                 "model's own, which lacks \".upper()\"")));
}

// As of a model that was trained on from a Qwen, with its tokens.
TEST(ChooseModelTest, AQwenWithAnotherTemplateThanChatMl) {
  Seen seen = Folder();
  seen.model = Qwen();
  seen.model.own_template = "{{ '[INST] ' }}{{ ' [/INST]' }}";
  EXPECT_EQ(Loaded(seen).model().chat_template(), "checkpoint");
  EXPECT_EQ(Loaded(seen).model().system_prompt(), "");
  seen.model.own_template = seen.model.chat_template;
  EXPECT_EQ(Loaded(seen).model().chat_template(), "chatml");
  EXPECT_EQ(Loaded(seen).model().system_prompt(),
            "You are a helpful assistant.");
}

TEST(ChooseModelTest, AFamilyNeedsItsTokenizer) {
  SeenModel model = Family(R"({"model_type": "gemma3"})", "{}");
  model.has_tokenizer = false;
  EXPECT_THAT(std::string(ChooseModel(model).status().message()),
              HasSubstr("/models/m: found no tokenizer.json"));
}

TEST(ChooseModelTest, AbsurdFilesOfAFamilyDoNotCrash) {
  for (const char* processor :
       {R"({"size": 7})", R"({"size": {"height": "x"}})",
        R"({"patch_size": []})",
        R"({"image_grid_pinpoints": {}, "crop_size": null})",
        R"({"image_mean": 3})"}) {
    for (const char* type : {"gemma3", "llava_next", "internvl", "glm4v"}) {
      SeenModel model =
          Family(std::string("{\"model_type\": \"") + type +
                     "\", \"vision_config\": 1, \"spatial_merge_size\": \"a\"}",
                 processor);
      model.chat_template = "<|im_start|>";
      EXPECT_TRUE(ChooseModel(model).ok() ||
                  absl::IsInvalidArgument(ChooseModel(model).status()));
    }
  }
}

TEST(ChooseModelTest, FamiliesWithoutProfileAreRefusedByName) {
  SeenModel model = Qwen();
  model.config = R"({"model_type": "gpt2"})";
  const absl::Status status = ChooseModel(model).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("/models/qwen/config.json: model_type: found \"gpt2\""));
  // lmms-lab's checkpoints of LLaVA-OneVision and LLaVA-Video alike.
  model.config = R"({"model_type": "llava_qwen"})";
  EXPECT_THAT(std::string(ChooseModel(model).status().message()),
              HasSubstr("names two models: set model.profile to "
                        "llava_onevision or llava_video"));
  model.config = "{";
  EXPECT_FALSE(ChooseModel(model).ok());
  model.config = "[1]";
  EXPECT_FALSE(ChooseModel(model).ok());
}

TEST(ChooseModelTest, AModelWithoutAProfileGetsARecipeAndItsOwnTemplate) {
  SeenModel model = Family(
      R"({"model_type": "novel-vl", "vision_config": {"patch_size": 16,
          "image_size": 384}})",
      R"({"merge_size": 2, "image_mean": [0.1, 0.2, 0.3]})");
  model.own_template = "{{ messages }}";
  const auto choice = ChooseModel(model);
  ASSERT_TRUE(choice.ok()) << choice.status();
  const auto value = [&](absl::string_view key) {
    for (const ModelChoice::Line& line : choice->lines) {
      if (line.key == key) return line.value;
    }
    return std::string();
  };
  EXPECT_EQ(value("profile"), "\"./novel_vl.textproto\"");
  EXPECT_EQ(value("recipe"), "novel_vl_recipe.py");
  EXPECT_EQ(value("chat_template"), "checkpoint");
  ASSERT_EQ(choice->files.size(), 2u);
  EXPECT_EQ(choice->files[0].name, "novel_vl.textproto");
  EXPECT_THAT(choice->files[0].text,
              AllOf(HasSubstr("patch: 16\n"), HasSubstr("merge: 2\n"),
                    HasSubstr("mean: [0.1,0.2,0.3]\n")));
  EXPECT_THAT(choice->files[1].text,
              AllOf(HasSubstr("SIDE = 384\n"), HasSubstr("TOKEN = 32 "),
                    HasSubstr("@recipe.image_plan\n")));
  EXPECT_THAT(choice->unsure, Contains(HasSubstr("has no image_std")));
  // Without a template of its own nothing would render its text.
  model.own_template = "";
  EXPECT_FALSE(ChooseModel(model).ok());
}

TEST(ChooseModelTest, ATemplateThatIsNotCoveredIsTheCheckpoints) {
  SeenModel model = Family(R"({"model_type": "aya_vision"})", "{}");
  model.own_template = "{{ messages }}";
  const auto choice = ChooseModel(model);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->lines.back().key, "chat_template");
  EXPECT_EQ(choice->lines.back().value, "checkpoint");
}

TEST(DecideSetupTest, RecordsOfNoKnownFormGetARecipe) {
  Seen seen = Folder();
  seen.files.push_back(Tars("data/odd.jsonl"));
  seen.files[1].format = SeenFiles::Format::kJsonl;
  seen.files[1].media_roots = {"data"};
  seen.files[1].record = "{\n  \"q\": \"Why?\"\n}";
  seen.files[1].first_fault = "data/odd.jsonl: line 1: no turns";
  const v1::Config config = Loaded(seen);
  EXPECT_EQ(config.sources(0).recipe(), "");
  EXPECT_EQ(config.sources(1).recipe(), "odd_recipe.py");
  const auto setup = DecideSetup(seen);
  ASSERT_EQ(setup->files.size(), 1u);
  EXPECT_EQ(setup->files[0].name, "odd_recipe.py");
  EXPECT_THAT(setup->files[0].text,
              AllOf(HasSubstr("#   {\n#     \"q\": \"Why?\"\n#   }\n"),
                    HasSubstr("@recipe.cook\ndef cook(record):\n"),
                    HasSubstr("raise NotImplementedError(")));
  EXPECT_THAT(setup->unsure,
              Contains(AllOf(HasSubstr("the records of odd"),
                             HasSubstr("line 1: no turns"),
                             HasSubstr("write `cook` in odd_recipe.py"))));
}

TEST(ShowRecordTest, LongTextsAndListsAreCut) {
  RecipeRecord record;
  record.text = absl::StrCat(R"({"a": ")", std::string(100, 'x'),
                             R"(", "b": [1, 2, 3, 4, 5]})");
  EXPECT_EQ(ShowRecord(record),
            absl::StrCat("{\n  \"a\": \"", std::string(60, 'x'),
                         "...\",\n  \"b\": [\n    1,\n    2,\n    3,\n    "
                         "\"... 5 in all\"\n  ]\n}"));
  record.kind = RecipeRecord::Kind::kMembers;
  record.text = "k";
  record.parts = {{"json", 8, R"({"a": 1})"}, {"jpg", 7, std::nullopt}};
  EXPECT_EQ(ShowRecord(record),
            "key k\nmembers[\"json\"]: 8 bytes, {\"a\":1}\nmembers[\"jpg\"]: "
            "7 bytes");
}

TEST(ChooseModelTest, AbsurdNumbersDoNotCrash) {
  Seen seen = Folder();
  seen.model = Qwen();
  seen.model.preprocessor =
      R"({"patch_size": 4294967296, "merge_size": 4294967296,
          "max_pixels": 18446744073709551615, "size": 7})";
  ASSERT_TRUE(DecideSetup(seen).ok());
  seen.model.preprocessor = R"({"patch_size": 0, "merge_size": -1,
                                "max_pixels": 18446744073709551615})";
  ASSERT_TRUE(DecideSetup(seen).ok());
}

TEST(ChooseModelTest, WithoutModelTheChoiceIsUnsure) {
  EXPECT_THAT(ChooseModel({})->unsure, Contains(HasSubstr("--model-dir")));
}

TEST(GroupNamesTest, NumbersMakeShards) {
  const auto groups =
      GroupNames({"b-001.tar", "b-000.tar", "a.tar", "x*y.tar"});
  ASSERT_EQ(groups.size(), 3);
  EXPECT_EQ(groups[0].pattern, "a.tar");
  EXPECT_EQ(groups[1].pattern, "b-[0-9]*.tar");
  EXPECT_THAT(groups[1].names, ElementsAre("b-000.tar", "b-001.tar"));
  EXPECT_EQ(groups[2].pattern, "x\\*y.tar");
}

TEST(GroupNamesTest, PatternNamesNoOtherGroupsFiles) {
  // The glob of the first two would match the third, too.
  const auto groups = GroupNames({"a-0.tar", "a-1.tar", "a-1-b.tar"});
  ASSERT_EQ(groups.size(), 2);
  EXPECT_EQ(groups[0].pattern, "a-1-b.tar");
  EXPECT_EQ(groups[1].pattern, "{a-0.tar,a-1.tar}");
}

TEST(VisibleGpusTest, AsCudaCounts) {
  EXPECT_EQ(VisibleGpus(8, nullptr), 8);
  EXPECT_EQ(VisibleGpus(8, "0,3"), 2);
  EXPECT_EQ(VisibleGpus(8, ""), 0);
  EXPECT_EQ(VisibleGpus(8, "0,-1,3"), 1);
  EXPECT_EQ(VisibleGpus(1, "0,1,2"), 1);
}

}  // namespace
}  // namespace ballast
