#include "tests/integration/video_job.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/command/commands.h"
#include "server/data/tar/tar_reader.h"
#include "server/model/model_videos.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/read_file.h"
#include "tests/fakes/test_job.h"
#include "tests/server/media/video/made_videos.h"

namespace ballast {
namespace {

using Json = nlohmann::json;

void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A copy of the video whose header is sound, and the beginning of its one key
// frame; the other bytes are not.
void WriteTorn(const std::string& from, const std::string& to) {
  std::string bytes = ReadFile(from);
  const size_t data = bytes.find("mdat");
  const size_t header = bytes.find("moov");
  ASSERT_LT(data, header);
  constexpr size_t kSound = 2000;
  ASSERT_LT(data + 2 * kSound, header);
  std::fill(bytes.begin() + data + kSound, bytes.begin() + header - 4, '\x55');
  WriteAll(to, bytes);
}

constexpr const char* kOthers[] = {"d.mkv", "e.mp4", "turned.mp4", "odd.webm",
                                   "uneven.mp4"};

std::string Turns(const std::string& question) {
  return absl::StrCat(R"("conversations": [{"from": "human", "value": ")",
                      question, R"("}, {"from": "gpt", "value": "A."}])");
}

}  // namespace

const VideoDataSet& VideoData() {
  static const VideoDataSet* const data = [] {
    auto* made = new VideoDataSet{::testing::TempDir() + "/clips", {}};
    std::filesystem::create_directories(made->folder);
    const auto make = [&](const std::string& name, const std::string& size,
                          const std::string& seconds, const std::string& how) {
      return MakeVideo("clips/" + name, size, seconds, how);
    };
    const std::string a =
        make("a.mp4", "160x120", "3", "-c:v libx264 -g 200 -pix_fmt yuv420p");
    make("b.webm", "118x90", "1.5", "-c:v libvpx-vp9 -pix_fmt yuv420p");
    make("c.mp4", "96x128", "1", "-c:v mpeg4 -qscale:v 3");
    std::filesystem::create_directories(made->folder + "/frames");
    RunFfmpeg(absl::StrCat("-i ", a, " -frames:v 3 ", made->folder,
                           "/frames/%d.png"));
    // Other codecs, a rotated file, odd sides, frames that are not evenly
    // spaced.
    make("d.mkv", "112x84", "1.5",
         "-c:v libx265 -x265-params log-level=none:keyint=20:bframes=3 "
         "-pix_fmt yuv420p");
    make("e.mp4", "112x84", "1.5",
         "-c:v libsvtav1 -preset 12 -g 20 -pix_fmt yuv420p 2>/dev/null");
    const std::string stored =
        make("stored.mp4", "128x96", "1",
             "-c:v libx264 -g 10 -bf 2 -pix_fmt yuv420p");
    RunFfmpeg(absl::StrCat("-i ", stored, " -c copy -metadata:s:v rotate=90 ",
                           made->folder, "/turned.mp4"));
    make("odd.webm", "120x90", "1",
         "-vf scale=121:91 -c:v libvpx-vp9 -g 12 -pix_fmt yuv420p");
    make("uneven.mp4", "120x90", "2",
         "-vf \"select='not(mod(n\\,3))+gt(n\\,40)'\" -vsync vfr -c:v libx264 "
         "-pix_fmt yuv420p");
    WriteTorn(a, made->folder + "/torn.mp4");
    WriteAll(made->folder + "/bad.mp4", std::string(5000, 'x'));
    WriteAll(made->folder + "/x.jpg", MakeJpeg({.width = 90, .height = 60}));
    std::string others;
    for (const char* other : kOthers) {
      absl::StrAppend(&others, "{\"video\": \"", other, "\", ",
                      Turns("<video>"), "}\n");
    }
    WriteAll(
        made->folder + "/chat.jsonl",
        absl::StrCat("{\"video\": \"a.mp4\", ", Turns("<video>\\nWhat?"), "}\n",
                     "{\"image\": \"x.jpg\", \"videos\": [\"b.webm\", "
                     "\"c.mp4\"], ",
                     Turns("See <video>, <image> and <video>."), "}\n", "{",
                     Turns("Words."), "}\n", "{\"image\": \"x.jpg\", ",
                     Turns("<image>"), "}\n", "{\"video\": \"torn.mp4\", ",
                     Turns("<video>"), "}\n", others,
                     "{\"video\": \"bad.mp4\", ", Turns("<video>"), "}\n",
                     "{\"video\": [\"frames/1.png\", \"frames/2.png\", "
                     "\"frames/3.png\"], ",
                     Turns("<video>"), "}\n"));
    auto& samples = made->samples;
    samples[{"chat", 0}] = {"<video>\nWhat?", {{"a.mp4", {}}}};
    samples[{"chat", 1}] = {"See <video>, <image> and <video>.",
                            {{"b.webm", {}}, {"c.mp4", {}}},
                            1};
    samples[{"chat", 2}] = {"Words."};
    samples[{"chat", 3}] = {"<image>", {}, 1};
    samples[{"chat", 4}] = {"<video>", {{"a.mp4", {}}}, 0, true};
    for (size_t i = 0; i < std::size(kOthers); ++i) {
      samples[{"chat", 5 + i}] = {"<video>", {{kOthers[i], {}}}};
    }
    samples[{"chat", 5 + std::size(kOthers)}] = {"<video>", {{"frames", {}}}};
    auto tar = *TarWriter::Create(made->folder + "/tapes.tar");
    const auto add = [&](const std::string& name, const std::string& bytes) {
      EXPECT_TRUE(tar->Add(name, bytes).ok());
    };
    add("0.webm", ReadFile(made->folder + "/b.webm"));
    add("0.json", "{" + Turns("<video>") + "}");
    add("1.mp4", ReadFile(a));
    add("1.json", R"({"messages": [
        {"role": "user", "content": [
            {"type": "video", "start": 0.5, "end": 2.5},
            {"type": "text", "text": "Q"}]},
        {"role": "assistant", "content": "A."}]})");
    for (int i = 0; i < 3; ++i) {
      add(absl::StrCat("2.0.", i, ".png"),
          ReadFile(absl::StrCat(made->folder, "/frames/", i + 1, ".png")));
    }
    add("2.json", "{" + Turns("<video>") + "}");
    EXPECT_TRUE(tar->Finish().ok());
    VideoClip clip;
    clip.start = 0.5;
    clip.end = 2.5;
    samples[{"tapes", 0}] = {"<video>", {{"b.webm", {}}}};
    samples[{"tapes", 1}] = {"<video>Q", {{"a.mp4", clip}}};
    samples[{"tapes", 2}] = {"<video>", {{"frames", {}}}};
    return made;
  }();
  return *data;
}

