#include "server/recipe/image_recipe.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/helper_program.h"
#include "common/python_helper.h"
#include "server/sample/data_fault.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kHead[] = "import ballast.recipe as recipe\n";
constexpr char kPlan[] = "@recipe.image_plan\ndef plan(facts):\n";
constexpr char kDrawn[] =
    "@recipe.image_plan(most_tokens=64)\ndef plan(facts, rng):\n";
constexpr char kOneCrop[] = "    return recipe.ImagePlan([(4, 2)], tokens=1)\n";
constexpr char kPixels[] = "@recipe.pixels\ndef pixels(rgb, plan, rng):\n";
// A crop of the plan, all of one value.
constexpr char kFlat[] =
    "    c = plan.crops[0]\n"
    "    return numpy.full((c.height, c.width, 3), value, numpy.uint8)\n";

class ImageRecipeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (FindPythons().empty()) GTEST_SKIP() << "there is no python3";
  }

  // Whether a python3 has numpy, which recipes with `pixels` need.
  bool HasNumpy() {
    static const bool has =
        Open(absl::StrCat("import numpy\n", kHead, kPlan, kOneCrop)).ok();
    return has;
  }

  absl::StatusOr<std::shared_ptr<const ImageRecipe>> Open(
      absl::string_view text, const ImageRecipe::Options& options = {}) {
    const std::string path = TestFolder() + "/my_recipe.py";
    WriteFile(path, text);
    return ImageRecipe::Open(path, options);
  }

  std::shared_ptr<const ImageRecipe> Make(
      absl::string_view text, const ImageRecipe::Options& options = {}) {
    auto recipe = Open(absl::StrCat(kHead, text), options);
    EXPECT_TRUE(recipe.ok()) << recipe.status();
    return *std::move(recipe);
  }

  std::string Refusal(absl::string_view text) {
    const auto opened = Open(text);
    EXPECT_TRUE(absl::IsInvalidArgument(opened.status())) << opened.status();
    return std::string(opened.status().message());
  }

  static PlanFacts Facts(uint32_t height, uint32_t width) {
    PlanFacts facts;
    facts.height = height;
    facts.width = width;
    facts.source = "docs";
    facts.split = "train";
    return facts;
  }

  static absl::StatusOr<ImagePlan> Plan(const ImageRecipe& recipe,
                                        const PlanFacts& facts) {
    return std::move(recipe.Plan({&facts, 1})[0]);
  }

  // The pixels of an image of one value by its recipe's own plan.
  static absl::StatusOr<std::string> Pixels(const ImageRecipe& recipe,
                                            const PlanFacts& facts,
                                            uint8_t value = 0) {
    auto plan = Plan(recipe, facts);
    if (!plan.ok()) return plan.status();
    return PixelsOf(recipe, facts, *plan, value);
  }

  static absl::StatusOr<std::string> PixelsOf(const ImageRecipe& recipe,
                                              const PlanFacts& facts,
                                              const ImagePlan& plan,
                                              uint8_t value = 0) {
    const std::vector<uint8_t> rgb(size_t{3} * facts.height * facts.width,
                                   value);
    size_t bytes = 0;
    for (const PlanStage& stage : plan.stages) {
      bytes += size_t{3} * stage.height * stage.width;
    }
    std::string made(bytes, '?');
    std::vector<absl::Span<uint8_t>> places;
    size_t at = 0;
    for (const PlanStage& stage : plan.stages) {
      const size_t size = size_t{3} * stage.height * stage.width;
      places.emplace_back(reinterpret_cast<uint8_t*>(made.data()) + at, size);
      at += size;
    }
    const absl::Status status = recipe.MakePixels(facts, plan, rgb, places);
    if (!status.ok()) return status;
    return made;
  }

  // What is said of an image of 7x5 pixels on which the recipe fails, while
  // others are planned and made all the same.
  std::string Fault(absl::string_view text, bool is_fault = true,
                    const ImageRecipe::Options& options = {}) {
    const auto recipe = Make(text, options);
    const PlanFacts bad = Facts(7, 5);
    const auto made = recipe->has_pixels() ? Pixels(*recipe, bad).status()
                                           : Plan(*recipe, bad).status();
    EXPECT_EQ(IsDataFault(made), is_fault) << made;
    EXPECT_EQ(absl::IsUnavailable(made), !is_fault);
    const PlanFacts good = Facts(8, 8);
    const auto other = recipe->has_pixels() ? Pixels(*recipe, good).status()
                                            : Plan(*recipe, good).status();
    EXPECT_TRUE(other.ok()) << other;
    return std::string(made.message());
  }
};

// Goes on where the image is the bad one.
constexpr char kIfGood[] =
    "    if facts.height != 7: return recipe.ImagePlan([(4, 2)], tokens=1)\n";
