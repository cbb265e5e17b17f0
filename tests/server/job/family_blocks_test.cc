// Jobs of model families, from JSON lines to blocks: ids equal those of
// transformers' processors, crops those that the family's rule and the pixels
// of `inspect image` give.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/sha256.h"
#include "server/command/commands.h"
#include "server/media/image/crop_maker.h"
#include "server/media/image_plan/image_family.h"
#include "server/media/image_plan/image_planner.h"
#include "server/model/image_family_config.h"
#include "server/model/model_images.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"
#include "server/sample/data_fault.h"
#include "tests/fakes/read_file.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/job/family_job.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

using ::testing::Each;

constexpr char kTestData[] = "tests/server/text/testdata/";

std::string TokenizerPath() {
  return std::filesystem::absolute(std::string(kTestData) +
                                   "family_chats.tokenizer.json")
      .string();
}

// The vectors are of transformers.
std::string ModelYaml(const std::string& family, const std::string& more = "") {
  return absl::StrCat("{profile: ", family,
                      ", rules: transformers, tokenizer: '", TokenizerPath(),
                      "', token_ids: {end_of_text: 7}", more, "}");
}

// Ids of a vector: a number, or [number, count] for a run.
std::vector<int32_t> IdsOf(const nlohmann::json& runs) {
  std::vector<int32_t> ids;
  for (const nlohmann::json& run : runs) {
    if (run.is_array()) {
      ids.insert(ids.end(), run[1].get<size_t>(), run[0].get<int32_t>());
    } else {
      ids.push_back(run.get<int32_t>());
    }
  }
  return ids;
}

// The vectors of each family, whose images are small enough to draw.
std::map<std::string, std::vector<nlohmann::json>> Vectors() {
  std::map<std::string, std::vector<nlohmann::json>> families;
  for (const nlohmann::json& vector :
       ReadJsonOrFail(std::string(kTestData) + "family_chats.json")) {
    families[vector["family"].get<std::string>()].push_back(vector);
  }
  return families;
}

// Writes the conversations of a family's vectors and pictures of their sizes.
std::string WriteVectors(const std::string& family,
                         const std::vector<nlohmann::json>& vectors) {
  const std::string directory =
      absl::StrCat(::testing::TempDir(), "/blocks_", family);
  std::vector<TestSample> samples;
  for (size_t i = 0; i < vectors.size(); ++i) {
    TestSample sample = {vectors[i]["messages"].dump(), {}};
    for (const nlohmann::json& size : vectors[i]["images"]) {
      sample.images.push_back(
          absl::StrCat(i, "_", sample.images.size(), ".png"));
      WritePicture(absl::StrCat(directory, "/", sample.images.back()), size[0],
                   size[1], 10 * i + sample.images.size());
    }
    samples.push_back(sample);
  }
  WriteConversations(directory, samples);
  return directory;
}

// An interlaced PNG without its pixels, grey of 8 bits.
std::string WriteInterlacedHead(uint32_t width, uint32_t height) {
  std::string head("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", 16);
  for (const uint32_t side : {width, height}) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      head.push_back(static_cast<char>(side >> shift));
    }
  }
  return head +
         std::string("\x08\0\0\0\x01\0\0\0\0\0\0\0\0IEND\xae\x42\x60\x82", 21);
}

// 180 million pixels: 3 bytes each for the decoder, and 3 for all pixels that
// crops are cut from, which together are above 1 GiB.
TEST(FamilyBlocksTest, IndexesWhatSomeModelDecodes) {
  const std::string directory = ::testing::TempDir() + "/large";
  WriteConversations(directory,
                     {{R"([{"role": "user", "content": "<image>What is it?"},
            {"role": "assistant", "content": "Large."}])",
                       {"large.png"}}});
  const std::vector<ImageSize> sides = {{16384, 11000}};
  const std::string file = WriteInterlacedHead(sides[0].width, sides[0].height);
  std::ofstream(directory + "/large.png", std::ios::binary) << file;
  // The second and the third find the sizes that the first has read.
  for (const auto& [family, is_cut] :
       {std::pair{"internvl3", true}, std::pair{"glm4v", false},
        std::pair{"llama4", true}}) {
    SCOPED_TRACE(family);
    const auto job = FamilyJob::Open(directory, 1, ModelYaml(family));
    ASSERT_TRUE(job.ok()) << job.status();
    const auto plan = (*job)->job().text->images().Plan(sides, 0);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const PlanStage& stage = plan->stages[0];
    EXPECT_EQ(IsOneResize(*plan, sides[0].height, sides[0].width), !is_cut);
    const ImageDecoder decoder(GetImageOptions((*job)->job().config.model()));
    const auto needs = is_cut ? decoder.Needs(file)
                              : decoder.Needs(file, stage.width, stage.height);
    EXPECT_EQ(IsDataFault(needs.status()), is_cut) << needs.status();
  }
}

