#include "server/command/commands.h"

#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"
#include "proto/image/resample_weights.h"
#include "server/media/image_plan/image_family.h"
#include "server/media/image_plan/image_planner.h"
#include "server/model/image_family_config.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/media/image/test_images.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

v1::Model Profile(const std::string& name, uint64_t min_pixels = 0,
                  uint64_t max_pixels = 0) {
  v1::Model model;
  model.set_profile(name);
  model.set_min_pixels(min_pixels);
  model.set_max_pixels(max_pixels);
  EXPECT_TRUE(ApplyModelProfile(&model).ok());
  return model;
}

// Runs the command; `lines` gets the objects of its output, one per line.
absl::Status Inspect(const v1::Model& model,
                     const std::vector<std::string>& files,
                     std::vector<Json>* lines) {
  std::ostringstream out;
  const absl::Status status = InspectImages(model, files, out);
  std::istringstream in(out.str());
  lines->clear();
  for (std::string line; std::getline(in, line);) {
    lines->push_back(Json::parse(line, nullptr, false));
  }
  return status;
}

std::vector<std::string> GetKeys(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

TEST(InspectImageTest, PrintsTheKeysInOrder) {
  // 64x64 pixels are within the bounds and a multiple of 28 only after
  // rounding: 2.29 patches of 28 become 2.
  std::vector<Json> lines;
  const std::string file = TestDataPath("440.jpg");
  ASSERT_TRUE(Inspect(Profile("qwen2_vl"), {file}, &lines).ok());
  ASSERT_EQ(lines.size(), 1u);
  const Json& line = lines[0];
  EXPECT_EQ(GetKeys(line),
            (std::vector<std::string>{"file", "width", "height", "resized_h",
                                      "resized_w", "grid_thw", "image_tokens",
                                      "rgb_sha256", "resized_sha256"}));
  EXPECT_EQ(line["file"], file);
  EXPECT_EQ(line["width"], 64);
  EXPECT_EQ(line["height"], 64);
  EXPECT_EQ(line["resized_h"], 56);
  EXPECT_EQ(line["resized_w"], 56);
  EXPECT_EQ(line["grid_thw"], Json({1, 4, 4}));
  EXPECT_EQ(line["image_tokens"], 4);
}

// The image has 23x13 pixels and is to be rotated by 90 degrees.
TEST(InspectImageTest, TurnsAndResizesAsTheModelSays) {
  const std::vector<std::string> files = {TestDataPath("orientation_6.jpg")};
  v1::Model model = Profile("qwen2_vl");
  std::vector<Json> stored, turned;
  ASSERT_TRUE(Inspect(model, files, &stored).ok());
  model.set_exif_orientation(true);
  ASSERT_TRUE(Inspect(model, files, &turned).ok());
  EXPECT_EQ(stored[0]["width"], 23);
  EXPECT_EQ(turned[0]["width"], 13);
  EXPECT_EQ(turned[0]["resized_h"], stored[0]["resized_w"]);
  EXPECT_NE(turned[0]["rgb_sha256"], stored[0]["rgb_sha256"]);

  // The decoded pixels are equal; the resized ones have plainer chroma.
  std::vector<Json> fast;
  model.set_exif_orientation(false);
  model.set_resample(v1::Model::RESAMPLE_FAST);
  ASSERT_TRUE(Inspect(model, files, &fast).ok());
  EXPECT_EQ(fast[0]["rgb_sha256"], stored[0]["rgb_sha256"]);
  EXPECT_NE(fast[0]["resized_sha256"], stored[0]["resized_sha256"]);
}

TEST(InspectImageTest, ContinuesAfterABadFileAndFailsAtTheEnd) {
  std::vector<Json> lines;
  const std::string absent = TestDataPath("absent\xff.png");
  const absl::Status status = Inspect(
      Profile("qwen2_vl"),
      {absent, TestDataPath("vectors.json"), TestDataPath("rgb8.png")}, &lines);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("2 of 3 files"), std::string::npos);
  ASSERT_EQ(lines.size(), 3u);
  const std::vector<std::string> keys = {"file", "error"};
  EXPECT_EQ(GetKeys(lines[0]), keys);
  EXPECT_EQ(GetKeys(lines[1]), keys);
  EXPECT_EQ(lines[1]["error"], "neither JPEG nor PNG nor WebP");
  EXPECT_EQ(lines[2]["width"], 19);
}

