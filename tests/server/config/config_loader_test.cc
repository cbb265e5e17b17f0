#include "server/config/config_loader.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "server/settings/source_fields.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSmallest[] = R"(
sources: [{name: docs, format: webdataset, path: "docs-*.tar"}]
batch: {global: 8, micro: 4}
topology: {modules: {vision: {dp: 2}, language: {}}}
)";

v1::Config LoadYaml(const std::string& yaml) {
  const auto loaded = ParseConfig(yaml, "F", "/etc/ballast");
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? loaded->config : v1::Config();
}

// An example with every section and three security files.
constexpr char kDesign[] = R"(
sources:
  - {name: docs, format: webdataset, path: "data/docs-{000..007}.tar", weight: 3}
  - {name: chat, format: jsonl, path: data/chat.jsonl, media_root: data, weight: 1}
  # {name: mock, format: mock, lengths: {mode: lognormal, min: 1024, max: 8192, mean: 4096, sigma: 1.1}}
order: {seed: 1234, shuffle: true}
model: {profile: qwen2_5_vl, tokenizer: data/tokenizer.json, chat_template: chatml, min_pixels: 3136, max_pixels: 1003520}
       # profiles: qwen2_vl, qwen2_5_vl, qwen3_vl, qwen3_5_vl, or patch, merge, mean, std, token ids given one by one; tokenizer: a file or `bytes`
batch: {global: 64, micro: 32, max_tokens: 4096, on_too_long: error}      # or truncate_text, skip
topology:
  modules: {vision: {dp: 4, tp: 1, pp: 1, cp: 1}, language: {dp: 4, tp: 1, pp: 1, cp: 1}}
  colocated: true
  servers: [{address: "unix:/run/ballast/a.sock", ranks: {vision: "0-3", language: "0-3"}}]
balance: {delivery: exchange, algorithm: refined, scope: micro_batch, window: 1, equal_count: false, align_images: true,
          cost: {vision: {linear: 1.0, quadratic: 0.0}, language: {linear: 0.0, quadratic: 0.0}}}
packing: {mode: shard, max_tokens_per_rank: 8192, align: auto}
serve: {listen: ["unix:/run/ballast/a.sock"], http: "127.0.0.1:9464", threads: auto, memory: 8GiB, prefetch_steps: 4,
        on_bad_sample: placeholder, max_bad_samples: 100}
security: {tls: {cert: tls/server.pem, key: tls/server.key, client_ca: /ca.pem}, tokens_file: tokens}
)";

TEST(LoadConfig, ReadsFieldsByTheirTypeAlone) {
  const v1::Config config = LoadYaml(R"(
sources: [{name: a, format: jsonl, path: a, fields: {channel: int32, advantage: {type: float32, per: token, default: 0.5}}}]
batch: {global: 8, micro: 4}
topology: {modules: {language: {}}}
)");
  const auto& fields = config.sources(0).fields();
  ASSERT_EQ(fields.size(), 2u);
  EXPECT_EQ(fields.at("channel").type(), v1::Source::Field::TYPE_INT32);
  EXPECT_EQ(fields.at("channel").per(), v1::Source::Field::PER_SAMPLE);
  EXPECT_FALSE(fields.at("channel").has_default_());
  EXPECT_EQ(fields.at("advantage").type(), v1::Source::Field::TYPE_FLOAT32);
  EXPECT_EQ(fields.at("advantage").per(), v1::Source::Field::PER_TOKEN);
  EXPECT_EQ(fields.at("advantage").default_(), 0.5);
  const std::vector<v1::Job::Field> job = GetJobFields(config);
  ASSERT_EQ(job.size(), 2u);
  EXPECT_EQ(job[0].name(), "advantage");
  EXPECT_EQ(job[1].name(), "channel");
  EXPECT_EQ(FieldsKey(config.sources(0)),
            "field advantage float32 per token default 0.5\n"
            "field channel int32 per sample\n");
}

