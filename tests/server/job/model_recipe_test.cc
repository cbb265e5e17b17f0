// model.recipe in a whole job: schedules, texts and blocks.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "common/python_helper.h"
#include "server/schedule/plan_export.h"
#include "tests/server/job/family_job.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kSamples = 6;

// transformers' smart_resize, as Qwen2.5-VL's profile has it.
constexpr char kQwen[] = R"(
import math
import ballast.recipe as recipe

@recipe.image_plan
def plan(facts, low=3136, high=12845056):
    h = round(facts.height / 28) * 28
    w = round(facts.width / 28) * 28
    if h * w > high:
        beta = math.sqrt(facts.height * facts.width / high)
        h = math.floor(facts.height / beta / 28) * 28
        w = math.floor(facts.width / beta / 28) * 28
    elif h * w < low:
        beta = math.sqrt(low / (facts.height * facts.width))
        h = math.ceil(facts.height * beta / 28) * 28
        w = math.ceil(facts.width * beta / 28) * 28
    return recipe.ImagePlan([(h, w)])
)";

// A random crop, flip and brightness.
constexpr char kAugment[] = R"(
import numpy
import ballast.recipe as recipe

@recipe.image_plan(most_tokens=4)
def plan(facts, rng):
    side = 28 * rng.randint(1, 2)
    left = rng.randint(0, facts.width - side)
    top = rng.randint(0, facts.height - side)
    given = recipe.ImagePlan([recipe.Crop(side, side, (left, top, left + side, top + side))])
    given.flips = rng.random() < 0.5
    return given

@recipe.pixels
def pixels(rgb, plan, rng):
    left, top, right, bottom = plan.crops[0].box
    made = rgb[top:bottom, left:right]
    if plan.flips:
        made = made[:, ::-1]
    return numpy.clip(made * rng.uniform(0.5, 1.5), 0, 255).astype(numpy.uint8)
)";

class ModelRecipeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (FindPythons().empty()) GTEST_SKIP() << "there is no python3";
    std::filesystem::remove_all(folder_);
    std::vector<TestSample> samples;
    for (uint32_t i = 0; i < kSamples; ++i) {
      const std::string name = absl::StrCat("m/", i, ".png");
      WritePicture(absl::StrCat(folder_, "/", name), 60 + 17 * i, 131 - 9 * i,
                   i + 1);
      samples.push_back(
          {absl::StrCat(R"([{"role": "user", "content": "<image>What is )", i,
                        R"(?"}, {"role": "assistant", "content": "It is."}])"),
           {name}});
    }
    WriteConversations(folder_, samples);
  }

  void WriteRecipe(absl::string_view text) {
    std::ofstream(folder_ + "/my_recipe.py") << text;
  }

  absl::StatusOr<std::unique_ptr<FamilyJob>> Open(
      absl::string_view model, const std::string& more = "") {
    // Each has an index of its own.
    std::filesystem::remove_all(folder_ + "/.ballast");
    return FamilyJob::Open(folder_, kSamples,
                           absl::StrCat("{profile: qwen2_5_vl", model, "}"),
                           more);
  }

  // Whether the python3 of recipes has numpy; else the job is FAILED_
  // PRECONDITION, and the test is skipped by the caller.
  static bool LacksNumpy(const absl::Status& status) {
    return absl::IsFailedPrecondition(status) &&
           absl::StrContains(status.message(), "numpy");
  }

  // How many images of the first micro-batch travel encoded.
  static int EncodedImages(const FamilyJob& job) {
    return job.job()
        .scheduler->Schedule(0)
        ->micro_batches(0)
        .encoded_bytes_size();
  }

  // The pixels and the ids of each sample of a step, over `ranks` ranks.
  static std::map<uint64_t, std::string> Samples(const FamilyJob& job,
                                                 uint64_t step,
                                                 uint32_t ranks) {
    std::map<uint64_t, std::string> all;
    for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        const auto block = job.Build(module, step, rank);
        EXPECT_TRUE(block.ok()) << block.status();
        if (!block.ok()) return all;
        const BlockView view = block->view();
        for (const SampleRecord& sample : view.samples()) {
          EXPECT_EQ(sample.flags, 0u);
          const auto bytes = view.payload(sample);
          all[sample.ordinal].append(bytes.begin(), bytes.end());
        }
      }
    }
    return all;
  }

  const std::string folder_ = ::testing::TempDir() + "/model_recipe";
};

