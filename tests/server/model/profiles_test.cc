#include "server/model/profiles.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/image/job_images.h"
#include "server/config/config_loader.h"
#include "server/model/image_family_config.h"
#include "server/model/model_images.h"
#include "server/model/model_profile.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string ReadProfile(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Each file of models/ has no fault, and what is compiled in is what it says.
TEST(ProfilesTest, EveryFileOfModelsIsValid) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("models")) {
    if (entry.path().extension() != ".textproto") continue;
    SCOPED_TRACE(entry.path().string());
    names.push_back(entry.path().stem().string());
    const auto read =
        ParseProfile(ReadProfile(entry.path()), entry.path().string());
    ASSERT_TRUE(read.ok()) << read.status();
    v1::ModelProfile compiled = *FindProfile(names.back());
    compiled.clear_base();
    EXPECT_TRUE(
        google::protobuf::util::MessageDifferencer::Equals(*read, compiled));
    // Its images can be planned.
    if (!TakesImages(compiled)) continue;
    EXPECT_TRUE(ImagePlanner::Create(*FindImageFamily(names.back())).ok());
  }
  EXPECT_GE(names.size(), 25u);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(ProfileNames(), names);
}

// Qwen's profiles and all others: a complete model has its profile's images,
// and the profile says whether keys of the model describe them.
TEST(ProfilesTest, DescribeTheImagesOfEveryModel) {
  int with_keys = 0;
  for (const std::string& name : ProfileNames(TakesImages)) {
    SCOPED_TRACE(name);
    const v1::ModelProfile& profile = *FindProfile(name);
    v1::Model model;
    model.set_profile(name);
    ASSERT_TRUE(ApplyModelProfile(&model).ok());
    EXPECT_EQ(HasImageKeys(model), profile.has_token_ids());
    EXPECT_EQ(ListsCrops(model), !profile.has_token_ids());
    with_keys += HasImageKeys(model);
    const ImageFamily images = GetImageFamily(model);
    EXPECT_EQ(images.name, profile.images().name());
    EXPECT_EQ(images.rule, FamilyOfConfig(profile.images()).rule);
    EXPECT_EQ(images.patch, model.patch());
    EXPECT_EQ(images.merge, model.merge());
    EXPECT_EQ(images.max_pixels, profile.images().max_pixels());
    EXPECT_EQ(images.marks.placeholder, profile.images().marks().placeholder());
    EXPECT_EQ(GetVideoRule(model), profile.videos().rule());
    // Other images take the place of the profile's.
    model.mutable_image_family()->set_rule(v1::ImageFamily::RULE_LONGEST_EDGE);
    EXPECT_FALSE(HasImageKeys(model));
    EXPECT_EQ(HasOtherImages(model), profile.has_token_ids());
    EXPECT_EQ(GetImageFamily(model).rule, ImageRule::kLongestEdge);
    EXPECT_EQ(GetVideoRule(model), v1::Videos::RULE_UNSPECIFIED);
  }
  EXPECT_GE(with_keys, 5);  // Qwen's
}

// Batches of images that keys describe list crops where merge order does not
// say them.
TEST(ProfilesTest, TheFormDecidesWhatBatchesList) {
  v1::Model model;
  for (const auto form :
       {v1::Model::IMAGE_FORM_TILES, v1::Model::IMAGE_FORM_RASTER,
        v1::Model::IMAGE_FORM_PADDED}) {
    model.set_image_form(form);
    EXPECT_TRUE(ListsCrops(model));
    EXPECT_TRUE(ListsCropSizes(model));
  }
  model.set_image_form(v1::Model::IMAGE_FORM_MERGE_ORDER);
  EXPECT_FALSE(ListsCrops(model));
  model.mutable_image_family();
  EXPECT_TRUE(ListsCrops(model));
  EXPECT_FALSE(ListsCropSizes(model));
}

// Whether rows of embeddings may be counted by patches is what plans of images
// of many sizes say.
TEST(ProfilesTest, KnowWhetherPatchesCountPlaceholders) {
  int with_others = 0;
  for (const std::string& name : ProfileNames(TakesImages)) {
    SCOPED_TRACE(name);
    v1::Model model;
    model.set_profile(name);
    ASSERT_TRUE(ApplyModelProfile(&model).ok());
    const auto planner = ImagePlanner::Create(GetImageFamily(model));
    ASSERT_TRUE(planner.ok()) << planner.status();
    bool are_equal = true;
    for (const uint32_t height : {60, 448, 701, 1344, 3000}) {
      for (const uint32_t width : {60, 448, 997, 2016, 3000}) {
        const auto plan = planner->Plan(height, width);
        if (!plan.ok()) continue;  // too narrow
        are_equal =
            are_equal &&
            plan->placeholders * model.merge() * model.merge() == plan->patches;
      }
    }
    EXPECT_EQ(HasPlaceholdersByPatches(model), are_equal);
    with_others += !are_equal;
  }
  EXPECT_GE(with_others, 3);
}

