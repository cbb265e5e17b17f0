// Hashes of whole jobs: their schedules as messages and as JSON, all blocks,
// and the samples and embedding plans of all packed batches. A change of the
// code that is not meant to change what jobs train on leaves them as they are,
// and so does a plan file that was exported from the job. JobHashesTest leaves
// out fingerprints; MediaHashesTest has those of every model of models/, over
// each kind of media that it takes, in several orders.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <xxhash.h>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "client/loader_client.h"
#include "proto/block/block_layout.h"
#include "proto/schedule/schedule_table.h"
#include "server/config/config_loader.h"
#include "server/data/parquet/parquet_file.h"
#include "server/job/index_sources.h"
#include "server/job/job_setup.h"
#include "server/model/profiles.h"
#include "server/schedule/plan_export.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/read_file.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"
#include "tests/server/media/audio/golden_audio.h"

namespace ballast {
namespace {

constexpr uint64_t kHashedSteps = 3;

class Hash {
 public:
  Hash() : state_(XXH3_createState()) { XXH3_64bits_reset(state_); }
  ~Hash() { XXH3_freeState(state_); }
  void Add(const void* data, size_t size) {
    XXH3_64bits_update(state_, data, size);
  }
  void Add(const std::string& text) { Add(text.data(), text.size()); }
  std::string Hex() const {
    return absl::StrFormat("%016x", XXH3_64bits_digest(state_));
  }

 private:
  XXH3_state_t* const state_;
};

std::string WritePicture(const std::string& folder, int number, int width,
                         int height) {
  const std::string name = absl::StrCat(number, ".png");
  const auto tone = static_cast<uint8_t>(40 * (number % 6));
  std::ofstream(folder + "/" + name, std::ios::binary)
      << PlainPicture::Grained(width, height, {tone, 90, 200}, {9, tone, 120},
                               7, number)
             .Encode(FileFormat::kPng, 0);
  return name;
}

// Two sources of JSON lines: "chat", with 0 to 2 images a sample and texts of
// many lengths, and "clips", videos that are lists of pictures, beside images.
const std::string& Data() {
  static const std::string* const folder = [] {
    auto* made = new std::string(::testing::TempDir() + "/hashes");
    std::filesystem::create_directories(*made);
    int pictures = 0;
    const auto list = [&](int count, int width, int height) {
      std::vector<std::string> names;
      for (int k = 0; k < count; ++k) {
        names.push_back(absl::StrCat(
            "\"", WritePicture(*made, pictures++, width, height), "\""));
      }
      return absl::StrJoin(names, ", ");
    };
    const auto turns = [](const std::string& question, int words) {
      std::string answer = "So";
      for (int w = 0; w < words; ++w) absl::StrAppend(&answer, " word", w % 13);
      return absl::StrCat(R"("conversations": [{"from": "human", "value": ")",
                          question, R"("}, {"from": "gpt", "value": ")", answer,
                          R"("}]})", "\n");
    };
    std::ofstream chat(*made + "/chat.jsonl");
    for (int i = 0; i < 60; ++i) {
      std::string question;
      for (int k = 0; k < i % 3; ++k) question += "<image>";
      chat << "{";
      if (i % 3 != 0) {
        chat << "\"images\": ["
             << list(i % 3, 40 + 31 * (i % 7), 60 + 17 * (i % 5)) << "], ";
      }
      chat << turns(question + "What?", i * i % 47);
    }
    std::ofstream clips(*made + "/clips.jsonl");
    for (int i = 0; i < 12; ++i) {
      clips << "{";
      if (i % 2 != 0) clips << "\"images\": [" << list(1, 90, 60) << "], ";
      clips << "\"video\": [" << list(2 + i % 4, 56 + 28 * (i % 3), 84) << "], "
            << turns(i % 2 != 0 ? "<image><video>Who?" : "<video>", i % 11);
    }
    return made;
  }();
  return *folder;
}

struct Job {
  const char* name;
  const char* sources;
  const char* model;
  const char* modules;
  const char* balance;  // beside `delivery`
  const char* more;
  struct Wanted {
    const char* delivery;
    const char* hashes;  // of schedules, blocks and batches
  };
  std::vector<Wanted> wanted;
};