TEST_F(ModelRecipeTest, AFamilysOwnPlanInPythonGivesTheSameBlocks) {
  WriteRecipe(kQwen);
  const auto built_in = Open("");
  ASSERT_TRUE(built_in.ok()) << built_in.status();
  const auto own = Open(", recipe: my_recipe.py");
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(Samples(**own, 0, 1), Samples(**built_in, 0, 1));
  const auto schedule = (*own)->job().scheduler->Schedule(3);
  const auto wanted = (*built_in)->job().scheduler->Schedule(3);
  ASSERT_TRUE(schedule.ok() && wanted.ok());
  EXPECT_EQ(schedule->micro_batches(0).SerializeAsString(),
            wanted->micro_batches(0).SerializeAsString());
  EXPECT_NE(schedule->fingerprint(), wanted->fingerprint());
  EXPECT_THAT((*own)->job().scheduler->job().model().recipe(),
              HasSubstr("+plans-"));
}

// Steps of their own sizes are found by the recipe's plans, which know source
// and split there, too.
TEST_F(ModelRecipeTest, StepsOfTokensCountTheTokensOfPlans) {
  WriteRecipe(absl::StrReplaceAll(
      kQwen, {{"    h = round(facts.height / 28) * 28\n",
               "    assert facts.source and facts.split == 'train'\n"
               "    h = round(facts.height / 28) * 28\n"}}));
  // Some steps have four samples then, others three.
  const auto plain = Open("");
  ASSERT_TRUE(plain.ok()) << plain.status();
  const auto first = (*plain)->job().scheduler->Schedule(0);
  ASSERT_TRUE(first.ok()) << first.status();
  uint32_t limit = 2;
  for (int i = 0; i < 4; ++i) limit += first->micro_batches(0).tokens(i);
  for (const std::string& batch :
       {absl::StrCat("batch: {micro: 1, tokens: ", limit,
                     ", max_tokens: ", limit, "}"),
        absl::StrCat("batch: {micro: 1, packs: 1, pack_tokens: ", limit,
                     ", max_tokens: ", limit,
                     "}\npacking: {mode: scheduled, max_tokens_per_rank: ",
                     limit, "}")}) {
    const auto built_in = Open("", batch);
    ASSERT_TRUE(built_in.ok()) << batch << built_in.status();
    const auto own = Open(", recipe: my_recipe.py", batch);
    ASSERT_TRUE(own.ok()) << own.status();
    std::set<int> sizes;
    for (uint64_t step = 0; step < 6; ++step) {
      const auto schedule = (*own)->job().scheduler->Schedule(step);
      const auto wanted = (*built_in)->job().scheduler->Schedule(step);
      ASSERT_TRUE(schedule.ok() && wanted.ok()) << schedule.status();
      ASSERT_EQ(schedule->micro_batches_size(), wanted->micro_batches_size());
      int samples = 0;
      for (int i = 0; i < schedule->micro_batches_size(); ++i) {
        EXPECT_EQ(schedule->micro_batches(i).SerializeAsString(),
                  wanted->micro_batches(i).SerializeAsString());
        samples += schedule->micro_batches(i).position_size();
      }
      sizes.insert(samples);
    }
    EXPECT_GT(sizes.size(), 1u) << batch;
  }
}

// The samples of a step are counted by what their own epoch draws.
TEST_F(ModelRecipeTest, StepsOfTokensCountWhatTheirEpochsDraw) {
  WriteRecipe(kAugment);
  const std::string model = ", recipe: my_recipe.py";
  const auto plain = Open(model);
  if (LacksNumpy(plain.status())) GTEST_SKIP() << plain.status();
  ASSERT_TRUE(plain.ok()) << plain.status();
  const auto first = (*plain)->job().scheduler->Schedule(0);
  ASSERT_TRUE(first.ok()) << first.status();
  // Texts are of one length, and an image has 1 or 4 tokens: of three samples
  // one may have 4.
  const auto& lengths = first->micro_batches(0).tokens();
  const uint32_t limit =
      3 * *std::min_element(lengths.begin(), lengths.end()) + 3;
  const auto job =
      Open(model, absl::StrCat("batch: {micro: 1, tokens: ", limit, "}"));
  ASSERT_TRUE(job.ok()) << job.status();
  std::vector<uint32_t> tokens;  // of all samples in order
  std::vector<size_t> starts;
  for (uint64_t step = 0; step < 20; ++step) {
    const auto schedule = (*job)->job().scheduler->Schedule(step);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    starts.push_back(tokens.size());
    for (const auto& micro_batch : schedule->micro_batches()) {
      tokens.push_back(micro_batch.tokens(0));
    }
  }
  ASSERT_GT(tokens.size(), 5 * kSamples);
  std::set<size_t> sizes;
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    uint32_t sum = 0;
    for (size_t i = starts[s]; i < starts[s + 1]; ++i) sum += tokens[i];
    EXPECT_LE(sum, limit) << "step " << s;
    EXPECT_GT(sum + tokens[starts[s + 1]], limit) << "step " << s;
    sizes.insert(starts[s + 1] - starts[s]);
  }
  EXPECT_GT(sizes.size(), 1u);
}