constexpr char kOwn[] = R"(# A model of one's own.
base: "internvl3"
images {
  rule: RULE_TILE_GRID
  patch: 14
  merge: 2
  tile: 448
  max_tiles: 6
  marks { placeholder: "<IMG_CONTEXT>" before: "<img>" after: "</img>" }
}
mean: [0.5, 0.5, 0.5]
)";

TEST(ParseProfileTest, TakesFromItsBaseWhatItDoesNotSay) {
  const auto own = ParseProfile(kOwn, "/models/mine.textproto");
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->name(), "mine");
  EXPECT_EQ(own->images().max_tiles(), 6u);
  // A section is replaced as a whole.
  EXPECT_EQ(own->images().tokens_an_image(), 0u);
  EXPECT_THAT(own->mean(), ElementsAre(0.5, 0.5, 0.5));
  EXPECT_THAT(own->std(), ElementsAre(0.229, 0.224, 0.225));
  EXPECT_EQ(own->chat().image_after(), "\n");
  EXPECT_THAT(own->checkpoints(), IsEmpty());
  // One template replaces another.
  const auto qwen = ParseProfile(
      "base: \"qwen2_5_vl\"\nchat { user { prefix: \"U\" } "
      "assistant { end: \"E\" supervised: true } }\n",
      "q.textproto");
  ASSERT_TRUE(qwen.ok()) << qwen.status();
  EXPECT_TRUE(HasChat(*qwen));
  EXPECT_TRUE(qwen->has_token_ids());
}

std::string GetFault(const std::string& text) {
  return std::string(ParseProfile(text, "F").status().message());
}

TEST(ParseProfileTest, FaultsNameTheLine) {
  // Of the text format.
  EXPECT_THAT(GetFault("images {\n  rule: RULE_CIRCLE\n}\n"),
              AllOf(StartsWith("F:2: "), HasSubstr("RULE_CIRCLE")));
  EXPECT_THAT(GetFault("base: \"internvl3\"\ncolour: 3\n"),
              AllOf(StartsWith("F:2: "), HasSubstr("colour")));
  EXPECT_THAT(GetFault("mean: [1, 2\n"), StartsWith("F:"));
  // Of what it says.
  EXPECT_THAT(GetFault("\nbase: \"qwen9\"\n"),
              AllOf(StartsWith("F:2: base: found \"qwen9\"; wanted one of"),
                    HasSubstr("qwen3_5_vl")));
  EXPECT_THAT(GetFault("base: \"internvl3\"\nimages {\n  rule: RULE_TILE_GRID\n"
                       "  patch: 14\n  tile: 448\n  max_tiles: 9999\n}\n"),
              HasSubstr("F:6: images.max_tiles: found 9999; wanted min_tiles "
                        "to 1024"));
  EXPECT_THAT(GetFault("base: \"internvl3\"\nimages {\n  rule: RULE_TILE_GRID\n"
                       "  patch: 14\n  tile: 448\n  max_tiles: 9\n"
                       "  longest_edge: 7\n}\n"),
              HasSubstr("F:7: images.longest_edge: found it with rule "
                        "RULE_TILE_GRID, which does not read it"));
  EXPECT_THAT(
      GetFault("base: \"llava_next\"\n\nimages {\n  rule: RULE_PINPOINTS\n"
               "  patch: 14\n  tile: 336\n"
               "  canvases { height: 336 width: 672 }\n"
               "  canvases {\n    height: 336\n    width: 337\n  }\n"
               "  marks { placeholder: \"<image>\" }\n}\n"),
      HasSubstr("F:10: images.canvases[1].width: found 337; wanted a multiple "
                "of tile, 336"));
  EXPECT_THAT(GetFault("base: \"internvl3\"\nstd: [1, 1]\n"),
              "F:2: std: found 2 values; wanted 3, for R, G and B in [0, 1]");
  EXPECT_THAT(GetFault("base: \"internvl3\"\n\nposition_axes: 3\n"),
              StartsWith("F:3: position_axes: found 3; wanted 1, since"));
  EXPECT_THAT(GetFault("base: \"internvl3\"\nvideos { rule: RULE_QWEN3 }\n"),
              HasSubstr("F:2: videos.rule: found RULE_QWEN3 with images of "
                        "RULE_TILE_GRID; wanted RULE_SMART_RESIZE"));
  EXPECT_THAT(GetFault("base: \"glm4v\"\ntoken_ids {\n  image: 1\n}\n"),
              AllOf(HasSubstr("F:2: token_ids: found no video"),
                    HasSubstr("other images than Qwen's form")));
  EXPECT_THAT(GetFault("base: \"glm4v\"\nother_templates: \"glm4v\"\n"
                       "other_templates: \"glm5\"\n"),
              "F:3: other_templates[1]: found \"glm5\"; wanted the name of a "
              "released model with a section chat");
  EXPECT_THAT(GetFault("base: \"glm4v\"\ncheckpoints {\n  model_type: \"x\"\n"
                       "  config { key: \"a\" json: \"nil\" }\n}\n"),
              HasSubstr("F:4: checkpoints[0].config[0].json: found nil"));
  EXPECT_THAT(GetFault("base: \"internvl3\"\ntransformers {\n  std: [1]\n"
                       "  checkpoints { model_type: \"x\" }\n}\n"),
              AllOf(HasSubstr("F:3: transformers.std: found 1 values"),
                    HasSubstr("F:4: transformers.checkpoints: found it in "
                              "transformers; wanted it in the file itself")));
  // Without a base.
  EXPECT_THAT(GetFault("mean: [0, 0, 0]\n"), HasSubstr("F:1: images.rule"));
}