void PrintTo(const Job& job, std::ostream* out) { *out << job.name; }

constexpr char kChat[] =
    "{name: chat, format: jsonl, path: chat.jsonl, media_root: .}";
constexpr char kBoth[] =
    "{name: chat, format: jsonl, path: chat.jsonl, media_root: .}, {name: "
    "clips, format: jsonl, path: clips.jsonl, media_root: ., weight: 2}";
constexpr char kQwen[] = "profile: qwen2_5_vl, max_pixels: 50176";
constexpr char kVideo[] =
    "profile: qwen3_vl, min_pixels: 3136, max_pixels: 50176, video: {fps: 2, "
    "min_frames: 2, max_frames: 6, min_pixels: 4096, max_pixels: 12544}";
constexpr char kTiles[] =
    "rules: transformers, tokenizer: '$TOKENIZER', token_ids: {end_of_text: "
    "7}, chat_template: "
    "llava1_5, mean: [0.5, 0.4, 0.3], std: [0.2, 0.3, 0.4], image_family: "
    "{patch: 14, marks: {placeholder: '<image>'}, rule: best_fit_tiles, tile: "
    "56, merge: 2, max_tiles: 4}";
constexpr char kBothCosts[] =
    "cost: {vision: {linear: 1, quadratic: 0.01}, language: {linear: 3, "
    "quadratic: 0.02}}";

// The default of jobs when the hashes were made.
constexpr char kImageCosts[] = ", cost: {vision: {linear: 1}}";

v1::Role RoleOf(const v1::Job::ModuleSize& module, uint32_t rank) {
  v1::Role role;
  role.set_module(module.module());
  role.set_dp_rank(rank);
  return role;
}

std::string ScheduleHash(LoaderClient* client) {
  Hash hash;
  for (uint64_t step = 0; step < kHashedSteps; ++step) {
    auto schedule = client->GetSchedule(step);
    EXPECT_TRUE(schedule.ok()) << schedule.status();
    if (!schedule.ok()) break;
    schedule->clear_fingerprint();
    hash.Add(schedule->SerializeAsString());
    // Without the number of the source, which came after the first hashes.
    hash.Add(
        absl::StrReplaceAll(ScheduleToJson(*schedule),
                            {{"\"source\":0,", ""}, {"\"source\":1,", ""}}));
  }
  return hash.Hex();
}

std::string BlockHash(LoaderClient* client,
                      const v1::AttachResponse& attached) {
  Hash hash;
  for (const v1::Job::ModuleSize& module : attached.job().modules()) {
    for (uint32_t rank = 0; rank < module.dp(); ++rank) {
      FetchRequest request;
      request.role = RoleOf(module, rank);
      request.steps = kHashedSteps;
      request.fingerprint = attached.fingerprint().hash();
      auto fetcher = client->OpenPull(request);
      EXPECT_TRUE(fetcher.ok()) << fetcher.status();
      if (!fetcher.ok()) continue;
      while (true) {
        const auto block = (*fetcher)->Fetch();
        if (absl::IsOutOfRange(block.status())) break;
        EXPECT_TRUE(block.ok()) << block.status();
        if (!block.ok()) break;
        const absl::Span<const uint8_t> bytes = (*block)->bytes();
        BlockHeader header;
        std::memcpy(&header, bytes.data(), sizeof header);
        header.fingerprint[0] = header.fingerprint[1] = 0;
        hash.Add(&header, sizeof header);
        hash.Add(bytes.data() + sizeof header, bytes.size() - sizeof header);
      }
    }
  }
  return hash.Hex();
}

// Adds a batch's samples, in packing order, and vision's embedding plan.
void AddBatch(const PackedBatch& batch, Hash* hash) {
  for (const std::string& digest : SampleDigests(batch)) hash->Add(digest);
  hash->Add(&batch.dummy_image, 1);
  const EmbeddingPlan& plan = FindPlan(batch.embeddings, v1::MODULE_VISION);
  for (const auto* rows : {&plan.send, &plan.receive, &plan.order}) {
    hash->Add(rows->data(), rows->size() * sizeof(int64_t));
  }
}