TEST(InspectImageTest, RefusesAnUnboundedSize) {
  std::vector<Json> lines;
  const uint64_t many = uint64_t{1} << 40;
  EXPECT_FALSE(Inspect(Profile("qwen2_vl", many, many),
                       {TestDataPath("rgb8.png")}, &lines)
                   .ok());
  EXPECT_EQ(GetKeys(lines[0]), (std::vector<std::string>{"file", "error"}));
}

int RunCommand(std::vector<std::string> arguments) {
  CommandLine line("ballast-server", "");
  AddInspectImage(&line, line.AddGroup("inspect", "", ""));
  arguments.insert(arguments.begin(), {"ballast-server", "inspect", "image"});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return line.Run(argv.size(), argv.data());
}

TEST(InspectImageTest, RunsFromTheCommandLine) {
  const auto run = RunCommand;
  const std::string good = TestDataPath("rgb8.png");
  EXPECT_EQ(run({"--model", "qwen3_vl", good}), 0);
  EXPECT_EQ(run({"--model", "qwen3_vl", good, "--max-pixels", "70000"}), 0);
  EXPECT_EQ(run({"--model", "qwen3_vl", good, "--exif-orientation",
                 "--resample", "fast"}),
            0);
  EXPECT_EQ(run({"--model", "qwen3_vl", good, "--resample", "slow"}), 2);
  EXPECT_EQ(run({"--model", "qwen3_vl", good, "absent"}), 1);
  EXPECT_EQ(run({"--model", "unheard_of", good}), 2);
  EXPECT_EQ(run({"--model", "qwen3_vl", good, "--resample", "torchvision"}), 0);
  EXPECT_EQ(run({"--model", "gemma3", good, "--resample", "pillow13"}), 0);
  EXPECT_EQ(run({"--model", "gemma3", good, "--resample", "fast"}), 1);
  EXPECT_EQ(run({"--model", "gemma3", good, "--max-pixels", "90000"}), 1);
  EXPECT_EQ(run({"--model", "glm4v", good, "--max-pixels", "90000"}), 0);
  EXPECT_EQ(run({"--model", "qwen3_vl", "--max-pixels", "9", good}), 1);
  EXPECT_EQ(run({"--model", "qwen3_vl"}), 2);
  EXPECT_EQ(run({good}), 2);
}

TEST(InspectImageTest, MatchesTheGoldenValues) {
  constexpr char kGolden[] = "golden/images.json";
  const std::optional<std::string> found = SharedDirWith(kGolden);
  if (!found) GTEST_SKIP() << NotShared(kGolden);
  const std::string& shared = *found;
  const nlohmann::json golden = ReadJsonOrFail(shared + "/" + kGolden);
  // The pixel bounds of the golden values.
  const std::pair<const char*, v1::Model> profiles[] = {
      {"qwen2_vl", Profile("qwen2_vl", 3136, 1003520)},
      {"qwen3_vl", Profile("qwen3_vl", 65536, 1048576)}};
  std::vector<std::string> files;
  for (const nlohmann::json& image : golden["images"]) {
    files.push_back(shared + "/corpus/images/" +
                    image["file"].get<std::string>());
  }
  for (const auto& [name, model] : profiles) {
    std::vector<Json> lines;
    ASSERT_TRUE(Inspect(model, files, &lines).ok());
    ASSERT_EQ(lines.size(), files.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      SCOPED_TRACE(files[i]);
      const nlohmann::json& image = golden["images"][i];
      for (const char* key : {"width", "height", "rgb_sha256"}) {
        EXPECT_EQ(nlohmann::json(lines[i][key]), image[key]) << key;
      }
      for (const char* key : {"resized_h", "resized_w", "grid_thw",
                              "image_tokens", "resized_sha256"}) {
        EXPECT_EQ(nlohmann::json(lines[i][key]), image["profiles"][name][key])
            << key;
      }
    }
  }
}