// A section of `transformers` replaces the whole section under these rules, and
// a section that a file gives itself goes before its base's `transformers`.
TEST(RulesTest, TransformersReplacesSections) {
  const v1::ModelProfile own =
      ParseProfile(
          "base: \"llava1_5\"\n"
          "chat { user { prefix: \"Q: \" } assistant { prefix: \"A: \" } }\n"
          "transformers { mean: [0.5, 0.5, 0.5] }\n",
          "mine.textproto")
          .value();
  EXPECT_EQ(own.images().rule(), v1::ImageFamily::RULE_PAD_SQUARE);
  const v1::ModelProfile& theirs = own.transformers();
  EXPECT_EQ(theirs.images().rule(), v1::ImageFamily::RULE_CENTER_CROP);
  EXPECT_THAT(theirs.mean(), ElementsAre(0.5, 0.5, 0.5));
  EXPECT_EQ(theirs.chat().user().prefix(), "Q: ");
  EXPECT_THAT(DifferentSections(own), ElementsAre("images", "mean"));
  const std::string name = AddProfile(own);
  EXPECT_EQ(FindProfile(name)->name(), name);
  EXPECT_EQ(NameUnderRules(name, v1::Model::RULES_TRANSFORMERS),
            name + "+transformers");
  EXPECT_EQ(FindImageFamily(name + "+transformers")->rule,
            ImageRule::kCenterCrop);
  // Who trained it changes no name.
  v1::ModelProfile unknown = own;
  unknown.clear_trained_by();
  EXPECT_EQ(AddProfile(unknown), name);
}

TEST(RulesTest, NamesDifferWhereSectionsDo) {
  for (const std::string& name : ProfileNames()) {
    const v1::ModelProfile& profile = *FindProfile(name);
    EXPECT_EQ(profile.name(), name);
    EXPECT_EQ(NameUnderRules(name, v1::Model::RULES_AUTHORS), name);
    const std::string theirs =
        NameUnderRules(name, v1::Model::RULES_TRANSFORMERS);
    EXPECT_EQ(theirs != name, profile.has_transformers()) << name;
    EXPECT_EQ(DifferentSections(profile).empty(), theirs == name) << name;
    EXPECT_EQ(FindProfile(theirs)->name(), theirs);
    EXPECT_EQ(FindProfile(theirs)->trained_by(), profile.trained_by());
    // What differs has a source.
    EXPECT_TRUE(theirs == name || !profile.trained_by().empty()) << name;
  }
  EXPECT_EQ(NameUnderRules("hunyuan_vl", v1::Model::RULES_TRANSFORMERS),
            "hunyuan_vl");
  // Its own videos go before its base's.
  const v1::ModelProfile& qwen = *FindProfile("qwen2_5_vl+transformers");
  EXPECT_TRUE(qwen.videos().text_after_sides());
  EXPECT_TRUE(qwen.videos().positions_in_seconds());
  EXPECT_EQ(qwen.transparency(), v1::Model::TRANSPARENCY_DROP);
  EXPECT_EQ(NameUnderRules("none", v1::Model::RULES_TRANSFORMERS), "none");
}

TEST(AddProfileTest, NamesAFileByWhatItSays) {
  const v1::ModelProfile own = ParseProfile(kOwn, "mine.textproto").value();
  const std::string name = AddProfile(own);
  EXPECT_THAT(name, StartsWith("mine@"));
  EXPECT_EQ(name.size(), 5u + 16u);
  EXPECT_EQ(AddProfile(own), name);
  v1::ModelProfile other = own;
  other.mutable_images()->set_max_tiles(7);
  EXPECT_NE(AddProfile(other), name);
  EXPECT_EQ(FindProfile(name)->images().max_tiles(), 6u);
  EXPECT_EQ(FindImageFamily(name)->max_tiles, 6u);
  EXPECT_NE(FindChat(name), nullptr);
  EXPECT_EQ(FindProfile("mine@0"), nullptr);
}