// The hashes of schedules, blocks and batches of the first steps.
// `fingerprint`, if not null, gets the job's.
std::string HashJob(const LoadedConfig& config,
                    std::string* fingerprint = nullptr) {
  const auto cluster = StartCluster(config, 2);
  const auto client = LoaderClient::Create(cluster->addresses()[0]);
  const auto attached = client->Attach({}, {});
  EXPECT_TRUE(attached.ok()) << attached.status();
  const auto batches = cluster->RunRanks(0, kHashedSteps);
  EXPECT_TRUE(batches.ok()) << batches.status();
  if (!attached.ok() || !batches.ok()) return "";
  if (fingerprint != nullptr) *fingerprint = attached->fingerprint().hash();
  Hash of_batches;
  for (const auto& [key, batch] : *batches) AddBatch(batch, &of_batches);
  return absl::StrCat(ScheduleHash(client.get()), " ",
                      BlockHash(client.get(), *attached), " ",
                      of_batches.Hex());
}

// `config` with the plan file of its first steps in order.plan.
LoadedConfig WithPlan(LoadedConfig config) {
  const std::string path = Data() + "/plan.parquet";
  const auto job = OpenJob(config);
  EXPECT_TRUE(job.ok()) << job.status();
  if (!job.ok()) return config;
  const auto rows =
      ExportPlan(job->config, *job->scheduler, job->source_pointers(), 0,
                 kHashedSteps - 1, path);
  EXPECT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows.value_or(0), kHashedSteps * 24);
  config.config.mutable_order()->set_plan(path);
  return config;
}

class JobHashesTest : public ::testing::TestWithParam<Job> {};