constexpr char kIfGoodPixels[] =
    "    good = numpy.zeros((4, 2, 3), numpy.uint8)\n"
    "    if plan.facts.height != 7: return good\n";

TEST_F(ImageRecipeTest, PlansAnImage) {
  const auto recipe = Make(absl::StrCat(
      kPlan,
      "    assert (facts.images, facts.number, facts.source, facts.split) == "
      "(2, 1, 'docs', 'valid')\n"
      "    return recipe.ImagePlan([recipe.Crop(4, 6, (1, 2, facts.width, "
      "facts.height)), (8, 10)], text=['<a>', 3, '<b>', 2])\n"));
  EXPECT_TRUE(recipe->has_plan());
  EXPECT_FALSE(recipe->draws());
  EXPECT_FALSE(recipe->has_pixels());
  PlanFacts facts = Facts(30, 20);
  facts.images = 2;
  facts.number = 1;
  facts.split = "valid";
  const auto plan = Plan(*recipe, facts);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->stages.size(), 2u);
  EXPECT_EQ(plan->stages[0].from, (PixelRect{2, 1, 28, 19}));
  EXPECT_EQ(plan->stages[0].crop, (PixelRect{0, 0, 4, 6}));
  EXPECT_EQ(plan->stages[1].from, (PixelRect{0, 0, 30, 20}));
  EXPECT_EQ(plan->stages[1].crop, (PixelRect{0, 0, 8, 10}));
  EXPECT_EQ(plan->recipe->tokens, 5u);
  ASSERT_EQ(plan->recipe->text.size(), 4u);
  EXPECT_EQ(plan->recipe->text[0].text, "<a>");
  EXPECT_EQ(plan->recipe->text[1].placeholders, 3u);
}

TEST_F(ImageRecipeTest, ADrawnPlanFollowsFromSeedEpochSampleAndImage) {
  const std::string text = absl::StrCat(
      kDrawn, "    n = rng.randint(1, 1000)\n",
      "    return recipe.ImagePlan([(n, n)], tokens=rng.randint(1, 64))\n");
  const auto recipe = Make(text);
  EXPECT_TRUE(recipe->draws());
  EXPECT_EQ(recipe->most_tokens(), 64u);
  std::map<std::string, int> seen;
  std::vector<PlanFacts> all;
  for (int i = 0; i < 32; ++i) {
    PlanFacts facts = Facts(9, 9);
    facts.draw = {7u + i % 2, 3u + i / 2 % 2, 5u + i / 4 % 2};
    facts.number = i / 8 % 2;
    facts.source = i / 16 == 0 ? "docs" : "more";
    all.push_back(facts);
  }
  const auto plans = recipe->Plan(all);
  for (const auto& plan : plans) {
    ASSERT_TRUE(plan.ok()) << plan.status();
    ++seen[plan->recipe->json];
  }
  EXPECT_EQ(seen.size(), 32u);
  // Another process, another order.
  const auto again = Make(text, {.processes = 2});
  EXPECT_EQ(again->name(), recipe->name());
  for (size_t i = all.size(); i-- > 0;) {
    EXPECT_EQ(Plan(*again, all[i])->recipe->json, plans[i]->recipe->json);
    EXPECT_EQ(Plan(*recipe, all[i])->recipe->json, plans[i]->recipe->json);
  }
}

TEST_F(ImageRecipeTest, MakesThePlansCropsInOrder) {
  if (!HasNumpy()) GTEST_SKIP() << "no python3 has numpy";
  const auto recipe = Make(absl::StrCat(
      "import numpy\n", kPlan,
      "    p = recipe.ImagePlan([(2, 1), (1, 3)], tokens=1)\n"
      "    p.extra = facts.width\n"
      "    return p\n",
      kPixels,
      "    assert rgb.shape == (3, 4, 3) or plan.facts.height != 3\n"
      "    assert plan.extra == plan.facts.width\n"
      "    return [numpy.full((c.height, c.width, 3), rgb[0, 0, 0] + i, "
      "numpy.uint8) for i, c in enumerate(plan.crops)]\n"));
  const auto made = Pixels(*recipe, Facts(3, 4), 65);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*made, "AAAAAABBBBBBBBB");
}

TEST_F(ImageRecipeTest, MakesTheCropsOfAFamily) {
  if (!HasNumpy()) GTEST_SKIP() << "no python3 has numpy";
  const auto recipe =
      Make(absl::StrCat("import numpy\nvalue = 67\n", kPixels, kFlat));
  EXPECT_FALSE(recipe->has_plan());
  ImagePlan plan;
  plan.stages.push_back(*[] {
    static PlanStage stage;
    stage.height = 2;
    stage.width = 1;
    stage.crop = {0, 0, 2, 1};
    stage.rows = stage.columns = 1;
    return &stage;
  }());
  const auto made = PixelsOf(*recipe, Facts(3, 4), plan);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*made, "CCCCCC");
}