// A plan file has the epoch of each row, so what is drawn is played back.
TEST_F(ModelRecipeTest, APlanFileDrawsAsTheOrderThatItWasExportedFrom) {
  WriteRecipe(kAugment);
  const std::string model = ", recipe: my_recipe.py";
  const auto job = Open(model);
  if (LacksNumpy(job.status())) GTEST_SKIP() << job.status();
  ASSERT_TRUE(job.ok()) << job.status();
  const std::string path = folder_ + "/drawn.parquet";
  const auto rows = ExportPlan((*job)->job().config, *(*job)->job().scheduler,
                               (*job)->job().source_pointers(), 0, 2, path);
  if (absl::IsUnimplemented(rows.status())) GTEST_SKIP() << rows.status();
  ASSERT_TRUE(rows.ok()) << rows.status();
  std::vector<std::map<uint64_t, std::string>> wanted;
  for (uint64_t step = 0; step < 3; ++step) {
    wanted.push_back(Samples(**job, step, 1));
  }
  EXPECT_NE(wanted[0], wanted[1]);
  const auto again = Open(model, absl::StrCat("order: {plan: '", path, "'}"));
  ASSERT_TRUE(again.ok()) << again.status();
  for (uint64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(Samples(**again, step, 1), wanted[step]) << "step " << step;
  }
}

// Rows of a plan file have packs, which hold the tokens of the recipe's plans.
TEST_F(ModelRecipeTest, PacksOfAPlanFileCountTheTokensOfPlans) {
  WriteRecipe(kQwen);
  const auto plain = Open("");
  ASSERT_TRUE(plain.ok()) << plain.status();
  const auto first = (*plain)->job().scheduler->Schedule(0);
  ASSERT_TRUE(first.ok()) << first.status();
  uint32_t limit = 2;
  for (int i = 0; i < 4; ++i) limit += first->micro_batches(0).tokens(i);
  const std::string packs = absl::StrCat(
      "batch: {global: ", kSamples, ", micro: ", kSamples,
      ", max_tokens: ", limit,
      "}\npacking: {mode: scheduled, max_tokens_per_rank: ", limit, "}\n");
  const std::string model = ", recipe: my_recipe.py";
  const auto own = Open(model, packs);
  ASSERT_TRUE(own.ok()) << own.status();
  const std::string path = folder_ + "/plan.parquet";
  const auto rows = ExportPlan((*own)->job().config, *(*own)->job().scheduler,
                               (*own)->job().source_pointers(), 0, 1, path);
  if (absl::IsUnimplemented(rows.status())) GTEST_SKIP() << rows.status();
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(*rows, 2 * kSamples);
  const std::string played = absl::StrCat(packs, "order: {plan: '", path, "'}");
  const auto again = Open(model, played);
  ASSERT_TRUE(again.ok()) << again.status();
  for (uint64_t step = 0; step < 2; ++step) {
    const auto schedule = (*again)->job().scheduler->Schedule(step);
    const auto wanted = (*own)->job().scheduler->Schedule(step);
    ASSERT_TRUE(schedule.ok() && wanted.ok()) << schedule.status();
    ASSERT_GT(wanted->micro_batches_size(), 1);
    ASSERT_EQ(schedule->micro_batches_size(), wanted->micro_batches_size());
    for (int i = 0; i < wanted->micro_batches_size(); ++i) {
      EXPECT_EQ(schedule->micro_batches(i).SerializeAsString(),
                wanted->micro_batches(i).SerializeAsString());
    }
  }
  // With four times the tokens an image the same packs are too large.
  WriteRecipe(absl::StrReplaceAll(kQwen, {{"[(h, w)]", "[(2 * h, 2 * w)]"}}));
  EXPECT_THAT(std::string(Open(model, played).status().message()),
              ::testing::AllOf(HasSubstr("order.plan: row "),
                               HasSubstr("a pack holds")));
}