TEST_P(JobHashesTest, DoNotChange) {
  const Job& job = GetParam();
  const std::string tokenizer =
      std::filesystem::absolute(
          "tests/server/text/testdata/family_chats.tokenizer.json")
          .string();
  for (const Job::Wanted& wanted : job.wanted) {
    TestJob text;
    text.sources = job.sources;
    text.model = absl::StrReplaceAll(job.model, {{"$TOKENIZER", tokenizer}});
    text.batch = "global: 24, micro: 12";
    text.modules = job.modules;
    text.balance = absl::StrCat(
        "delivery: ", wanted.delivery, *job.balance == '\0' ? "" : ", ",
        job.balance,
        absl::StrContains(job.balance, "cost:") ? "" : kImageCosts);
    text.more = job.more;
    const LoadedConfig config = ParseJob(text, Data());
    EXPECT_EQ(HashJob(config), wanted.hashes)
        << job.name << ", " << wanted.delivery;
    if (!CheckParquetIsBuiltIn().ok()) continue;
    EXPECT_EQ(HashJob(WithPlan(config)), wanted.hashes)
        << job.name << ", " << wanted.delivery << ", as a plan file gives it";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, JobHashesTest,
    ::testing::Values(
        Job{"Paired",
            kChat,
            kQwen,
            "vision: {dp: 4}, language: {dp: 2}",
            "",
            "",
            {{"exchange", "3851a5454ccd394b 1ec4684b2825bd50 c9fd87dbf13d1751"},
             {"direct", "3851a5454ccd394b 7645759ec3e3fa4c c9fd87dbf13d1751"},
             {"hybrid", "3851a5454ccd394b ca379a456f0b0074 c9fd87dbf13d1751"},
             {"off", "bdf9b8a8396906df 05af213a3015dd88 f9fe13c0e60a018b"}}},
        Job{"Split",
            kChat,
            kQwen,
            "vision: {dp: 4}, language: {dp: 4}",
            "placement: split, cost: {vision: {linear: 1}, language: "
            "{quadratic: 1}}",
            "",
            {{"exchange", "98bb844c71c7638d fd5d77358bb90111 1be30dea94e1bcdc"},
             {"direct", "98bb844c71c7638d c89f5c466dcc26bc 1be30dea94e1bcdc"},
             {"hybrid", "98bb844c71c7638d 9a08dddfa45c2f38 1be30dea94e1bcdc"},
             {"off", "e3a5cb93f9ec48a6 80241b99b38ff7cb 9b8da191161b7820"}}},
        Job{"SplitPacks",
            kChat,
            kQwen,
            "vision: {dp: 3}, language: {dp: 3}",
            "placement: split",
            "packing: {mode: scheduled, max_tokens_per_rank: 4096}\n",
            {{"exchange", "3fd324ee4659b5e3 cccad5738ea6dd29 0aedaa0c89534aef"},
             {"direct", "3fd324ee4659b5e3 a0f00188d9f10ac3 0aedaa0c89534aef"}}},
        Job{"Phases",
            kChat,
            kQwen,
            "vision: {dp: 2}, language: {dp: 4}",
            "objective: phases, cost: {vision: {linear: 1, quadratic: 0.01}, "
            "language: {linear: 3, quadratic: 0.02}}",
            "",
            {{"exchange", "0783db19428321c5 f6ef0585b04d5e4f 8f382e195cc81fa0"},
             {"hybrid", "0783db19428321c5 733599f0cfe807c7 8f382e195cc81fa0"}}},
        Job{"Packs",
            kChat,
            kQwen,
            "vision: {dp: 2}, language: {dp: 2, cp: 1}",
            "",
            "packing: {mode: scheduled, max_tokens_per_rank: 4096, "
            "encoder_slack: 0}\n",
            {{"exchange", "9ef0088dccfc094b 0cf66113070cd08f 6f57cd174b7ea240"},
             {"direct", "9ef0088dccfc094b 450eb55fa7bf28a9 6f57cd174b7ea240"}}},
        Job{"LptInWindows",
            kChat,
            kQwen,
            "vision: {dp: 3}, language: {dp: 6, pp: 2}",
            "algorithm: lpt, scope: window, window: 2, order: pipeline, "
            "cost: {vision: {linear: 1}, language: {linear: 2}}",
            "",
            {{"exchange",
              "598f7dc2a2cea667 5a5e790f8ea33490 30532e6321735158"}}},
        Job{"Videos",
            kBoth,
            kVideo,
            "vision: {dp: 2}, language: {dp: 4}",
            kBothCosts,
            "",
            {{"exchange", "6a5ff03470dc468b 589f0c34bca14d79 b28093180fd6fb4b"},
             {"direct", "6a5ff03470dc468b 8d1b4af86ce51612 b28093180fd6fb4b"}}},
        Job{"Tiles",
            kChat,
            kTiles,
            "vision: {dp: 6}, language: {dp: 3}",
            "",
            "",
            {{"exchange",
              "ed1f185b5f9772e5 946794de784be3bd 6562cc630d70bc38"}}},
        Job{"VisionAlone",
            kChat,
            kQwen,
            "vision: {dp: 12}",
            "",
            "",
            {{"exchange",
              "c2da3d889133f030 8cf05abb73c2eabe dabcf3ad9969a2fa"}}}),
    [](const auto& info) { return info.param.name; });

// A line for each job: its name, fingerprint, and hashes as HashJob gives them.
constexpr char kMediaHashes[] = "tests/integration/testdata/media_hashes.txt";

// The kinds of media that a model takes, as far as samples differ by them.
struct Takes {
  bool images = false;
  bool videos = false;
  bool lists = false;  // of pictures, as videos
  bool both = false;   // images beside videos
  bool clips = false;
  bool films = false;  // the audio of videos (model.video.use_audio_in_video)
};

// 16 samples of images, videos and clips, in several orders, as media.jsonl of
// a folder of its own.
std::string WriteMedia(const std::string& name, const Takes& takes) {
  std::string folder = absl::StrCat(::testing::TempDir(), "/", name);
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file("tests/integration/testdata/film.mov",
                             folder + "/film.mov");
  for (int i = 0; i < 4; ++i) WritePicture(folder, i, 60 + 40 * i, 90 - 9 * i);
  for (int i = 4; i < 8; ++i) WritePicture(folder, i, 84, 56);
  const auto write_clip = [&](const char* clip, int samples, uint64_t seed) {
    std::ofstream(absl::StrCat(folder, "/", clip), std::ios::binary)
        << MakeWav(MakePcm("speech", samples, seed), 16000, 1);
  };
  write_clip("a.wav", 36'001, 5);
  write_clip("b.wav", 20'000, 6);
  std::ofstream lines(folder + "/media.jsonl");
  int count = 0;
  const auto add = [&](const std::string& media, const std::string& question) {
    lines << "{" << media << R"("conversations": [{"from": "human", "value": ")"
          << question << R"("}, {"from": "gpt", "value": "It is number )"
          << count++ << R"(, in all."}]})"
          << "\n";
  };
  const auto add_parts = [&](const std::string& part) {
    lines << R"({"messages": [{"role": "user", "content": [)" << part
          << R"(, {"type": "text", "text": "Q"}]}, {"role": "assistant", )"
          << R"("content": "Part )" << count++ << R"("}]})"
          << "\n";
  };
  add("", "Words.");
  if (takes.images) {
    add(R"("image": "1.png", )", "<image>\\nWhat?");
    add(R"("images": ["2.png", "0.png", "3.png"], )",
        "<image> and <image>, or<image>?");
  }
  if (takes.videos) {
    add(R"("video": "film.mov", )", "<video>\\nWho?");
    add_parts(
        R"({"type": "video", "video": "film.mov", "start": 0.3, "end": 1.4})");
  }
  if (takes.videos && takes.both) {
    add(R"("video": "film.mov", "images": ["1.png", "2.png"], )",
        "<image><video><image> Which?");
    add(R"("videos": ["film.mov", "film.mov"], "image": "0.png", )",
        "See <video>, then <image> and <video>.");
  }
  if (takes.lists && !takes.films) {
    add(R"("video": ["4.png", "5.png", "6.png", "7.png"], )", "<video> Where?");
  }
  if (takes.clips) {
    add(R"("audio": "a.wav", )", "<audio>\\nWhy?");
    add(R"("audios": ["b.wav", "a.wav"], )", "<audio> or <audio>?");
    add_parts(
        R"({"type": "audio", "audio": "a.wav", "start": 0.25, "end": 1.5})");
  }
  if (takes.clips && takes.images) {
    add(R"("image": "1.png", "audios": ["a.wav", "b.wav"], )",
        "<audio><image>, <audio>");
  }
  if (takes.clips && takes.videos) {
    add(R"("video": "film.mov", "audios": ["a.wav", "b.wav"], )",
        "<audio>, <video>, <audio>?");
    add(R"("image": "1.png", "video": "film.mov", "audio": "b.wav", )",
        "<video> <audio> <image>");
  }
  while (count < 16) add("", absl::StrCat("Words ", count, "."));
  return folder;
}