// The same augmentation in another process and another order; another one for
// another epoch, sample or image.
TEST_F(ImageRecipeTest, RandomPixelsFollowFromTheirKey) {
  if (!HasNumpy()) GTEST_SKIP() << "no python3 has numpy";
  const std::string text = absl::StrCat(
      "import numpy\n", kPlan, kOneCrop, kPixels,
      "    a = rng.numpy().integers(0, 256, (4, 2, 3), dtype=numpy.uint8)\n"
      "    a[0, 0, 0] = rng.randrange(256)\n"
      "    return a\n");
  const auto recipe = Make(text);
  const auto other = Make(text);
  EXPECT_EQ(recipe->name(), other->name());
  EXPECT_TRUE(absl::StrContains(recipe->name(), "+numpy-"));
  EXPECT_TRUE(absl::StrContains(recipe->name(), "+pixels-"));
  std::vector<PlanFacts> all;
  std::map<std::string, int> seen;
  for (int i = 0; i < 16; ++i) {
    PlanFacts facts = Facts(9, 9);
    facts.draw = {7u + i % 2, 3u + i / 2 % 2, 5u + i / 4 % 2};
    facts.number = i / 8;
    all.push_back(facts);
    ++seen[Pixels(*recipe, facts).value()];
  }
  EXPECT_EQ(seen.size(), 16u);
  for (size_t i = all.size(); i-- > 0;) {
    EXPECT_EQ(seen.count(Pixels(*other, all[i]).value()), 1u);
    EXPECT_EQ(Pixels(*other, all[i]).value(), Pixels(*recipe, all[i]).value());
  }
}

TEST_F(ImageRecipeTest, RefusesWhatIsNoRecipeOfImages) {
  EXPECT_THAT(Refusal("x = 1\n"),
              HasSubstr("no function with @recipe.image_plan or "
                        "@recipe.pixels"));
  EXPECT_THAT(
      Refusal(absl::StrCat(kHead, "@recipe.image_plan\ndef plan(facts, rng):\n",
                           kOneCrop)),
      HasSubstr("wanted @recipe.image_plan(most_tokens=N)"));
  EXPECT_THAT(Refusal(absl::StrCat(
                  kHead, "@recipe.image_plan(most_tokens=3)\ndef plan(f):\n",
                  kOneCrop)),
              HasSubstr("takes no rng"));
  EXPECT_THAT(Refusal(absl::StrCat(kHead, kPlan, kOneCrop, kPlan, kOneCrop)),
              HasSubstr("two functions with @recipe.image_plan"));
}

TEST_F(ImageRecipeTest, RefusesPlansThatAreNone) {
  const auto said = [this](absl::string_view plan) {
    return Fault(absl::StrCat(kPlan, kIfGood, "    return ", plan, "\n"));
  };
  EXPECT_THAT(said("7"), HasSubstr("image_plan gave a int; wanted a "
                                   "recipe.ImagePlan"));
  EXPECT_THAT(said("recipe.ImagePlan([])"),
              HasSubstr("image_plan gave 0 crops; wanted 1 to 1024"));
  EXPECT_THAT(said("recipe.ImagePlan([(0, 4)])"),
              HasSubstr("the crop [0,4]; wanted a height and a width of 1"));
  EXPECT_THAT(said("recipe.ImagePlan([(4.0, 4)])"),
              HasSubstr("the crop [4.0,4]"));
  EXPECT_THAT(
      said("recipe.ImagePlan([recipe.Crop(4, 4, (0, 0, 6, 7))])"),
      HasSubstr("a box (left, top, right, bottom) within the 5x7 pixels"));
  EXPECT_THAT(said("recipe.ImagePlan([(4, 4)], tokens=0)"),
              HasSubstr("tokens=0; wanted 1 to"));
  EXPECT_THAT(said("recipe.ImagePlan([(4, 4)], tokens=3, text=['<a>', 2])"),
              HasSubstr("tokens=3; wanted the 2 placeholders of its text"));
  EXPECT_THAT(said("recipe.ImagePlan([(4, 4)], text=['<a>'])"),
              HasSubstr("the text [\"<a>\"]; wanted a list of texts and "
                        "numbers"));
  EXPECT_THAT(said("recipe.ImagePlan([(4, 4)], tokens=object())"),
              HasSubstr("a plan that is not of numbers and texts"));
}