TEST(LoadConfig, ReadsAnExampleWithEverySection) {
  const v1::Config config = LoadYaml(kDesign);

  ASSERT_EQ(config.sources_size(), 2);
  const v1::Source& docs = config.sources(0);
  EXPECT_EQ(docs.name(), "docs");
  EXPECT_EQ(docs.format(), v1::Source::FORMAT_WEBDATASET);
  EXPECT_EQ(docs.path(), "data/docs-{000..007}.tar");
  EXPECT_EQ(docs.weight(), 3);
  EXPECT_EQ(docs.index(), "/etc/ballast/.ballast/docs-*.index");
  EXPECT_FALSE(docs.has_lengths());
  const v1::Source& chat = config.sources(1);
  EXPECT_EQ(chat.name(), "chat");
  EXPECT_EQ(chat.format(), v1::Source::FORMAT_JSONL);
  EXPECT_EQ(chat.path(), "data/chat.jsonl");
  EXPECT_THAT(chat.media_root(), ElementsAre("data"));
  EXPECT_EQ(chat.weight(), 1);
  EXPECT_EQ(chat.index(), "/etc/ballast/.ballast/chat-*.index");

  EXPECT_EQ(config.order().seed(), 1234u);
  EXPECT_TRUE(config.order().shuffle());

  const v1::Model& model = config.model();
  EXPECT_EQ(model.profile(), "qwen2_5_vl");
  EXPECT_EQ(model.tokenizer(), "/etc/ballast/data/tokenizer.json");
  EXPECT_EQ(model.chat_template(), "chatml");
  EXPECT_EQ(model.min_pixels(), 3136u);
  EXPECT_EQ(model.max_pixels(), 1003520u);
  EXPECT_EQ(model.patch(), 14u);
  EXPECT_EQ(model.merge(), 2u);
  EXPECT_EQ(model.temporal_patch(), 2u);
  EXPECT_THAT(model.mean(), ElementsAre(0.48145466, 0.4578275, 0.40821073));
  EXPECT_THAT(model.std(), ElementsAre(0.26862954, 0.26130258, 0.27577711));
  EXPECT_EQ(model.token_ids().image(), 151655);
  EXPECT_EQ(model.token_ids().pad(), 151643);
  EXPECT_EQ(model.position_axes(), 3u);
  EXPECT_EQ(model.resample(), v1::Model::RESAMPLE_EXACT);
  EXPECT_FALSE(model.exif_orientation());

  EXPECT_EQ(config.batch().global(), 64u);
  EXPECT_EQ(config.batch().micro(), 32u);
  EXPECT_EQ(config.batch().max_tokens(), 4096u);
  EXPECT_EQ(config.batch().on_too_long(), v1::Batch::ON_TOO_LONG_ERROR);

  const v1::Topology& topology = config.topology();
  ASSERT_EQ(topology.modules().size(), 2u);
  for (const char* name : {"vision", "language"}) {
    const v1::Topology::Module& module = topology.modules().at(name);
    EXPECT_EQ(module.dp(), 4u);
    EXPECT_EQ(module.tp(), 1u);
    EXPECT_EQ(module.pp(), 1u);
    EXPECT_EQ(module.cp(), 1u);
    EXPECT_FALSE(module.sequence_parallel());
  }
  EXPECT_TRUE(topology.colocated());
  ASSERT_EQ(topology.servers_size(), 1);
  EXPECT_EQ(topology.servers(0).address(), "unix:/run/ballast/a.sock");
  EXPECT_EQ(topology.servers(0).ranks().size(), 2u);
  EXPECT_EQ(topology.servers(0).ranks().at("vision"), "0-3");
  EXPECT_EQ(topology.servers(0).ranks().at("language"), "0-3");

  const v1::Balance& balance = config.balance();
  EXPECT_EQ(balance.delivery(), v1::DELIVERY_EXCHANGE);
  EXPECT_EQ(balance.algorithm(), v1::Balance::ALGORITHM_REFINED);
  EXPECT_EQ(balance.scope(), v1::Balance::SCOPE_MICRO_BATCH);
  EXPECT_EQ(balance.window(), 1u);
  EXPECT_FALSE(balance.equal_count());
  EXPECT_TRUE(balance.align_images());
  EXPECT_EQ(balance.skip_below(), 0);
  EXPECT_EQ(balance.order(), v1::Balance::ORDER_NATURAL);
  EXPECT_EQ(balance.cost().vision().linear(), 1);
  EXPECT_EQ(balance.cost().vision().quadratic(), 0);
  EXPECT_EQ(balance.cost().language().linear(), 0);
  EXPECT_EQ(balance.cost().language().quadratic(), 0);

  EXPECT_EQ(config.packing().mode(), v1::Packing::MODE_SHARD);
  EXPECT_EQ(config.packing().max_tokens_per_rank(), 8192u);
  EXPECT_EQ(config.packing().align(), 0u);

  const v1::Serve& serve = config.serve();
  EXPECT_THAT(serve.listen(), ElementsAre("unix:/run/ballast/a.sock"));
  EXPECT_EQ(serve.http(), "127.0.0.1:9464");
  EXPECT_EQ(serve.threads(), 0u);
  EXPECT_EQ(serve.memory(), uint64_t{8} << 30);
  EXPECT_EQ(serve.prefetch_steps(), 4u);
  EXPECT_EQ(serve.on_bad_sample(), v1::Serve::ON_BAD_SAMPLE_PLACEHOLDER);
  EXPECT_EQ(serve.max_bad_samples(), 100u);

  EXPECT_EQ(config.security().tls().cert(), "/etc/ballast/tls/server.pem");
  EXPECT_EQ(config.security().tls().key(), "/etc/ballast/tls/server.key");
  EXPECT_EQ(config.security().tls().client_ca(), "/ca.pem");
  EXPECT_EQ(config.security().tokens_file(), "/etc/ballast/tokens");
}