// The line of a job over `folder`, in which every sample is sound.
std::string MediaLine(const std::string& name, const std::string& folder,
                      const std::string& source, const std::string& model,
                      const std::string& modules) {
  TestJob text;
  text.sources =
      absl::StrCat("{name: media, format: jsonl, media_root: ., ", source, "}");
  text.model = model;
  text.batch = "global: 16, micro: 8, max_tokens: 16384";
  text.modules = modules;
  text.balance = "delivery: exchange";
  const LoadedConfig config = ParseJob(text, folder);
  const auto indexed = IndexSources(config, {});
  EXPECT_TRUE(indexed.ok()) << name << ": " << indexed.status();
  if (!indexed.ok()) return "";
  for (const BadSample& bad : indexed->at(0).report.bad) {
    ADD_FAILURE() << name << ", line " << bad.key << ": " << bad.reason;
  }
  std::string fingerprint;
  const std::string hashes = HashJob(config, &fingerprint);
  return absl::StrCat(name, " ", fingerprint, " ", hashes);
}

// Keys of model for a profile without ids of its own: a tokenizer of bytes that
// has the tokens of its chat and of its media.
std::string OtherTokens(const std::string& name,
                        const v1::ModelProfile& profile) {
  nlohmann::json tokenizer =
      ReadJsonOrFail("tests/server/text/testdata/family_chats.tokenizer.json");
  nlohmann::json& added = tokenizer["added_tokens"];
  std::set<std::string> known = {"<tool_call>"};
  int32_t id = 0;
  for (const nlohmann::json& token : added) {
    known.insert(token["content"].get<std::string>());
    id = std::max(id, token["id"].get<int32_t>() + 1);
  }
  const std::string all = profile.DebugString();
  const std::regex token(R"(<[^<> \\"]+>|\[[A-Z_]+\])");
  for (std::sregex_iterator at(all.begin(), all.end(), token), end; at != end;
       ++at) {
    if (!known.insert(at->str()).second) continue;
    nlohmann::json more = added[0];
    more["id"] = id++;
    more["content"] = at->str();
    added.push_back(more);
  }
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/", name, ".tokenizer.json");
  std::ofstream(path) << tokenizer.dump();
  return absl::StrCat("tokenizer: '", path, "', token_ids: {end_of_text: 7}",
                      HasChat(profile) || !profile.chat_template().empty()
                          ? ""
                          : ", chat_template: chatml");
}