// As the profile does it, where the plan is the whole image.
TEST_F(ModelRecipeTest, WholeImagesTravelEncoded) {
  for (uint32_t i = 0; i < kSamples; ++i) {
    WritePicture(absl::StrCat(folder_, "/m/", i, ".png"), 60 + 17 * i,
                 131 - 9 * i, i + 1, FileFormat::kJpeg);
  }
  const std::string device = ", decode: device, device_unchecked: true";
  const auto built_in = Open(device);
  ASSERT_TRUE(built_in.ok()) << built_in.status();
  WriteRecipe(kQwen);
  const auto own = Open(absl::StrCat(device, ", recipe: my_recipe.py"));
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(EncodedImages(**own), kSamples);
  EXPECT_EQ(Samples(**own, 0, 1), Samples(**built_in, 0, 1));
  // Parts of images are decoded here.
  WriteRecipe(
      "import ballast.recipe as recipe\n"
      "@recipe.image_plan\n"
      "def plan(facts):\n"
      "    return recipe.ImagePlan([recipe.Crop(28, 28, (0, 0, 20, 20))])\n");
  const auto parts = Open(absl::StrCat(device, ", recipe: my_recipe.py"));
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(EncodedImages(**parts), 0);
}

// Several crops, and text of the recipe's own.
TEST_F(ModelRecipeTest, CropsAndTextAreTheRecipes) {
  WriteRecipe(
      "import ballast.recipe as recipe\n"
      "@recipe.image_plan\n"
      "def plan(facts):\n"
      "    return recipe.ImagePlan([(28, 56), recipe.Crop(28, 28, (0, 0, 9, "
      "9))], text=['<|vision_start|>', 2, '<|vision_end|>', ' and ', 1])\n");
  const auto job = Open(", recipe: my_recipe.py, position_axes: 1");
  ASSERT_TRUE(job.ok()) << job.status();
  const auto vision = (*job)->Build(v1::MODULE_VISION);
  ASSERT_TRUE(vision.ok()) << vision.status();
  const auto language = (*job)->Build(v1::MODULE_LANGUAGE);
  ASSERT_TRUE(language.ok()) << language.status();
  const v1::TokenIds& ids = (*job)->job().config.model().token_ids();
  for (uint32_t i = 0; i < kSamples; ++i) {
    const std::vector<RgbImage> crops = vision->Crops(i);
    ASSERT_EQ(crops.size(), 2u);
    EXPECT_EQ(crops[0].width, 56u);
    EXPECT_EQ(crops[1].width, 28u);
    std::vector<int32_t> of_image;
    bool inside = false;
    for (const int32_t id : language->Ids(i)) {
      inside |= id == ids.vision_start();
      if (inside) of_image.push_back(id);
      if (of_image.size() == 10) break;
    }
    const std::vector<int32_t> wanted = {ids.vision_start(),
                                         ids.image(),
                                         ids.image(),
                                         ids.vision_end(),
                                         ' ',
                                         'a',
                                         'n',
                                         'd',
                                         ' ',
                                         ids.image()};
    EXPECT_EQ(of_image, wanted);
  }
}

TEST_F(ModelRecipeTest, AugmentationIsAFunctionOfSeedEpochSampleAndImage) {
  WriteRecipe(kAugment);
  const std::string model = ", recipe: my_recipe.py";
  const auto one = Open(model);
  if (LacksNumpy(one.status())) GTEST_SKIP() << one.status();
  ASSERT_TRUE(one.ok()) << one.status();
  std::map<uint64_t, std::string> epochs[3];
  for (uint64_t step = 0; step < 3; ++step) {
    epochs[step] = Samples(**one, step, 1);
    ASSERT_EQ(epochs[step].size(), kSamples);
  }
  // Another epoch draws again, also the sizes.
  int other_sizes = 0;
  for (uint32_t i = 0; i < kSamples; ++i) {
    EXPECT_NE(epochs[0][i], epochs[1][i]);
    EXPECT_NE(epochs[1][i], epochs[2][i]);
    other_sizes += epochs[0][i].size() != epochs[1][i].size();
  }
  EXPECT_GT(other_sizes, 0);
  // Another server, at another dp size, from the last epoch on: the same.
  const auto two =
      Open(model, "topology: {modules: {vision: {dp: 2}, language: {dp: 2}}}");
  ASSERT_TRUE(two.ok()) << two.status();
  for (const uint64_t step : {2, 0, 1}) {
    EXPECT_EQ(Samples(**two, step, 2), epochs[step]);
  }
  // Without a server before it: the same.
  const auto resumed = Open(model);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(Samples(**resumed, 2, 1), epochs[2]);
}