TEST(LoadConfig, OneRootStandsForAListOfIt) {
  const auto roots = [](const std::string& value) {
    const v1::Config config = LoadYaml(absl::StrCat(
        "sources: [{name: a, format: jsonl, path: a.jsonl, media_root: ", value,
        "}]\nbatch: {global: 4, micro: 4, max_tokens: 64}\ntopology: {modules: "
        "{vision: {dp: 1}, language: {dp: 1}}}\n"));
    return std::vector<std::string>(config.sources(0).media_root().begin(),
                                    config.sources(0).media_root().end());
  };
  EXPECT_THAT(roots("a"), ElementsAre("a"));
  EXPECT_THAT(roots("[a]"), ElementsAre("a"));
  EXPECT_THAT(roots("[a, /b, \"s3://b/c\"]"),
              ElementsAre("a", "/b", "s3://b/c"));
}

// Apart from paths and addresses the example only states defaults.
TEST(LoadConfig, DefaultsAreThoseOfTheExample) {
  v1::Config want = LoadYaml(kDesign);
  want.clear_security();
  want.mutable_serve()->clear_http();
  want.mutable_serve()->set_listen(0, "127.0.0.1:7070");
  want.mutable_topology()->mutable_servers(0)->set_address("127.0.0.1:7070");
  want.mutable_model()->set_tokenizer("bytes");
  want.mutable_model()->set_max_pixels(12845056);
  want.mutable_sources(1)->set_media_root(0, ".");
  // Those of the example are by hand.
  *want.mutable_balance()->mutable_cost() =
      LoadYaml(kSmallest).balance().cost();
  want.mutable_sources(0)->set_weight(1);
  const v1::Config got = LoadYaml(R"(
sources:
  - {name: docs, format: webdataset, path: "data/docs-{000..007}.tar"}
  - {name: chat, format: jsonl, path: data/chat.jsonl}
batch: {global: 64, micro: 32}
topology: {modules: {vision: {dp: 4}, language: {dp: 4}}}
)");
  std::string differences;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&differences);
  EXPECT_TRUE(differencer.Compare(want, got)) << differences;
}