// What the end of a file shows to be cut is decoded by `index`. Other bytes
// after an image are no fault.
TEST(FamilyBlocksTest, CutImagesAreBadAndOthersAreDelivered) {
  const std::string directory = ::testing::TempDir() + "/cut";
  const std::string messages =
      R"([{"role": "user", "content": "<image>What is it?"},
          {"role": "assistant", "content": "Cut."}])";
  const auto open = [&](const std::vector<std::string>& images) {
    std::vector<TestSample> samples;
    for (const std::string& image : images) {
      samples.push_back({messages, {image}});
    }
    WriteConversations(directory, samples);
    return FamilyJob::Open(directory, samples.size(), ModelYaml("glm4v"));
  };
  std::vector<std::string> good;
  WriteConversations(directory, {});
  for (const FileFormat format :
       {FileFormat::kPng, FileFormat::kJpeg, FileFormat::kWebp}) {
    const std::string name = absl::StrCat("whole.", FileExtension(format));
    WritePicture(absl::StrCat(directory, "/", name), 60, 90, 3, format);
    const std::string whole = ReadFile(absl::StrCat(directory, "/", name));
    const auto add = [&](const std::string& other, const std::string& bytes) {
      std::ofstream(absl::StrCat(directory, "/", other), std::ios::binary)
          << bytes;
      return other;
    };
    good.push_back(name);
    good.push_back(add("longer_" + name, whole + "others"));
    for (const size_t size : {whole.size() / 2, whole.size() - 40}) {
      const auto job = open({add("cut_" + name, whole.substr(0, size))});
      EXPECT_THAT(job.status().message(), testing::HasSubstr("truncated"));
      EXPECT_EQ(job.status().code(), absl::StatusCode::kDataLoss);
    }
  }
  const auto job = open(good);
  ASSERT_TRUE(job.ok()) << job.status();
  const auto built = (*job)->Build(v1::MODULE_VISION);
  ASSERT_TRUE(built.ok()) << built.status();
  for (const auto& sample : built->view().samples()) {
    EXPECT_EQ(sample.flags, 0u);
  }
}

TEST(FamilyBlocksTest, IdsAndCropsAreThoseOfTheProcessors) {
  for (const auto& [family, vectors] : Vectors()) {
    SCOPED_TRACE(family);
    const std::string directory = WriteVectors(family, vectors);
    const auto job =
        FamilyJob::Open(directory, vectors.size(), ModelYaml(family));
    ASSERT_TRUE(job.ok()) << job.status();
    const auto language = (*job)->Build(v1::MODULE_LANGUAGE);
    ASSERT_TRUE(language.ok()) << language.status();
    const auto vision = (*job)->Build(v1::MODULE_VISION);
    ASSERT_TRUE(vision.ok()) << vision.status();
    const ModelImages& planner = (*job)->job().text->images();
    const Resampling resampling = {planner.family().filter,
                                   ResampleLibrary::kPillow12};
    for (uint32_t i = 0; i < vectors.size(); ++i) {
      SCOPED_TRACE(vectors[i].dump().substr(0, 300));
      const uint32_t sample = language->view().samples()[i].ordinal;
      EXPECT_EQ(language->view().samples()[i].flags, 0u);
      EXPECT_EQ(language->Ids(i), IdsOf(vectors[sample]["ids"]));
      EXPECT_EQ(vision->view().samples()[i].flags, 0u);
      const nlohmann::json& sizes =
          vectors[vision->view().samples()[i].ordinal]["images"];
      std::vector<RgbImage> wanted;
      std::vector<uint32_t> numbers;
      for (size_t k = 0; k < sizes.size(); ++k) {
        const auto image = ImageDecoder().Decode(ReadFile(
            absl::StrCat(directory, "/", vision->view().samples()[i].ordinal,
                         "_", k, ".png")));
        ASSERT_TRUE(image.ok()) << image.status();
        const std::vector<ImageSize> sides(sizes.size(),
                                           {image->width, image->height});
        const auto plan = planner.Plan(sides, 0);
        ASSERT_TRUE(plan.ok()) << plan.status();
        const auto crops = MakeCrops(*image, *plan, resampling);
        ASSERT_TRUE(crops.ok()) << crops.status();
        wanted.insert(wanted.end(), crops->begin(), crops->end());
        numbers.insert(numbers.end(), crops->size(), k);
      }
      const std::vector<RgbImage> found = vision->Crops(i);
      ASSERT_EQ(found.size(), wanted.size());
      for (size_t k = 0; k < found.size(); ++k) {
        EXPECT_EQ(found[k].height, wanted[k].height);
        EXPECT_EQ(found[k].width, wanted[k].width);
        EXPECT_TRUE(found[k].pixels == wanted[k].pixels) << "crop " << k;
        EXPECT_EQ(vision->view()
                      .images()[vision->view().samples()[i].first_image + k]
                      .image,
                  numbers[k]);
      }
    }
  }
}