TEST(MediaHashesTest, DoNotChange) {
  std::string found;
  for (const std::string& name : ProfileNames()) {
    SCOPED_TRACE(name);
    const v1::ModelProfile& profile = *FindProfile(name);
    std::string model = absl::StrCat("profile: ", name);
    if (IsEncoder(profile)) continue;  // no job has it alone
    Takes takes;
    takes.images = TakesImages(profile);
    takes.videos = profile.has_videos();
    takes.both = profile.videos().rule() != v1::Videos::RULE_LLAVA_VIDEO;
    takes.lists = takes.videos &&
                  profile.videos().rule() != v1::Videos::RULE_LLAVA_VIDEO &&
                  profile.videos().rule() != v1::Videos::RULE_INTERNVL;
    takes.clips = profile.has_audio();
    std::vector<std::string> modules = {"language: {dp: 2}"};
    if (takes.images) modules.push_back("vision: {dp: 2}");
    if (takes.clips) modules.push_back("audio: {dp: 2}");
    // Models with ids of their own have bytes as tokens.
    if (!profile.token_ids().has_image() && !profile.token_ids().has_audio()) {
      absl::StrAppend(&model, ", ", OtherTokens(name, profile));
    }
    absl::StrAppend(
        &found,
        MediaLine(name, WriteMedia(name, takes), "path: media.jsonl", model,
                  absl::StrJoin(modules, ", ")),
        "\n");
    if (!takes.videos || !profile.audio().has_in_video()) continue;
    takes.films = true;
    absl::StrAppend(
        &found,
        MediaLine(name + "+films", WriteMedia(name + "+films", takes),
                  "path: media.jsonl",
                  model + ", video: {use_audio_in_video: true}",
                  absl::StrJoin(modules, ", ")),
        "\n");
  }
  // Pairs, and fields beside videos.
  Takes takes;
  takes.images = takes.videos = takes.lists = takes.both = true;
  const std::string folder = WriteMedia("others", takes);
  std::ofstream pairs(folder + "/pairs.jsonl");
  for (int i = 0; i < 16; ++i) {
    pairs << R"({"prompt": [{"role": "user", "content": ")"
          << (i % 3 == 0 ? "" : "<image>") << R"(Which?"}], "chosen": "This.")"
          << R"(, "rejected": ")" << std::string(1 + i, 'n') << "\"";
    if (i % 3 != 0) pairs << R"(, "image": ")" << i % 4 << R"(.png")";
    pairs << "}\n";
  }
  pairs.close();
  constexpr char kModules[] = "vision: {dp: 2}, language: {dp: 2}";
  absl::StrAppend(
      &found,
      MediaLine("qwen2_5_vl+pairs", folder, "path: pairs.jsonl, pairs: true",
                "profile: qwen2_5_vl", kModules),
      "\n",
      MediaLine("qwen3_vl+fields", folder,
                "path: media.jsonl, fields: {reward: {type: float32, default: "
                "-1.5}, part: {type: int32, per: turn, default: 7}}",
                "profile: qwen3_vl", kModules),
      "\n");
  EXPECT_EQ(found, ReadFile(kMediaHashes));
}

}  // namespace
}  // namespace ballast