TEST(LoadConfig, TheDefaultServerReadsForAllRanks) {
  const v1::Config config = LoadYaml(
      std::string(kSmallest) + "serve: {listen: [\"unix:/a\", \"unix:/b\"]}");
  ASSERT_EQ(config.topology().servers_size(), 1);
  const v1::Topology::Server& server = config.topology().servers(0);
  EXPECT_EQ(server.address(), "unix:/a");
  EXPECT_EQ(server.ranks().size(), 2u);
  EXPECT_EQ(server.ranks().at("vision"), "0-1");
  EXPECT_EQ(server.ranks().at("language"), "0");
  EXPECT_EQ(config.topology().modules().at("language").dp(), 1u);
}

TEST(LoadConfig, TheDefaultServerIsAtTheAddressThatReplacesTheFiles) {
  const auto loaded = ParseConfig(kSmallest, "test", "", {"unix:/c", "b:1"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.topology().servers(0).address(), "unix:/c");
}

TEST(LoadConfig, ZeroAndFalseAreNotTreatedAsMissing) {
  const v1::Config config = LoadYaml(absl::StrCat(kSmallest, R"(
order: {seed: 0, shuffle: false}
model: {token_ids: {pad: 0}}
balance: {align_images: false, cost: {vision: {linear: 0, quadratic: 1e-9}}}
packing: {align: 0}
serve: {threads: 0, prefetch_steps: 0, max_bad_samples: 0}
)"));
  EXPECT_EQ(config.order().seed(), 0u);
  EXPECT_FALSE(config.order().shuffle());
  EXPECT_EQ(config.model().token_ids().pad(), 0);
  EXPECT_EQ(config.model().token_ids().end_of_text(), 151643);
  EXPECT_FALSE(config.balance().align_images());
  EXPECT_EQ(config.balance().cost().vision().linear(), 0);
  EXPECT_EQ(config.balance().cost().vision().quadratic(), 1e-9);
  EXPECT_EQ(config.packing().align(), 0u);
  EXPECT_EQ(config.serve().threads(), 0u);
  EXPECT_EQ(config.serve().prefetch_steps(), 0u);
  EXPECT_EQ(config.serve().max_bad_samples(), 0u);
}

TEST(LoadConfig, ReadsWhosePixelsAreWanted) {
  const auto resample = [](const std::string& name) {
    return LoadYaml(
               absl::StrCat(kSmallest, "\nmodel: {resample: ", name, "}\n"))
        .model()
        .resample();
  };
  EXPECT_EQ(resample("pillow12"), v1::Model::RESAMPLE_EXACT);
  EXPECT_EQ(resample("pillow13"), v1::Model::RESAMPLE_PILLOW13);
  EXPECT_EQ(resample("torchvision"), v1::Model::RESAMPLE_TORCHVISION);
}

TEST(LoadConfig, ReadsWhereImagesAreDecoded) {
  const auto load = [](const std::string& model) {
    return LoadYaml(absl::StrCat(kSmallest, "\nmodel: ", model, "\n")).model();
  };
  EXPECT_EQ(load("{}").decode(), v1::Model::DECODE_HOST);
  EXPECT_FALSE(load("{}").device_unchecked());
  EXPECT_EQ(load("{decode: device}").decode(), v1::Model::DECODE_DEVICE);
  EXPECT_EQ(load("{decode: device, resample: exact}").resample(),
            v1::Model::RESAMPLE_PILLOW12);
  EXPECT_EQ(load("{decode: device, resample: torchvision}").resample(),
            v1::Model::RESAMPLE_TORCHVISION);
  EXPECT_EQ(load("{decode: device, resample: pillow13}").resample(),
            v1::Model::RESAMPLE_PILLOW13);
  EXPECT_TRUE(
      load("{decode: device, device_unchecked: true}").device_unchecked());
  EXPECT_EQ(load("{decode: device}").device_share(), 1);
  EXPECT_EQ(load("{decode: device, device_share: 0.8}").device_share(), 0.8);
  EXPECT_EQ(load("{decode: device, device_share: 0}").device_share(), 0);
}

TEST(LoadConfig, ReadsEveryFeatureThatCanBeConfigured) {
  const v1::Config config = LoadYaml(R"(
sources:
  - {name: drawn, format: mock, lengths: {mode: lognormal, min: 1024, max: 8192, mean: 4096, sigma: 1.1}}
  - {name: listed, format: mock, lengths: {mode: file, path: lengths.csv}, index: /var/listed.index}
order: {seed: 18446744073709551615}
model: {profile: qwen3_5_vl, chat_template: llama3, position_axes: 1, resample: fast, exif_orientation: true}
batch: {global: 12, micro: 6, on_too_long: truncate_text}
topology:
  modules:
    vision: {dp: 2}
    language: {dp: 3, tp: 2, pp: 2, cp: 2, sequence_parallel: true}
  colocated: false
  servers:
    - {address: "node-a:7070", ranks: {vision: 0, language: "0, 2"}}
    - {address: "[::1]:7071", ranks: {vision: "1", language: "1"}}
balance: {delivery: hybrid, algorithm: lpt, scope: window, window: 2, equal_count: true,
          skip_below: 0.05, order: pipeline, cost: {language: {quadratic: 0.5}},
          cost_changes: [{step: 1000, cost: {vision: {linear: 0.25}, language: {linear: 2, quadratic: 1e-5}}},
                         {step: 18446744073709551615, cost: {language: {linear: 3}}}]}
packing: {mode: scheduled, max_tokens_per_rank: 2048, align: 16}
serve: {listen: ["0.0.0.0:7070"], memory: 1.5GiB, threads: 12, on_bad_sample: error}
security: {tls: {cert: c, key: k, client_ca: a}}
)");
  const v1::Source::Lengths& drawn = config.sources(0).lengths();
  EXPECT_EQ(drawn.mode(), v1::Source::Lengths::MODE_LOGNORMAL);
  EXPECT_EQ(drawn.min(), 1024u);
  EXPECT_EQ(drawn.max(), 8192u);
  EXPECT_EQ(drawn.mean(), 4096);
  EXPECT_EQ(drawn.sigma(), 1.1);
  EXPECT_EQ(config.sources(1).lengths().mode(), v1::Source::Lengths::MODE_FILE);
  EXPECT_EQ(config.sources(1).lengths().path(), "/etc/ballast/lengths.csv");
  EXPECT_EQ(config.sources(1).index(), "/var/listed.index");
  EXPECT_EQ(config.order().seed(), ~uint64_t{0});
  EXPECT_EQ(config.model().chat_template(), "llama3");
  EXPECT_EQ(config.model().position_axes(), 1u);
  EXPECT_EQ(config.model().resample(), v1::Model::RESAMPLE_FAST);
  EXPECT_TRUE(config.model().exif_orientation());
  EXPECT_EQ(config.model().patch(), 16u);
  EXPECT_EQ(config.model().tokenizer(), "bytes");
  EXPECT_EQ(config.batch().on_too_long(), v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT);
  EXPECT_TRUE(config.topology().modules().at("language").sequence_parallel());
  EXPECT_FALSE(config.topology().colocated());
  EXPECT_EQ(config.topology().servers(0).ranks().at("vision"), "0");
  EXPECT_EQ(config.topology().servers(0).ranks().at("language"), "0, 2");
  EXPECT_EQ(config.balance().delivery(), v1::DELIVERY_HYBRID);
  EXPECT_EQ(config.balance().algorithm(), v1::Balance::ALGORITHM_LPT);
  EXPECT_EQ(config.balance().scope(), v1::Balance::SCOPE_WINDOW);
  EXPECT_EQ(config.balance().window(), 2u);
  EXPECT_TRUE(config.balance().equal_count());
  EXPECT_EQ(config.balance().skip_below(), 0.05);
  EXPECT_EQ(config.balance().order(), v1::Balance::ORDER_PIPELINE);
  EXPECT_EQ(config.balance().cost().vision().linear(), 1);
  EXPECT_EQ(config.balance().cost().language().quadratic(), 0.5);
  ASSERT_EQ(config.balance().cost_changes_size(), 2);
  const auto& change = config.balance().cost_changes(0);
  EXPECT_EQ(change.step(), 1000u);
  EXPECT_EQ(change.cost().vision().linear(), 0.25);
  EXPECT_EQ(change.cost().language().linear(), 2);
  EXPECT_EQ(change.cost().language().quadratic(), 1e-5);
  const auto& last = config.balance().cost_changes(1);
  EXPECT_EQ(last.step(), ~uint64_t{0});
  EXPECT_EQ(last.cost().vision().linear(), 1);
  EXPECT_EQ(last.cost().language().quadratic(), 0);
  EXPECT_EQ(config.packing().mode(), v1::Packing::MODE_SCHEDULED);
  EXPECT_EQ(config.packing().align(), 16u);
  EXPECT_EQ(config.serve().memory(), uint64_t{3} << 29);
  EXPECT_EQ(config.serve().threads(), 12u);
  EXPECT_EQ(config.serve().on_bad_sample(), v1::Serve::ON_BAD_SAMPLE_ERROR);
}

TEST(LoadConfig, AModelNeedsNoProfile) {
  const v1::Config config = LoadYaml(absl::StrCat(kSmallest, R"(
model:
  {profile: "", min_pixels: 1, max_pixels: 2, patch: 3, merge: 4, temporal_patch: 5,
   mean: [0.1, -0.2, 0], std: [1, 2, 3], position_axes: 1,
   token_ids: {image: 1, video: 2, vision_start: 3, vision_end: 4, im_start: 5, im_end: 6, end_of_text: 7, pad: 0}}
)"));
  EXPECT_EQ(config.model().profile(), "");
  EXPECT_EQ(config.model().patch(), 3u);
  EXPECT_THAT(config.model().mean(), ElementsAre(0.1, -0.2, 0));
  EXPECT_EQ(config.model().token_ids().pad(), 0);
}

// Those of docs/schedule.md.
TEST(LoadConfig, CostsFollowFromTheModel) {
  const auto load = [](absl::string_view more) {
    const auto loaded =
        ParseConfig(absl::StrCat(kSmallest, more), "F", "/etc/ballast");
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.value_or(LoadedConfig());
  };
  for (const char* more :
       {"", "balance: {cost: {}}\n", "balance: {cost: {model: auto}}\n"}) {
    const LoadedConfig loaded = load(more);
    const v1::Balance::Cost& cost = loaded.config.balance().cost();
    EXPECT_EQ(cost.vision().linear(), 3.883);
    EXPECT_EQ(cost.vision().quadratic(), 6.144e-5);
    EXPECT_EQ(cost.language().linear(), 42.42);
    EXPECT_EQ(cost.language().quadratic(), 6.021e-4);
    EXPECT_FALSE(cost.has_audio());
    EXPECT_EQ(cost.model(), "");
    EXPECT_THAT(loaded.costs, HasSubstr("as of Qwen2.5-VL-7B"));
  }
  // A module's backward pass is no coefficient.
  EXPECT_EQ(load("balance: {cost: {vision: {backward: none}}}\n")
                .config.balance()
                .cost()
                .vision()
                .linear(),
            3.883);
  // A profile without a checkpoint.
  const LoadedConfig other = load("model: {profile: glm4v}\n");
  EXPECT_EQ(other.config.balance().cost().language().linear(), 42.42);
  EXPECT_THAT(other.costs, HasSubstr("7 billion parameters"));
}

// Configurations that state costs keep theirs, and their fingerprints.
TEST(LoadConfig, CostsByHandStayAsTheyAre) {
  const auto loaded = ParseConfig(
      absl::StrCat(kSmallest,
                   "balance: {cost: {vision: {quadratic: 0.5}},\n"
                   "          cost_changes: [{step: 9, cost: {}}]}\n"),
      "F", "/etc/ballast");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const v1::Balance& balance = loaded->config.balance();
  EXPECT_EQ(balance.cost().vision().linear(), 1);
  EXPECT_EQ(balance.cost().vision().quadratic(), 0.5);
  EXPECT_EQ(balance.cost().language().linear(), 0);
  EXPECT_EQ(loaded->costs, "as the configuration says");
  // Each entry has rules of its own.
  EXPECT_EQ(balance.cost_changes(0).cost().language().linear(), 42.42);
}

TEST(LoadConfig, CostsFollowFromTheCheckpointBesideTheTokenizer) {
  const std::string folder = testing::TempDir() + "/checkpoint";
  mkdir(folder.c_str(), 0700);
  std::ofstream(folder + "/config.json") << R"({
      "model_type": "qwen2_5_vl", "hidden_size": 2048, "num_hidden_layers": 36,
      "num_attention_heads": 16, "num_key_value_heads": 2,
      "intermediate_size": 11008, "vocab_size": 151936,
      "vision_config": {"depth": 32, "hidden_size": 1280, "in_chans": 3,
        "intermediate_size": 3420, "out_hidden_size": 2048, "patch_size": 14,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31]}})";
  const auto load = [&](absl::string_view more) {
    const auto loaded =
        ParseConfig(absl::StrCat(kSmallest, "model: {tokenizer: \"", folder,
                                 "/tokenizer.json\"}\n", more),
                    "F", "/etc/ballast");
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.value_or(LoadedConfig());
  };
  const LoadedConfig loaded = load("");
  EXPECT_NEAR(loaded.config.balance().cost().language().linear(), 18.51, 0.01);
  EXPECT_EQ(loaded.costs, absl::StrCat("by config.json of ", folder));
  // A number by hand beside `auto` overrides one.
  const LoadedConfig some =
      load("balance: {cost: {model: auto, language: {quadratic: 0}}}\n");
  EXPECT_EQ(some.config.balance().cost().language().quadratic(), 0);
  EXPECT_NEAR(some.config.balance().cost().language().linear(), 18.51, 0.01);
}