// A configuration that names a file.
class OwnFileTest : public ::testing::Test {
 protected:
  OwnFileTest() : folder_(::testing::TempDir() + "/own_profile") {
    std::filesystem::create_directories(folder_);
  }

  absl::StatusOr<LoadedConfig> Load(const std::string& model) {
    return ParseConfig(
        absl::StrCat("sources: [{name: a, format: jsonl, path: a.jsonl}]\n"
                     "batch: {global: 1, micro: 1}\n"
                     "topology: {modules: {vision: {}, language: {}}}\n"
                     "model: ",
                     model, "\n"),
        "ballast.yaml", folder_);
  }
  void Write(const std::string& text) {
    std::ofstream(folder_ + "/mine.textproto") << text;
  }

  const std::string folder_;
};

TEST_F(OwnFileTest, IsReadRelativeToTheConfiguration) {
  Write(kOwn);
  const auto loaded = Load("{profile: ./mine.textproto, tokenizer: t.json}");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const v1::Model& model = loaded->config.model();
  EXPECT_THAT(model.profile(), StartsWith("mine@"));
  EXPECT_EQ(model.chat_template(), model.profile());
  EXPECT_EQ(model.image_family().max_tiles(), 6u);
  EXPECT_THAT(model.mean(), ElementsAre(0.5, 0.5, 0.5));
  // 6 tiles and a thumbnail of 256 tokens each.
  const auto images = ModelImages::Create(model);
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_EQ(*images->Placeholders(std::vector<ImageSize>{{448 * 3, 448 * 2}}),
            7u * 256);
}

// A loaded model names the profiles of its rules; what differs changes its
// images, and so its fingerprint.
TEST_F(OwnFileTest, RulesAreInTheNamesOfALoadedModel) {
  const auto load = [&](const std::string& model) {
    return Load(model).value().config.model();
  };
  const v1::Model authors = load("{profile: llava1_5, tokenizer: t.json}");
  EXPECT_EQ(authors.profile(), "llava1_5");
  EXPECT_EQ(authors.image_family().rule(), v1::ImageFamily::RULE_PAD_SQUARE);
  const v1::Model theirs =
      load("{profile: llava1_5, rules: transformers, tokenizer: t.json}");
  EXPECT_EQ(theirs.profile(), "llava1_5+transformers");
  EXPECT_EQ(theirs.chat_template(), theirs.profile());
  EXPECT_EQ(theirs.image_family().rule(), v1::ImageFamily::RULE_CENTER_CROP);
  const v1::Model same =
      load("{profile: hunyuan_vl, rules: transformers, tokenizer: t.json}");
  EXPECT_EQ(same.profile(), "hunyuan_vl");
}

// White is Qwen's training code's; a key overrides it, and models without it
// say nothing.
TEST_F(OwnFileTest, TransparencyFollowsTheProfileUnlessItIsGiven) {
  const auto load = [&](const std::string& model) {
    return Load(absl::StrCat("{tokenizer: bytes, ", model, "}"))
        .value()
        .config.model()
        .transparency();
  };
  EXPECT_EQ(load("profile: qwen3_vl"), v1::Model::TRANSPARENCY_WHITE_RGBA);
  EXPECT_EQ(load("profile: qwen3_vl, rules: transformers"),
            v1::Model::TRANSPARENCY_MODEL);
  EXPECT_EQ(load("profile: qwen3_vl, transparency: drop"),
            v1::Model::TRANSPARENCY_DROP);
  EXPECT_EQ(load("profile: qwen3_vl, transparency: white"),
            v1::Model::TRANSPARENCY_WHITE);
  EXPECT_EQ(load("profile: qwen3_vl, chat_template: chatml, mean: [0, 0, 0], "
                 "std: [1, 1, 1], image_family: {rule: fixed_size, patch: 14, "
                 "tile: 28, max_tiles: 1, marks: {placeholder: '<i>'}}"),
            v1::Model::TRANSPARENCY_MODEL);
}

TEST_F(OwnFileTest, FaultsNameFileAndLine) {
  Write("base: \"internvl3\"\nstd: [1]\n");
  const std::string message(
      Load("{profile: mine.textproto}").status().message());
  EXPECT_THAT(message, AllOf(HasSubstr("model.profile"),
                             HasSubstr("mine.textproto:2: std: found 1")));
  EXPECT_THAT(
      std::string(Load("{profile: other.textproto}").status().message()),
      HasSubstr("other.textproto"));
}

}  // namespace
}  // namespace ballast