constexpr char kAsk[] =
    R"([{"role": "user", "content": "<image>What is it? <image>"},
        {"role": "assistant", "content": "A field, and a long answer to it."}])";

// Two samples with two images each.
std::string WriteTwo(const std::string& name) {
  const std::string directory = ::testing::TempDir() + "/" + name;
  std::filesystem::remove_all(directory);
  WriteConversations(directory,
                     {{kAsk, {"a.png", "b.png"}}, {kAsk, {"c.png", "d.png"}}});
  WritePicture(directory + "/a.png", 500, 300, 1);
  WritePicture(directory + "/b.png", 200, 900, 2);
  WritePicture(directory + "/c.png", 500, 300, 3);
  WritePicture(directory + "/d.png", 200, 900, 4);
  return directory;
}

TEST(FamilyBlocksTest, ABadImageMakesAPlaceholderOfTheFamilysSizes) {
  for (const std::string family : {"internvl3", "llava_next", "pixtral"}) {
    SCOPED_TRACE(family);
    const std::string directory = WriteTwo("bad_" + family);
    const auto good = FamilyJob::Open(directory, 2, ModelYaml(family));
    ASSERT_TRUE(good.ok()) << good.status();
    const auto whole = (*good)->Build(v1::MODULE_LANGUAGE);
    ASSERT_TRUE(whole.ok()) << whole.status();
    // The header stays, the pixels are damaged.
    std::string file = ReadFile(directory + "/d.png");
    std::fill(file.begin() + 60, file.end() - 20, '\x55');
    // Bit rot keeps the file's time; another time would be another file.
    const auto time = std::filesystem::last_write_time(directory + "/d.png");
    std::ofstream(directory + "/d.png", std::ios::binary) << file;
    std::filesystem::last_write_time(directory + "/d.png", time);
    const auto job = FamilyJob::Open(directory, 2, ModelYaml(family));
    ASSERT_TRUE(job.ok()) << job.status();
    const auto vision = (*job)->Build(v1::MODULE_VISION);
    const auto language = (*job)->Build(v1::MODULE_LANGUAGE);
    ASSERT_TRUE(vision.ok()) << vision.status();
    ASSERT_TRUE(language.ok()) << language.status();
    const int32_t image = (*job)->job().config.model().token_ids().image();
    for (uint32_t i = 0; i < 2; ++i) {
      const bool is_bad = vision->view().samples()[i].ordinal == 1;
      EXPECT_EQ(vision->view().samples()[i].flags, is_bad ? 1u : 0u);
      EXPECT_EQ(language->view().samples()[i].flags, is_bad ? 1u : 0u);
      const std::vector<int32_t> ids = language->Ids(i);
      const std::vector<int32_t> wanted = whole->Ids(i);
      ASSERT_EQ(ids.size(), wanted.size());
      EXPECT_EQ(std::count(ids.begin(), ids.end(), image),
                std::count(wanted.begin(), wanted.end(), image));
      if (!is_bad) {
        EXPECT_EQ(ids, wanted);
        continue;
      }
      EXPECT_THAT(language->Labels(i), Each(-100));
      for (const RgbImage& crop : vision->Crops(i)) {
        EXPECT_THAT(crop.pixels, Each(kGreyPixel));
      }
    }
  }
}