TEST(LoadConfig, ReadsAShare) {
  const auto share = [](absl::string_view text) {
    return LoadYaml(absl::StrCat(R"(
sources: [{name: a, format: jsonl, path: a)",
                                 text, R"(}]
batch: {global: 8, micro: 4}
topology: {modules: {language: {}}}
)"))
        .sources(0)
        .max_bad();
  };
  EXPECT_EQ(share(""), 0.01);
  EXPECT_EQ(share(", max_bad: 5%"), 0.05);
  EXPECT_EQ(share(", max_bad: 0.2"), 0.2);
  EXPECT_EQ(share(", max_bad: 0"), 0);
  EXPECT_EQ(share(", max_bad: 100%"), 1);
}

TEST(LoadConfig, ZeroCostsAreFineWithoutReordering) {
  LoadYaml(absl::StrCat(
      kSmallest, "balance: {delivery: off, cost: {vision: {linear: 0}}}"));
}

TEST(LoadConfig, ReadsJson) {
  const v1::Config config = LoadYaml(R"({
  "sources": [{"name": "a", "format": "jsonl", "path": "a.jsonl", "weight": 0.5}],
  "batch": {"global": 8, "micro": 8},
  "topology": {"modules": {"language": {"dp": 8}}},
  "serve": {"memory": 1e9}
})");
  EXPECT_EQ(config.sources(0).weight(), 0.5);
  EXPECT_EQ(config.serve().memory(), 1000000000u);
  EXPECT_EQ(config.topology().servers(0).ranks().at("language"), "0-7");
}

TEST(LoadConfig, AnchorsWork) {
  const v1::Config config = LoadYaml(R"(
sources: [{name: a, format: jsonl, path: a.jsonl}]
batch: {global: 8, micro: 8}
topology: {modules: {vision: &sizes {dp: 4, tp: 2}, language: *sizes}}
)");
  EXPECT_EQ(config.topology().modules().at("language").dp(), 4u);
  EXPECT_EQ(config.topology().modules().at("language").tp(), 2u);
}

TEST(LoadConfig, HostileTextEndsInAStatus) {
  std::string aliases = "a: &a {name: x}\nsources: &s [";
  for (int i = 0; i < 1000; ++i) aliases += "*a,";
  aliases += "]\ntopology: {servers: [";
  for (int i = 0; i < 1000; ++i) aliases += "{ranks: *s},";
  aliases += "]}";
  std::string many = "x: &x {";
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&many, "k", i, ": 1, ");
  many += "}\ntopology: {servers: [";
  for (int i = 0; i < 1000; ++i) many += "{ranks: *x},";
  many += "]}";
  for (const std::string& yaml :
       {std::string(200000, '['), std::string(200000, '{'),
        std::string("&a [*a]"), std::string("sources: &a [*a, *a]"),
        std::string("topology: &t {modules: {vision: *t}, servers: [*t]}"),
        std::string("\xff\xfe\x00\x01", 4), std::string("a: *nothing"),
        std::string("%YAML 9.9\n---\n"), std::string("? : :"),
        std::string("<<: {batch: 1}"), std::string("a\0b: 1", 6), aliases,
        many}) {
    EXPECT_EQ(ParseConfig(yaml, "F", ".").status().code(),
              absl::StatusCode::kInvalidArgument)
        << yaml.substr(0, 60);
  }
}