TEST_F(ModelRecipeTest, AnImageThatTheRecipeRefusesIsABadSampleOfTheIndex) {
  WriteRecipe(
      "import ballast.recipe as recipe\n"
      "@recipe.image_plan\n"
      "def plan(facts):\n"
      "    if facts.height == 77: raise ValueError('too odd')\n"
      "    return recipe.ImagePlan([(28, 28)])\n");
  const auto job = Open(", recipe: my_recipe.py");
  EXPECT_THAT(std::string(job.status().message()),
              HasSubstr("the recipe: my_recipe.py, line 4, in plan: `if "
                        "facts.height == 77: raise ValueError('too odd')`: "
                        "ValueError: too odd"));
  // Sizes that the model does not take are named.
  WriteRecipe(
      "import ballast.recipe as recipe\n"
      "@recipe.image_plan\n"
      "def plan(facts): return recipe.ImagePlan([(28, 30)])\n");
  EXPECT_THAT(
      std::string(Open(", recipe: my_recipe.py").status().message()),
      HasSubstr("image_plan gave a crop of height 28 and width 30; wanted "
                "multiples of 28 (patch 14, merge 2)"));
  WriteRecipe(
      "import ballast.recipe as recipe\n"
      "@recipe.image_plan\n"
      "def plan(facts): return recipe.ImagePlan([(28, 28)], tokens=2)\n");
  EXPECT_THAT(
      std::string(Open(", recipe: my_recipe.py").status().message()),
      HasSubstr("image_plan gave 1 crops and 2 tokens; wanted, with 3 axes of "
                "positions, one crop and its 1 merged patches in one run"));
}

// The sample is listed as bad with the reason, and grey images replace it.
TEST_F(ModelRecipeTest, PixelsThatBreakTheirPromiseAreADataFault) {
  WriteRecipe(
      "import numpy\n"
      "import ballast.recipe as recipe\n"
      "@recipe.pixels\n"
      "def pixels(rgb, plan, rng):\n"
      "    c = plan.crops[0]\n"
      "    made = numpy.zeros((c.height, c.width, 3), numpy.uint8)\n"
      "    return made[1:] if plan.facts.height == 77 else made\n");
  const auto job = Open(", recipe: my_recipe.py");
  if (LacksNumpy(job.status())) GTEST_SKIP() << job.status();
  ASSERT_TRUE(job.ok()) << job.status();
  const auto vision = (*job)->Build(v1::MODULE_VISION);
  ASSERT_TRUE(vision.ok()) << vision.status();
  for (uint32_t i = 0; i < kSamples; ++i) {
    // The picture of sample 1 is 77 pixels high.
    const bool is_bad = vision->view().samples()[i].ordinal == 1;
    EXPECT_EQ(vision->view().samples()[i].flags,
              is_bad ? kSampleIsPlaceholder : 0u);
    EXPECT_EQ(vision->Crops(i)[0].pixels[0], is_bad ? kGreyPixel : 0);
  }
  const auto bad = (*job)->builder().bad_samples().List();
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_THAT(bad[0].reason,
              HasSubstr("image 0: the recipe: pixels gave uint8 of [83, 112, "
                        "3] as crop 0; the plan has uint8 of [84, 112, 3]"));
}

TEST_F(ModelRecipeTest, RefusesWhatDoesNotGoTogether) {
  WriteRecipe(kAugment);
  const auto drawn =
      Open(", recipe: my_recipe.py",
           "batch: {global: 6, micro: 6, on_too_long: truncate_text}");
  if (LacksNumpy(drawn.status())) GTEST_SKIP() << drawn.status();
  EXPECT_THAT(std::string(drawn.status().message()),
              HasSubstr("batch.on_too_long: found truncate_text with a "
                        "model.recipe"));
  EXPECT_THAT(std::string(Open(", recipe: none.py").status().message()),
              HasSubstr("none.py"));
}

}  // namespace
}  // namespace ballast
