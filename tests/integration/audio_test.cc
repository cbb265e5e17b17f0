// The whole path for audio, from files to packed batches in every rank.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/sha256.h"
#include "server/command/commands.h"
#include "server/config/config_loader.h"
#include "server/job/index_sources.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/read_file.h"
#include "tests/fakes/test_cluster.h"
#include "tests/integration/video_job.h"
#include "tests/server/media/audio/golden_audio.h"
#include "tests/server/media/video/made_videos.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr uint64_t kAudioSteps = 3;

// A clip of a sample.
struct Heard {
  std::string file;
  AudioClip part = {};
};

// A sample as it was written: its question, in which <audio> and <image> stand
// for its clips and images, in order.
struct Said {
  std::string question;
  std::vector<Heard> clips = {};
  // Its only clip has sound headers, and a stream that cannot be decoded.
  bool torn = false;
};

struct DataSet {
  std::string folder;
  std::vector<Said> samples;  // as the index numbers them
};

void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string Line(const std::string& media, const std::string& question) {
  return absl::StrCat(
      "{", media, R"("conversations": [{"from": "human", "value": ")", question,
      R"("}, {"from": "gpt", "value": "A."}]})", "\n");
}

// JSON lines that name audio files that are made of integers: some with an
// image, and four that the index refuses.
const DataSet& Data(bool has_images) {
  const auto make = [](bool images) {
    auto* made = new DataSet{absl::StrCat(::testing::TempDir(), "/audio",
                                          images ? "_and_images" : ""),
                             {}};
    const std::string& folder = made->folder;
    std::filesystem::create_directories(folder);
    WriteAll(folder + "/a.wav",
             MakeWav(MakePcm("speech", 36'001, 5), 16000, 1));
    WriteAll(folder + "/b.wav", MakeWav(MakePcm("noise", 50'000, 6), 44100, 2));
    WriteAll(folder + "/c.wav", MakeWav(MakePcm("square", 9'000, 7), 8000, 1));
    WriteAll(folder + "/x.jpg", MakeJpeg({.width = 90, .height = 60}));
    const std::string whole = MakeWav(MakePcm("noise", 20'000, 8), 16000, 1);
    WriteAll(folder + "/cut.wav", whole.substr(0, whole.size() / 2));
    WriteAll(folder + "/short.wav",
             MakeWav(MakePcm("noise", 100, 8), 16000, 1));
    WriteAll(folder + "/words.wav", std::string(5000, 'x'));
    std::string lines;
    const auto add = [&](const std::string& media, Said said,
                         const std::string& line = "") {
      lines += line.empty() ? Line(media, said.question) : line;
      made->samples.push_back(std::move(said));
    };
    add(R"("audio": "a.wav", )", {"<audio>\\nWhat?", {{"a.wav"}}});
    add(R"("audios": ["b.wav", "c.wav"], )",
        {"Compare <audio> with <audio>.", {{"b.wav"}, {"c.wav"}}});
    add("", {"Words."});
    AudioClip part;
    part.start = 0.25;
    part.end = 1.5;
    add("", {"<audio>Q", {{"a.wav", part}}},
        R"({"messages": [{"role": "user", "content": [)"
        R"({"type": "audio", "audio": "a.wav", "start": 0.25, "end": 1.5},)"
        R"({"type": "text", "text": "Q"}]},)"
        R"({"role": "assistant", "content": "A."}]})"
        "\n");
    if (images) {
      add(R"("image": "x.jpg", "audio": "c.wav", )",
          {"<image> or <audio>?", {{"c.wav"}}});
      add(R"("image": "x.jpg", "audios": ["a.wav", "c.wav"], )",
          {"<audio><image><audio>", {{"a.wav"}, {"c.wav"}}});
      add(R"("image": "x.jpg", )", {"<image>"});
    }
    if (HasFfmpeg()) {
      // The stream of a FLAC file after its first frames is damaged, where the
      // headers say nothing of it.
      RunFfmpeg(absl::StrCat("-i ", folder, "/b.wav ", folder, "/torn.flac"));
      std::string bytes = ReadFile(folder + "/torn.flac");
      std::fill(bytes.begin() + bytes.size() / 2, bytes.end() - 9000, '\x55');
      WriteAll(folder + "/torn.flac", bytes);
      add(R"("audio": "torn.flac", )",
          {"<audio>", {{"torn.flac"}}, /*torn=*/true});
    }
    while (made->samples.size() < 16) {
      add(R"("audio": "c.wav", )", {"<audio>", {{"c.wav"}}});
      add("", {"No audio."});
    }
    for (const char* bad : {"cut.wav", "short.wav", "words.wav", "gone.wav"}) {
      lines += Line(absl::StrCat("\"audio\": \"", bad, "\", "), "<audio>");
    }
    lines += Line("", "<audio>");
    lines += Line(R"("audio": "a.wav", )", "no mark");
    WriteAll(folder + "/talk.jsonl", lines);
    return made;
  };
  static const DataSet* const alone = make(false);
  static const DataSet* const both = make(true);
  return has_images ? *both : *alone;
}

// `modules`: topology.modules.
LoadedConfig MakeAudioConfig(const std::string& profile,
                             const std::string& modules,
                             const std::string& delivery) {
  const bool has_images = profile == "qwen2_5_omni";
  const auto config = ParseConfig(
      absl::StrCat(
          "sources: [{name: talk, format: jsonl, path: talk.jsonl, media_root: "
          "., max_bad: 1, index: ",
          profile, ".index}]\nmodel: {profile: ", profile,
          has_images ? ", max_pixels: 12544"
                     : ", token_ids: {end_of_text: 300, im_start: 301, im_end: "
                       "302, audio: 303}",
          "}\nbatch: {global: 16, micro: 8}\ntopology: {modules: {", modules,
          "}}\nbalance: {delivery: ", delivery,
          ", cost: {audio: {linear: 2, quadratic: 0.001}, language: {linear: "
          "1}}}\n"
          "serve: {threads: 2, memory: 64MiB, listen: ['unix:/replaced']}\n"),
      "test.yaml", Data(has_images).folder);
  EXPECT_TRUE(config.ok()) << config.status();
  return *config;
}

// What `inspect audio` prints of a clip.
const Json& Inspect(const std::string& profile, const std::string& folder,
                    const Heard& heard) {
  static auto* const known = new std::map<std::string, Json>();
  const std::string key = absl::StrCat(profile, folder, heard.file, " ",
                                       heard.part.start.value_or(-1));
  if (known->contains(key)) return (*known)[key];
  InspectAudioOptions options;
  options.model = profile;
  options.clip = heard.part;
  options.decode = heard.file != "torn.flac";
  std::ostringstream out;
  EXPECT_TRUE(InspectAudio(options, {folder + "/" + heard.file}, out).ok())
      << out.str();
  return (*known)[key] = Json::parse(out.str());
}

class AudioTest : public ::testing::Test {
 protected:
  // Owners depend on which ranks share a server, so all ways have as many.
  TestCluster::Batches Run(const LoadedConfig& config, int servers = 2) {
    const auto cluster = TestCluster::Start(config, servers);
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    if (!cluster.ok()) return {};
    auto batches = (*cluster)->RunRanks(0, kAudioSteps);
    EXPECT_TRUE(batches.ok()) << batches.status();
    return batches.ok() ? *std::move(batches) : TestCluster::Batches();
  }

  const Said& At(const PackedSample& sample) const {
    return data_->samples.at(sample.ordinal);
  }
  const Json& Inspected(const Heard& heard) const {
    return Inspect(profile_, data_->folder, heard);
  }

  // `tail`: rows after those that count.
  void CheckAudio(const PackedBatch& batch, uint64_t tail) {
    const auto features = batch.Get<float>("input_features");
    const auto lengths = batch.Get<int64_t>("audio_feature_lengths");
    const auto cu_rows = batch.Get<int32_t>("audio_cu_rows");
    EXPECT_EQ(cu_rows.size(), lengths.size() + 1);
    EXPECT_EQ(features.size(), cu_rows.back() * 128u);
    size_t clip = 0;
    for (const PackedSample& sample : batch.samples) {
      const Said& said = At(sample);
      EXPECT_EQ(sample.placeholder, said.torn) << sample.name;
      for (const Heard& heard : said.clips) {
        SCOPED_TRACE(absl::StrCat(sample.name, " ", heard.file));
        const Json& wanted = Inspected(heard);
        ASSERT_LT(clip, lengths.size());
        ASSERT_EQ(lengths[clip], wanted["frames"].get<int64_t>());
        EXPECT_EQ(cu_rows[clip + 1] - cu_rows[clip], lengths[clip] + tail);
        const auto rows =
            features.subspan(128 * cu_rows[clip], 128 * lengths[clip]);
        if (said.torn) {
          EXPECT_THAT(rows, Each(0.0f));
        } else {
          EXPECT_EQ(Sha256Hex(absl::MakeConstSpan(
                        reinterpret_cast<const uint8_t*>(rows.data()),
                        rows.size() * sizeof(float))),
                    wanted["features_sha256"].get<std::string>());
        }
        ++clip;
      }
      seen_.insert(sample.ordinal);
    }
    if (batch.dummy_image) {
      ASSERT_EQ(clip + 1, lengths.size());
      EXPECT_THAT(features.subspan(128 * cu_rows[clip]), Each(0.0f));
      ++dummies_;
    } else {
      EXPECT_EQ(clip, lengths.size());
    }
  }

  void CheckLanguage(const PackedBatch& batch) {
    for (size_t i = 0; i < batch.samples.size(); ++i) {
      const PackedSample& sample = batch.samples[i];
      const Said& said = At(sample);
      SCOPED_TRACE(sample.name);
      EXPECT_EQ(sample.placeholder, said.torn);
      const size_t begin = batch.text.cu_seqlens_padded[i];
      const size_t length =
          batch.text.cu_seqlens[i + 1] - batch.text.cu_seqlens[i];
      const auto ids = batch.Get<int64_t>("input_ids").subspan(begin, length);
      const auto mask = batch.Get<float>("loss_mask").subspan(begin, length);
      if (said.torn) {
        EXPECT_EQ(
            std::count(ids.begin(), ids.end(), model_.token_ids().audio()),
            Inspected(said.clips[0])["audio_tokens"].get<int64_t>());
        EXPECT_THAT(mask, Each(0.0f));
        continue;
      }
      std::string question = said.question;
      // As the template of Qwen2-Audio's processor writes its clips.
      const bool numbered = profile_ == "qwen2_audio";
      for (size_t k = 0; k < said.clips.size(); ++k) {
        question.replace(
            question.find("<audio>"), 7,
            absl::StrCat(numbered ? absl::StrCat("Audio ", k + 1, ": ") : "",
                         "<|audio_bos|>[audio*",
                         Inspected(said.clips[k])["audio_tokens"].get<int>(),
                         "]<|audio_eos|>", numbered ? "\n" : ""));
      }
      // 84x56 pixels: 6 tokens.
      if (const size_t image = question.find("<image>");
          image != question.npos) {
        question.replace(image, 7, "[start][image*6][end]");
      }
      if (const size_t line = question.find("\\n"); line != question.npos) {
        question.replace(line, 2, "\n");
      }
      EXPECT_EQ(GetText(model_.token_ids(), ids),
                absl::StrCat("[im_start]user\n", question,
                             "[im_end]\n[im_start]assistant\nA."
                             "[im_end]\n"));
      // "A." and the end of the turn.
      EXPECT_EQ(std::count(mask.begin(), mask.end(), 1.0f), 3);
    }
  }

  void Check(const TestCluster::Batches& batches, uint64_t tail) {
    for (const auto& [key, batch] : batches) {
      switch (std::get<2>(key)) {
        case v1::MODULE_AUDIO:
          CheckAudio(batch, tail);
          break;
        case v1::MODULE_LANGUAGE:
          CheckLanguage(batch);
          break;
        default:
          for (const PackedSample& sample : batch.samples) {
            EXPECT_EQ(sample.placeholder, At(sample).torn) << sample.name;
          }
      }
    }
  }

  void ExpectEqual(const TestCluster::Batches& a,
                   const TestCluster::Batches& b) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [key, batch] : a) {
      EXPECT_EQ(ComputeDigest(batch), ComputeDigest(b.at(key)));
    }
  }

  std::string profile_;
  const DataSet* data_ = nullptr;
  v1::Model model_;
  std::set<uint64_t> seen_;
  int dummies_ = 0;
};

TEST_F(AudioTest, AnEncoderOfAudioBesideLanguage) {
  profile_ = "qwen2_audio";
  data_ = &Data(false);
  constexpr char kModules[] = "audio: {dp: 4}, language: {dp: 2}";
  const LoadedConfig config = MakeAudioConfig(profile_, kModules, "exchange");
  model_ = config.config.model();
  const TestCluster::Batches batches = Run(config);
  ASSERT_FALSE(batches.empty());
  // Convolutions of the encoder see two frames beyond the clip's end.
  Check(batches, 2);
  EXPECT_EQ(seen_.size(), data_->samples.size());
  ExpectEqual(batches, Run(MakeAudioConfig(profile_, kModules, "direct")));
  ExpectEqual(batches, Run(MakeAudioConfig(profile_, kModules, "hybrid")));
}

TEST_F(AudioTest, VisionAndAudioBesideLanguage) {
  profile_ = "qwen2_5_omni";
  data_ = &Data(true);
  for (const char* modules :
       {"vision: {dp: 2}, audio: {dp: 1}, language: {dp: 4}",
        "vision: {dp: 1}, audio: {dp: 8}, language: {dp: 2}",
        "vision: {dp: 4}, audio: {dp: 2}, language: {dp: 2}"}) {
    SCOPED_TRACE(modules);
    const LoadedConfig config = MakeAudioConfig(profile_, modules, "exchange");
    model_ = config.config.model();
    const TestCluster::Batches batches = Run(config);
    ASSERT_FALSE(batches.empty());
    Check(batches, 0);
    EXPECT_EQ(seen_.size(), data_->samples.size());
    seen_.clear();
    ExpectEqual(batches, Run(MakeAudioConfig(profile_, modules, "direct")));
  }
  // Eight ranks of audio share clips that fewer than eight samples have.
  EXPECT_GT(dummies_, 0);
}

// A film, a mute one and a clip, as files of a folder.
std::string MakeFilms() {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/films");
  if (!std::filesystem::create_directories(folder)) return folder;
  WriteAll(folder + "/b.wav", MakeWav(MakePcm("noise", 50'000, 6), 44100, 2));
  const std::string mute =
      MakeVideo("mute.mp4", "96x64", "3", "-c:v libx264 -pix_fmt yuv420p");
  RunFfmpeg(absl::StrCat("-i ", folder, "/b.wav -c:a aac ", folder, "/b.m4a"));
  RunFfmpeg(absl::StrCat("-i ", mute, " -i ", folder,
                         "/b.m4a -map 0:v -map 1:a -c copy ", folder,
                         "/film.mp4"));
  // Copied once more, as the copy into the film has rounded its length to ms.
  RunFfmpeg(absl::StrCat("-i ", folder, "/film.mp4 -vn -c copy ", folder,
                         "/film.m4a"));
  std::filesystem::copy_file(mute, folder + "/mute.mp4");
  return folder;
}

// Three patches of 6 tokens, a second apart, and half a second of audio. In
// every third sample a clip stands before the video.
TEST_F(AudioTest, VideosBringTheirAudio) {
  if (!HasFfmpeg()) GTEST_SKIP() << "no ffmpeg";
  const std::string folder = MakeFilms();
  std::string lines;
  for (int i = 0; i < 5; ++i) {
    lines += Line(R"("video": "film.mp4", )", "<video>?");
    lines += Line(R"("audio": "b.wav", )", "<audio>?");
    lines +=
        Line(R"("video": "film.mp4", "audio": "b.wav", )", "<audio>, <video>?");
  }
  lines += Line("", "Words.");
  lines += Line(R"("video": "mute.mp4", )", "<video>");
  WriteAll(folder + "/talk.jsonl", lines);
  const struct {
    const char* profile;
    const char* before;
    const char* film;  // what is heard follows what is seen at its time
    const char* after;
    bool is_float;
  } cases[] = {
      {"qwen2_5_omni", "<|audio_bos|>", "[video*12][audio*14][video*6]",
       "<|audio_eos|>", false},
      {"qwen3_omni_moe", "<|audio_start|>", "[video*6][audio*7][video*12]",
       "<|audio_end|>", true},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.profile);
    const auto parse = [&](const std::string& delivery) {
      const auto config = ParseConfig(
          absl::StrCat(
              "sources: [{name: talk, format: jsonl, path: talk.jsonl, "
              "media_root: ., max_bad: 1, index: ",
              c.profile, ".index}]\nmodel: {profile: ", c.profile,
              ", video: {use_audio_in_video: true, min_pixels: 784, "
              "max_pixels: 6272}}\n"
              "batch: {global: 16, micro: 8}\n"
              "topology: {modules: {vision: {dp: 2}, audio: {dp: 4}, language: "
              "{dp: 2}}}\nbalance: {delivery: ",
              delivery,
              ", cost: {audio: {linear: 1}, language: {linear: 1}}}\n"
              "serve: {threads: 2, memory: 64MiB, listen: "
              "['unix:/replaced']}\n"),
          "test.yaml", folder);
      EXPECT_TRUE(config.ok()) << config.status();
      return *config;
    };
    const LoadedConfig config = parse("exchange");
    const auto indexed = IndexSources(config, {});
    ASSERT_TRUE(indexed.ok()) << indexed.status();
    std::vector<std::string> reasons;
    for (const BadSample& bad : indexed->at(0).report.bad) {
      reasons.push_back(bad.reason);
    }
    EXPECT_THAT(reasons,
                ElementsAre(HasSubstr("the file has no audio stream")));
    const TestCluster::Batches batches = Run(config);
    ASSERT_FALSE(batches.empty());
    const Json& film = Inspect(c.profile, folder, {"film.m4a"});
    const Json& alone = Inspect(c.profile, folder, {"b.wav"});
    const std::string heard = absl::StrCat(
        c.before, "[audio*", alone["audio_tokens"].get<int>(), "]", c.after);
    const std::string seen =
        absl::StrCat("[start]", c.before, c.film, c.after, "[end]");
    const std::string wanted[] = {absl::StrCat(seen, "?"),
                                  absl::StrCat(heard, "?"),
                                  absl::StrCat(heard, ", ", seen, "?")};
    int both = 0;
    for (const auto& [key, batch] : batches) {
      if (std::get<2>(key) == v1::MODULE_AUDIO) {
        const auto features = batch.Get<float>("input_features");
        const auto cu_rows = batch.Get<int32_t>("audio_cu_rows");
        size_t i = 0;
        for (const PackedSample& sample : batch.samples) {
          if (sample.ordinal == 15) continue;
          std::vector<const Json*> clips = {&alone, &film};
          if (sample.ordinal % 3 == 0) clips = {&film};
          if (sample.ordinal % 3 == 1) clips = {&alone};
          for (const Json* one : clips) {
            ASSERT_LT(i + 1, cu_rows.size());
            const auto rows = features.subspan(
                128 * cu_rows[i], 128 * (cu_rows[i + 1] - cu_rows[i]));
            EXPECT_EQ(Sha256Hex(absl::MakeConstSpan(
                          reinterpret_cast<const uint8_t*>(rows.data()),
                          rows.size() * sizeof(float))),
                      (*one)["features_sha256"].get<std::string>());
            ++i;
          }
        }
      }
      if (std::get<2>(key) != v1::MODULE_LANGUAGE) continue;
      // Patches are whole positions apart here.
      EXPECT_EQ(batch.Get<float>("position_ids").empty(), !c.is_float);
      EXPECT_EQ(batch.Get<int64_t>("position_ids").empty(), c.is_float);
      for (size_t i = 0; i < batch.samples.size(); ++i) {
        const uint64_t ordinal = batch.samples[i].ordinal;
        if (ordinal == 15) continue;
        const size_t length =
            batch.text.cu_seqlens[i + 1] - batch.text.cu_seqlens[i];
        EXPECT_EQ(
            GetText(config.config.model().token_ids(),
                    batch.Get<int64_t>("input_ids")
                        .subspan(batch.text.cu_seqlens_padded[i], length)),
            absl::StrCat("[im_start]user\n", wanted[ordinal % 3],
                         "[im_end]\n[im_start]assistant\nA.[im_end]\n"));
        both += ordinal % 3 == 2;
      }
    }
    EXPECT_GT(both, 0);
    ExpectEqual(batches, Run(parse("direct")));
  }
}

TEST_F(AudioTest, TheIndexRefusesWhatCannotBeHeard) {
  const auto indexed =
      IndexSources(MakeAudioConfig("qwen2_audio",
                                   "audio: {dp: 1}, language: {dp: 1}", "off"),
                   {.rebuild = true});
  ASSERT_TRUE(indexed.ok()) << indexed.status();
  const IndexReport& report = indexed->at(0).report;
  EXPECT_EQ(report.samples, Data(false).samples.size());
  uint64_t clips = 0;
  for (const Said& said : Data(false).samples) clips += said.clips.size();
  EXPECT_EQ(report.media[MediumKind::kAudio], clips);
  EXPECT_EQ(report.media[MediumKind::kVideo], 0u);
  std::vector<std::string> reasons;
  for (const BadSample& bad : report.bad) reasons.push_back(bad.reason);
  EXPECT_THAT(
      reasons,
      ElementsAre(HasSubstr("cut.wav"),
                  AllOf(HasSubstr("audio 0"), HasSubstr("wanted a longer one")),
                  HasSubstr("words.wav"), HasSubstr("gone.wav"),
                  HasSubstr("1 <audio> marks, the sample has 0 images, 0 "
                            "videos, 0 clips"),
                  HasSubstr("the sample has 1 images")));
}

// A model without audio refuses it by name, instead of training on the text
// alone.
TEST_F(AudioTest, AModelWithoutAudioRefusesIt) {
  const auto config = ParseConfig(
      "sources: [{name: talk, format: jsonl, path: talk.jsonl, media_root: ., "
      "index: deaf.index}]\n"
      "batch: {global: 2, micro: 2}\n"
      "topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}\n",
      "test.yaml", Data(false).folder);
  ASSERT_TRUE(config.ok()) << config.status();
  const auto indexed = IndexSources(*config, {});
  ASSERT_TRUE(indexed.ok()) << indexed.status();
  const IndexReport& report = indexed->at(0).report;
  ASSERT_FALSE(report.bad.empty());
  EXPECT_THAT(report.bad[0].reason,
              HasSubstr("audio is not supported for this model.profile"));
  uint64_t silent = 0;
  for (const Said& said : Data(false).samples) silent += said.clips.empty();
  // The line whose `<audio>` is text.
  EXPECT_EQ(report.samples, silent + 1);
}

}  // namespace
}  // namespace ballast
