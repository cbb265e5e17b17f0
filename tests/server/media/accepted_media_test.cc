// Every file of media of the shared cases that `index` accepts is delivered as
// it was planned: facts, then frames and samples, by the code of both.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/media/audio/audio_reader.h"
#include "server/media/video/video_reader.h"
#include "server/model/model_videos.h"
#include "server/sample/data_fault.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/media/video/made_videos.h"

namespace ballast {
namespace {

constexpr char kCases[] = "cases/media.json";

class AcceptedMediaTest : public testing::Test {
 protected:
  // "" if index refuses it, else what was accepted. Fails unless that is
  // delivered.
  std::string TryVideo(const OpenVideo& file) {
    const auto facts = videos_.ReadFacts(file.bytes);
    if (!facts.ok() ||
        !CheckDecodedPixels(MostPacketsToAFrame(facts->table), *facts).ok()) {
      EXPECT_TRUE(facts.ok() || IsDataFault(facts.status())) << facts.status();
      absl::StrAppend(&reasons_, facts.status().message(), "\n");
      return "";
    }
    FrameForm form;
    form.width = facts->shown_width();
    form.height = facts->shown_height();
    std::vector<uint32_t> all(facts->frames());
    std::iota(all.begin(), all.end(), 0);
    std::vector<uint8_t> frame(size_t{form.width} * form.height * 3);
    const absl::Status read =
        videos_.ReadFrames(file.bytes, *facts, all, form,
                           [&](size_t) { return absl::MakeSpan(frame); });
    EXPECT_TRUE(read.ok()) << read;
    for (const std::string& name : VideoModelNames()) {
      const auto plan = PlanIndexedVideo(*FindVideoModel(name),
                                         GetIndexedVideo(*facts), facts->times);
      if (name == "qwen3_vl" && plan.ok()) sampled_ = plan->frames.size();
    }
    return absl::StrCat(facts->frames(), " frames");
  }

  std::string TryAudio(const AudioBytes& file, bool in_video) {
    const auto facts = audio_.ReadFacts(file, in_video);
    if (!facts.ok()) {
      EXPECT_TRUE(IsDataFault(facts.status())) << facts.status();
      absl::StrAppend(&reasons_, facts.status().message(), "\n");
      return "";
    }
    const auto samples = audio_.ReadSamples(file, *facts, {0, facts->samples});
    EXPECT_TRUE(samples.ok()) << samples.status();
    if (!samples.ok()) return "";
    EXPECT_TRUE(std::all_of(samples->begin(), samples->end(),
                            [](float value) { return std::isfinite(value); }));
    return absl::StrCat(samples->size(), " samples");
  }

  VideoReader videos_{1};
  AudioReader audio_;
  std::string reasons_;
  size_t sampled_ = 0;
};

TEST_F(AcceptedMediaTest, IsDelivered) {
  const std::optional<std::string> shared = SharedDirWith(kCases);
  if (!shared) GTEST_SKIP() << NotShared(kCases);
  // What media.json says is right, of each file that it says it of.
  const std::map<std::string, std::string> wanted = {
      {"a.m4a", "27200 samples"},
      {"aedit_end.m4a", "13600 samples"},
      {"anim.gif", ""},
      {"anim.webp", ""},
      {"cover.mp4", "90 frames"},
      {"cut_copy.mp4", "62 frames"},
      {"cut_copy.ts", "77 frames"},
      {"h264.ts", "90 frames"},
      {"midcut2.ts", ""},
      {"mp3_cut.mp3", "16109 samples"},
      {"mp3_midstart.mp3", ""},
      {"nan1.wav", ""},
      {"negative.mkv", "90 frames"},
      {"nist.wav", ""},
      {"o.webm", ""},
      {"o16.ogg", "27200 samples"},
      {"p10full.mp4", "30 frames"},
      {"pipe.flac", "27200 samples"},
      {"resize.ts", ""},
      {"stream1.wav", "16000 samples"},
      {"vfr.mkv", "45 frames"},
  };
  // Of those that are refused, what they are is named.
  const std::map<std::string, std::string> named = {
      {"midcut2.ts", "within a group of pictures"},
      {"mp3_midstart.mp3", "the next frame begins at byte "},
      {"nan1.wav", "not a finite number"},
      {"nist.wav", "NIST SPHERE"},
      {"o.webm", "WebM"},
      {"resize.ts", "wanted one size"},
  };
  std::set<std::string> tried;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           absl::StrCat(*shared, "/cases/media"))) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || entry.path().extension() == ".jsonl") {
      continue;
    }
    SCOPED_TRACE(name);
    reasons_.clear();
    const OpenVideo file(entry.path().string());
    const AudioBytes audio = {file.bytes.fd, 0, file.bytes.bytes};
    const std::string found =
        absl::StrCat(TryVideo(file), TryAudio(audio, /*in_video=*/false));
    const std::string reasons = reasons_;
    TryAudio(audio, /*in_video=*/true);
    if (const auto is = named.find(name); is != named.end()) {
      EXPECT_TRUE(absl::StrContains(reasons, is->second)) << reasons;
    }
    if (const auto right = wanted.find(name); right != wanted.end()) {
      EXPECT_EQ(found, right->second) << reasons;
      tried.insert(name);
    }
    if (name == "vfr.mkv") {
      EXPECT_EQ(sampled_, 16u);
    }
  }
  EXPECT_EQ(tried.size(), wanted.size());
}

}  // namespace
}  // namespace ballast