// The lines of a family's command over the photographs.
std::vector<Json> InspectFamilyOf(const std::string& family,
                                  const std::vector<std::string>& files,
                                  bool with_text = false) {
  const absl::StatusOr<ImagePlanner> planner =
      ImagePlanner::Create(*FindImageFamily(family));
  EXPECT_TRUE(planner.ok()) << planner.status();
  std::ostringstream out;
  const absl::Status status =
      InspectFamilyImages(*planner, {.with_text = with_text}, files, out);
  EXPECT_TRUE(status.ok()) << status;
  std::vector<Json> lines;
  std::istringstream in(out.str());
  for (std::string line; std::getline(in, line);) {
    lines.push_back(Json::parse(line, nullptr, false));
  }
  return lines;
}

TEST(InspectImageTest, PrintsTheKeysOfFamilies) {
  const std::string file = TestDataPath("440.jpg");
  EXPECT_EQ(GetKeys(InspectFamilyOf("internvl3", {file})[0]),
            (std::vector<std::string>{"file", "width", "height", "image_tokens",
                                      "resample", "rgb_sha256", "crops"}));
  EXPECT_EQ(GetKeys(InspectFamilyOf("llava_next", {file})[0]),
            (std::vector<std::string>{"file", "width", "height", "tile_grid",
                                      "image_tokens", "resample", "rgb_sha256",
                                      "crops"}));
  EXPECT_EQ(GetKeys(InspectFamilyOf("glm4v", {file})[0]),
            (std::vector<std::string>{"file", "width", "height", "grid_thw",
                                      "image_tokens", "resample", "rgb_sha256",
                                      "patches"}));
}

TEST(InspectImageTest, PrintsTheTextOnRequest) {
  const std::string file = TestDataPath("440.jpg");
  // 64x64 pixels are one tile of (448/14/2)^2 tokens.
  EXPECT_EQ(InspectFamilyOf("internvl3", {file}, true)[0]["text"],
            Json({"<img>", 256, "</img>"}));
  EXPECT_EQ(InspectFamilyOf("siglip", {file}, true)[0]["text"], Json::array());
}

// The model of the configuration, whether keys describe its images or a family:
// InternVL's, printed as YAML, is InternVL's.
TEST(InspectImageTest, ReadsTheModelOfAConfiguration) {
  const std::string path = testing::TempDir() + "/own.yaml";
  const auto write =
      [&](const std::string& model) {
        std::ofstream(path)
            << "sources: [{name: a, format: jsonl, path: a}]\n"
               "batch: {global: 8, micro: 8}\n"
               "topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}\n"
            << "model:\n  resample: torchvision\n  " << model;
      };
  const std::string good = TestDataPath("rgb8.png");
  const auto print = [](const std::vector<std::string>& arguments) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(RunCommand(arguments), 0);
    return Json::parse(testing::internal::GetCapturedStdout());
  };
  write("profile: qwen3_vl\n  max_pixels: 131072\n");
  const Json qwen = print({"--model", "own", "--config", path, good});
  EXPECT_TRUE(qwen.contains("resized_h"));
  EXPECT_EQ(qwen, print({"--model", "qwen3_vl", "--resample", "torchvision",
                         "--max-pixels", "131072", good}));
  std::string yaml = FamilyYaml(*FindImageFamily("internvl3"));
  write(absl::StrCat("mean: [0, 0, 0]\n  std: [1, 1, 1]\n  ",
                     absl::StrReplaceAll(yaml, {{"\n", "\n  "}})));
  EXPECT_EQ(RunCommand({"--model", "own", good}), 1);
  EXPECT_EQ(RunCommand({"--model", "gemma3", "--config", path, good}), 1);
  const Json own = print({"--model", "own", "--config", path, "--text", good});
  EXPECT_EQ(own["resample"], "torchvision");
  EXPECT_EQ(own, print({"--model", "internvl3", "--resample", "torchvision",
                        "--text", good}));
}