// Text is cut from the end; no placeholder and no mark of an image is.
TEST(FamilyBlocksTest, TruncationKeepsTheImages) {
  const std::string directory = WriteTwo("truncated");
  const auto whole = FamilyJob::Open(directory, 2, ModelYaml("internvl3"));
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto before = (*whole)->Build(v1::MODULE_LANGUAGE);
  ASSERT_TRUE(before.ok()) << before.status();
  const std::vector<int32_t> all = before->Ids(0);
  for (const size_t cut : {1, 10, 30}) {
    const auto job = FamilyJob::Open(
        directory, 2, ModelYaml("internvl3"),
        absl::StrCat("batch: {global: 2, micro: 2, max_tokens: ",
                     all.size() - cut, ", on_too_long: truncate_text}\n"));
    ASSERT_TRUE(job.ok()) << job.status();
    const auto block = (*job)->Build(v1::MODULE_LANGUAGE);
    ASSERT_TRUE(block.ok()) << block.status();
    const std::vector<int32_t> ids = block->Ids(0);
    ASSERT_EQ(ids.size(), all.size() - cut);
    const Tokenizer& tokenizer = *(*job)->job().tokenizer;
    for (const char* mark : {"<IMG_CONTEXT>", "<img>", "</img>"}) {
      const int32_t id = *tokenizer.SpecialTokenId(mark);
      EXPECT_EQ(std::count(ids.begin(), ids.end(), id),
                std::count(all.begin(), all.end(), id))
          << mark;
    }
  }
}

// Numbers of one's own serve as a profile's do; changed ones make other crops,
// and the index is measured again.
TEST(FamilyBlocksTest, AFamilyOfOnesOwnIsServed) {
  const std::string directory = WriteTwo("own");
  std::string last;
  for (const uint32_t tiles : {12, 3}) {
    const auto job = FamilyJob::Open(
        directory, 2,
        absl::StrCat(
            "{profile: internvl3, tokenizer: '", TokenizerPath(),
            "', token_ids: {end_of_text: 7}, image_family: {rule: tile_grid, "
            "patch: 14, merge: 2, tile: 448, tokens_an_image: 2, max_tiles: ",
            tiles,
            ", marks: {placeholder: '<IMG_CONTEXT>', before: '<img>', after: "
            "'</img>'}}}"));
    ASSERT_TRUE(job.ok()) << job.status();
    const auto vision = (*job)->Build(v1::MODULE_VISION);
    const auto language = (*job)->Build(v1::MODULE_LANGUAGE);
    ASSERT_TRUE(vision.ok()) << vision.status();
    ASSERT_TRUE(language.ok()) << language.status();
    const std::vector<int32_t> ids = language->Ids(0);
    const size_t crops = vision->Crops(0).size();
    EXPECT_EQ(std::count(ids.begin(), ids.end(),
                         (*job)->job().config.model().token_ids().image()),
              256 * crops);
    EXPECT_LE(crops, 2 * (tiles + 1));
    const std::string hash = (*job)->job().scheduler->fingerprint().hash();
    EXPECT_NE(hash, last);
    last = hash;
  }
}

// Served blocks hold, for each setting of golden/families.json and each of its
// photographs, the crops that the family's processor makes.

constexpr char kGolden[] = "golden/families.json";

// Only crops matter here, and most families' tokens are not the tokenizer's:
// one placeholder stands for each image's features. Blocks hold pixels before
// they are normalised, so any mean and deviation do.
std::string ConfiguredYaml(const std::string& name) {
  ImageFamily family =
      *FindImageFamily(NameUnderRules(name, v1::Model::RULES_TRANSFORMERS));
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
        FamilyJob::Open(directory, samples.size(), ConfiguredYaml(name));
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