LoadedConfig VideoConfig(const std::string& profile,
                         const std::string& delivery,
                         const std::string& video) {
  TestJob job;
  job.sources = absl::StrCat(
      "{name: chat, format: jsonl, path: chat.jsonl, media_root: ., index: '",
      profile,
      ".chat.index'}, {name: tapes, format: webdataset, path: tapes.tar, "
      "index: '",
      profile, ".tapes.index'}");
  job.model = absl::StrCat("profile: ", profile,
                           ", min_pixels: 3136, max_pixels: 12544, video: {",
                           video, "}");
  job.batch = "global: 8, micro: 8";
  job.balance = absl::StrCat("delivery: ", delivery,
                             ", cost: {vision: {linear: 1, quadratic: 0.5}}");
  return ParseJob(job, VideoData().folder);
}

LoadedConfig VideoConfig(const std::string& profile,
                         const std::string& delivery) {
  return VideoConfig(profile, delivery,
                     "fps: 2, min_frames: 2, max_frames: 6, min_pixels: 4096, "
                     "max_pixels: 12544");
}

const Json& InspectedVideo(const std::string& profile, const Shown& shown) {
  static auto* const known = new std::map<std::string, Json>();
  const std::string key = absl::StrCat(profile, " ", shown.file, " ",
                                       shown.clip.start.value_or(-1));
  if (known->contains(key)) return (*known)[key];
  InspectVideoOptions options;
  options.model = *FindVideoModel(profile);
  options.model.fps = 2;
  options.model.min_frames = 2;
  options.model.max_frames = 6;
  options.model.min_pixels = 4096;
  options.model.max_pixels = 12544;
  options.clip = shown.clip;
  std::ostringstream out;
  EXPECT_TRUE(
      InspectVideos(options, {VideoData().folder + "/" + shown.file}, out).ok())
      << out.str();
  return (*known)[key] = Json::parse(out.str());
}

std::string GetText(const v1::TokenIds& known, absl::Span<const int64_t> ids) {
  std::map<int64_t, std::string> runs = {{known.image(), "image"}};
  if (known.has_video()) runs[known.video()] = "video";
  if (known.has_audio()) runs[known.audio()] = "audio";
  const std::map<int64_t, std::string> marks = {
      {known.vision_start(), "[start]"},
      {known.vision_end(), "[end]"},
      {known.im_start(), "[im_start]"},
      {known.im_end(), "[im_end]"}};
  std::string text;
  for (size_t i = 0; i < ids.size();) {
    size_t n = 1;
    if (const auto run = runs.find(ids[i]); run != runs.end()) {
      while (i + n < ids.size() && ids[i + n] == ids[i]) ++n;
      absl::StrAppend(&text, "[", run->second, "*", n, "]");
    } else if (const auto mark = marks.find(ids[i]); mark != marks.end()) {
      text += mark->second;
    } else {
      EXPECT_LT(ids[i], 256);
      text += static_cast<char>(ids[i]);
    }
    i += n;
  }
  return text;
}

}  // namespace ballast
