#include "server/command/commands.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "server/media/audio/audio_plan.h"
#include "server/media/audio/log_mel.h"
#include "server/model/profiles.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/media/audio/golden_audio.h"

namespace ballast {
namespace {

using Json = nlohmann::json;

// Longer clips are planned alone.
constexpr size_t kMaxDecoded = 600'000;

std::string WriteAudio(const std::string& name, const std::string& bytes) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::vector<Json> Inspect(const InspectAudioOptions& options,
                          const std::vector<std::string>& files) {
  std::ostringstream out;
  static_cast<void>(InspectAudio(options, files, out));
  std::vector<Json> lines;
  std::istringstream in(out.str());
  for (std::string line; std::getline(in, line);) {
    lines.push_back(Json::parse(line));
  }
  return lines;
}

// As the vectors take it: of the samples, without a file.
std::string HashFeatures(const v1::AudioFamily& family,
                         const std::vector<float>& samples) {
  const AudioPlan plan = *PlanAudio(family, samples.size());
  const auto values =
      *(*LogMel::Create(family)).Compute(plan, samples, plan.frames);
  return Sha256Hex({reinterpret_cast<const uint8_t*>(values.data()),
                    values.size() * sizeof(float)});
}

TEST(InspectAudioTest, PrintsTheVectorsOfEveryClipAndModel) {
  if (!SharedDirWith(kGoldenAudio)) GTEST_SKIP() << NotShared(kGoldenAudio);
  const Json cases = ReadGoldenAudio()["cases"];
  std::vector<std::string> files[2];  // to be planned alone; to be decoded
  std::vector<const Json*> wanted[2];
  std::vector<std::vector<float>> clips[2];
  for (const Json& one : cases) {
    const std::vector<int16_t> pcm = MakePcm(
        one["kind"], one["n"].get<int64_t>(), one["seed"].get<uint64_t>());
    const size_t decode = pcm.size() <= kMaxDecoded ? 1 : 0;
    files[decode].push_back(
        WriteAudio(absl::StrCat(one["id"].get<std::string>(), ".wav"),
                   MakeWav(pcm, 16000, 1)));
    wanted[decode].push_back(&one);
    clips[decode].push_back(ToFloats(pcm));
  }
  ASSERT_GT(files[1].size(), 40);
  for (const std::string& model : AudioFamilyNames()) {
    for (const size_t decode : {0, 1}) {
      const std::vector<Json> lines = Inspect(
          {.model = model, .clip = {}, .decode = decode == 1}, files[decode]);
      ASSERT_EQ(lines.size(), files[decode].size());
      for (size_t i = 0; i < lines.size(); ++i) {
        const Json& line = lines[i];
        const Json& one = (*wanted[decode][i])["models"][model];
        SCOPED_TRACE(absl::StrCat(model, " ", line.dump()));
        EXPECT_EQ(line["rate"], 16000);
        EXPECT_EQ(line["channels"], 1);
        EXPECT_EQ(line["samples"], (*wanted[decode][i])["n"]);
        EXPECT_EQ(line.contains("error"), one.contains("error"));
        if (one.contains("error")) continue;
        EXPECT_EQ(line["frames"], one["frames"]);
        EXPECT_EQ(line["audio_tokens"], one["tokens"]);
        if (decode == 1) {
          EXPECT_EQ(line["features_sha256"],
                    HashFeatures(*FindAudioFamily(model), clips[decode][i]));
        }
      }
    }
  }
}

TEST(InspectAudioTest, AClipHasItsOwnCounts) {
  const std::string file =
      WriteAudio("clip.wav", MakeWav(MakePcm("speech", 64000, 1), 16000, 1));
  const Json line = Inspect(
      {.model = "qwen2_audio", .clip = {1.0, 3.0}, .decode = true}, {file})[0];
  EXPECT_EQ(line["samples"], 32000);
  EXPECT_EQ(line["frames"], 200);
  EXPECT_EQ(line["audio_tokens"], 50);
}

TEST(InspectAudioTest, OneBadFileCostsItselfAlone) {
  const std::string good =
      WriteAudio("good.wav", MakeWav(MakePcm("noise", 16000, 1), 16000, 1));
  const std::string bad = WriteAudio("bad.wav", "no audio");
  std::ostringstream out;
  const absl::Status status = InspectAudio({.model = "gemma4", .clip = {}},
                                           {bad, good, bad + ".none"}, out);
  EXPECT_EQ(status.message(),
            "2 of 3 files failed; see `error` in their lines");
  const std::vector<Json> lines =
      Inspect({.model = "gemma4", .clip = {}}, {bad, good, bad + ".none"});
  EXPECT_NE(lines[0]["error"].get<std::string>().find("wanted WAV"),
            std::string::npos)
      << lines[0];
  EXPECT_EQ(lines[1]["frames"], 99);
  EXPECT_NE(lines[2]["error"].get<std::string>().find("No such file"),
            std::string::npos)
      << lines[2];
}

TEST(InspectAudioTest, AnUnknownModelIsRefused) {
  std::ostringstream out;
  EXPECT_EQ(InspectAudio({.model = "whisper", .clip = {}}, {"x"}, out).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ballast