TEST_F(ImageRecipeTest, HostilePlansCostTheirImageAlone) {
  const auto said = [this](absl::string_view body, bool is_fault = true,
                           const ImageRecipe::Options& options = {}) {
    return Fault(
        absl::StrCat("import os, ctypes, random\n", kPlan, kIfGood, body),
        is_fault, options);
  };
  EXPECT_THAT(said("    return {}['x']\n"),
              AllOf(HasSubstr("my_recipe.py, line 6, in plan: "
                              "`return {}['x']`: KeyError: 'x'")));
  EXPECT_THAT(said("    raise SystemExit(3)\n"), HasSubstr("SystemExit: 3"));
  EXPECT_THAT(said("    while True: pass\n", false, {.seconds = 0.2}),
              AllOf(HasSubstr("my_recipe.py, line 6, in plan"),
                    HasSubstr("more processor time than an image may")));
  EXPECT_THAT(said("    x = bytearray(1 << 33)\n"),
              HasSubstr("more memory than an image may"));
  EXPECT_THAT(said("    os._exit(0)\n"),
              HasSubstr("ended on it twice (exit 0)"));
  EXPECT_THAT(said("    return recipe.ImagePlan([(random.randint(1, 60000), "
                   "4)])\n"),
              HasSubstr("another plan of the same image the second time: a "
                        "recipe must be pure"));
  if (kSanitized || !CanBoxHelpers()) return;
  EXPECT_THAT(said("    os.fork()\n"),
              AllOf(HasSubstr("PermissionError"),
                    HasSubstr("a recipe has no files, network or processes")));
}

TEST_F(ImageRecipeTest, HostilePixelsCostTheirImageAlone) {
  if (!HasNumpy()) GTEST_SKIP() << "no python3 has numpy";
  const auto said = [this](absl::string_view body, bool is_fault = true,
                           const ImageRecipe::Options& options = {}) {
    return Fault(absl::StrCat("import os, numpy\nseen = []\n", kPlan, kOneCrop,
                              kPixels, kIfGoodPixels, body),
                 is_fault, options);
  };
  EXPECT_THAT(
      said("    return good[:3]\n"),
      HasSubstr("pixels gave uint8 of [3, 2, 3] as crop 0; the plan has "
                "uint8 of [4, 2, 3]"));
  EXPECT_THAT(said("    return good.astype('float32')\n"),
              HasSubstr("pixels gave float32 of [4, 2, 3] as crop 0"));
  EXPECT_THAT(said("    return [good, good]\n"),
              HasSubstr("pixels gave 2 crops; the plan has 1"));
  EXPECT_THAT(said("    return None\n"),
              HasSubstr("pixels gave a NoneType; wanted a list of arrays"));
  EXPECT_THAT(said("    raise ValueError('no')\n"),
              HasSubstr("in pixels: `raise ValueError('no')`: ValueError: no"));
  EXPECT_THAT(said("    while True: pass\n", false, {.seconds = 0.2}),
              HasSubstr("more processor time than an image may"));
  EXPECT_THAT(said("    numpy.zeros(1 << 33)\n"),
              HasSubstr("more memory than an image may"));
  EXPECT_THAT(said("    os._exit(1)\n"), HasSubstr("ended on it twice"));
  // Image 0 of sample 0 is one of those that are made twice.
  EXPECT_THAT(said("    seen.append(1)\n    return good + len(seen) % 2\n"),
              HasSubstr("pixels made other crops of the same image the second "
                        "time: a recipe must be pure"));
}

// A plan that another process would not make again never has pixels.
TEST_F(ImageRecipeTest, PixelsAreHeldToTheScheduledPlan) {
  if (!HasNumpy()) GTEST_SKIP() << "no python3 has numpy";
  const auto recipe = Make(absl::StrCat("import numpy\nvalue = 1\n", kPlan,
                                        kOneCrop, kPixels, kFlat));
  auto stale =
      ParseRecipePlan(R"({"crops":[[2,4]],"tokens":1,"text":null})", 8, 8);
  ASSERT_TRUE(stale.ok()) << stale.status();
  const auto made = PixelsOf(*recipe, Facts(8, 8), *stale);
  EXPECT_TRUE(IsDataFault(made.status())) << made.status();
  EXPECT_THAT(std::string(made.status().message()),
              HasSubstr("for an image that was scheduled with"));
}

// What decides a plan beside its input, such as the machine's name, gives
// another name, so that servers refuse each other.
TEST_F(ImageRecipeTest, TheNameCoversWhatItMakes) {
  const std::string side = ::testing::TempDir() + "/side";
  const std::string text =
      absl::StrCat(kHead, "side = len(open('", side, "').read())\n", kPlan,
                   "    return recipe.ImagePlan([(side, side)])\n");
  WriteFile(side, "1234");
  const auto one = Open(text);
  ASSERT_TRUE(one.ok()) << one.status();
  WriteFile(side, "12345");
  const auto other = Open(text);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE((*one)->name(), (*other)->name());
  EXPECT_EQ((*one)->name().substr(0, 32), (*other)->name().substr(0, 32));
}

}  // namespace
}  // namespace ballast