// Crops or patches, and tokens where the processor counts them, of each
// setting.
TEST(InspectImageTest, FamiliesMatchTheGoldenValues) {
  constexpr char kGolden[] = "golden/families.json";
  const std::optional<std::string> shared = SharedDirWith(kGolden);
  if (!shared) GTEST_SKIP() << NotShared(kGolden);
  const nlohmann::json golden = ReadJsonOrFail(*shared + "/" + kGolden);
  ASSERT_EQ(golden["families"].size(), 18u);
  for (const auto& [family, expected] : golden["families"].items()) {
    std::vector<std::string> files;
    for (const auto& [name, image] : expected["images"].items()) {
      files.push_back(*shared + "/corpus/images/" + name);
    }
    const std::vector<Json> lines = InspectFamilyOf(
        NameUnderRules(family, v1::Model::RULES_TRANSFORMERS), files);
    ASSERT_EQ(lines.size(), 20u);
    size_t i = 0;
    for (const auto& [name, image] : expected["images"].items()) {
      SCOPED_TRACE(family + " " + name);
      const nlohmann::json line = lines[i++];
      EXPECT_EQ(line["width"], image["width"]);
      EXPECT_EQ(line["height"], image["height"]);
      nlohmann::json crops = nlohmann::json::array();
      for (const nlohmann::json& array : image["arrays"]) {
        if (array.contains("sha256")) {
          EXPECT_EQ(line["patches"], array);
        }
        if (!array.contains("crops")) continue;
        for (const nlohmann::json& crop : array["crops"]) crops.push_back(crop);
      }
      if (!crops.empty()) {
        EXPECT_EQ(line["crops"], crops);
      }
      if (image.contains("image_tokens")) {
        EXPECT_EQ(line["image_tokens"], image["image_tokens"]);
      }
      if (image.contains("image_grid_thw")) {
        EXPECT_EQ(line["grid_thw"], image["image_grid_thw"][0]);
      }
      if (image.contains("spatial_shapes")) {
        EXPECT_EQ(line["grid_thw"][1], image["spatial_shapes"][0][0]);
        EXPECT_EQ(line["image_tokens"],
                  image["spatial_shapes"][0][0].get<int>() *
                      image["spatial_shapes"][0][1].get<int>());
      }
      // No tiles are [0, 0] for MiniCPM-V.
      if (image.contains("grids") && image["grids"][0][0] != 0) {
        EXPECT_EQ(line["tile_grid"], image["grids"][0]);
      }
    }
  }
}

TEST(InspectImageTest, PixelsOfPillow13MatchTheGoldenValues) {
  constexpr char kGolden[] = "golden/images_pillow13.json";
  const std::optional<std::string> shared = SharedDirWith(kGolden);
  if (!shared) GTEST_SKIP() << NotShared(kGolden);
  const nlohmann::json golden = ReadJsonOrFail(*shared + "/" + kGolden);
  std::pair<const char*, v1::Model> profiles[] = {
      {"qwen2_vl", Profile("qwen2_vl", 3136, 1003520)},
      {"qwen3_vl", Profile("qwen3_vl", 65536, 1048576)}};
  for (auto& [profile, model] : profiles) {
    model.set_resample(v1::Model::RESAMPLE_PILLOW13);
    std::vector<std::string> files;
    for (const auto& [name, image] : golden["images"].items()) {
      files.push_back(*shared + "/corpus/images/" + name);
    }
    std::vector<Json> lines;
    ASSERT_TRUE(Inspect(model, files, &lines).ok());
    ASSERT_EQ(lines.size(), 20u);
    size_t i = 0;
    for (const auto& [name, image] : golden["images"].items()) {
      SCOPED_TRACE(name);
      const nlohmann::json line = lines[i++];
      EXPECT_EQ(line["rgb_sha256"], image["rgb_sha256"]);
      EXPECT_EQ(line["resized_sha256"],
                image["profiles"][profile]["resized_sha256"]);
    }
  }
}

}  // namespace
}  // namespace ballast