TEST(LoadConfig, ReadsAFileAndResolvesFromItsDirectory) {
  const std::string directory = testing::TempDir() + "/config_loader_test";
  mkdir(directory.c_str(), 0700);
  const std::string path = directory + "/job.yaml";
  std::ofstream(path) << kSmallest;
  const auto loaded = LoadConfig(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->directory, directory);
  EXPECT_EQ(loaded->config.sources(0).index(),
            directory + "/.ballast/docs-*.index");

  std::ofstream(path) << "batch: {}\n";
  const std::string faults(LoadConfig(path).status().message());
  EXPECT_THAT(faults, HasSubstr(path + ":1: batch.micro: missing"));

  std::ofstream(path) << std::string(2 << 20, '#');
  EXPECT_THAT(std::string(LoadConfig(path).status().message()),
              AllOf(HasSubstr(path), Not(HasSubstr("##"))));
}

TEST(LoadConfig, NamesAFileThatItCannotRead) {
  const std::string path = testing::TempDir() + "/no such file.yaml";
  const absl::Status missing = LoadConfig(path).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(path));
  EXPECT_FALSE(LoadConfig(testing::TempDir()).ok());  // a directory
}

std::string WarningOf(const std::string& source, const std::string& model) {
  const auto config = ParseConfig(
      absl::StrCat("sources: [", source, "]\n", model,
                   "batch: {global: 4, micro: 4}\n"
                   "topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}"),
      "ballast.yaml", "/data");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? TrialTokenizerWarning(config->config) : "";
}

constexpr char kTars[] = "{name: a, format: webdataset, path: a.tar}";
constexpr char kDrawn[] =
    "{name: a, format: mock, lengths: {mode: lognormal, min: 1, max: 9, "
    "mean: 4, sigma: 1}}";

// Nothing else tells that the key was forgotten: the job runs.
TEST(TrialTokenizerTest, WarnsOfTheDefault) {
  EXPECT_NE(WarningOf(kTars, ""), "");
  EXPECT_NE(WarningOf(kTars, "model: {profile: qwen3_vl}\n"), "");
  EXPECT_NE(WarningOf(kTars, "model: {tokenizer: bytes}\n"), "");
  EXPECT_EQ(WarningOf(kTars, "model: {tokenizer: tokenizer.json}\n"), "");
  EXPECT_EQ(WarningOf(kDrawn, ""), "");
}

}  // namespace
}  // namespace ballast
