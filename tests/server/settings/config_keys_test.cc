// A key is one place: the keys of example.proto, which no code of the server
// names, are read, bounded, defaulted, compared, printed, fingerprinted and
// documented by the options of their fields alone.

#include "server/settings/config_keys.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/config.pb.h"
#include "server/config/config_loader.h"
#include "server/settings/config_yaml.h"
#include "tests/docs/proto_reference.h"
#include "tests/fakes/read_file.h"
#include "tests/server/settings/example.pb.h"

namespace ballast {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

struct LoadedKeys {
  test::Example message;
  std::string faults;  // one a line, "F:LINE: KEY: ..."
};

LoadedKeys LoadKeys(const std::string& yaml) {
  LoadedKeys loaded;
  KeyReport report;
  ReadYaml(yaml, &loaded.message, &report);
  FillDefaults(report, &loaded.message);
  ResolvePaths("/dir", &loaded.message);
  CheckKeys(loaded.message, &report);
  loaded.faults = std::string(report.ToStatus("F").message());
  return loaded;
}

constexpr char kAll[] = R"(room: 1.5GiB
wait: 90s
threads: 3
shuffle: false
listen: ["x\n\"1\""]
folder: none
main: {name: m, count: 9, kind: very_light, depth: 0.25}
parts: [{name: p}, {name: q, count: 1}]
named: {b: {name: r}, a: {name: s}}
weights: {x: 0.1, y: 5}
spare: {name: z}
level: -3
means: [0.1, 1e-7]
)";

TEST(ConfigKeysTest, ReadsEveryKind) {
  const LoadedKeys loaded = LoadKeys(kAll);
  EXPECT_EQ(loaded.faults, "");
  const test::Example& m = loaded.message;
  EXPECT_EQ(m.room(), uint64_t{3} << 29);
  EXPECT_EQ(m.wait(), 90);
  EXPECT_EQ(m.threads(), 3u);
  EXPECT_FALSE(m.shuffle());
  EXPECT_THAT(m.listen(), ElementsAre("x\n\"1\""));
  EXPECT_EQ(m.folder(), "none") << "a word, no path";
  EXPECT_EQ(m.main().kind(), test::Example::KIND_VERY_LIGHT);
  EXPECT_EQ(m.main().depth(), 0.25);
  EXPECT_EQ(m.parts(1).count(), 1u);
  EXPECT_EQ(m.named().at("a").name(), "s");
  EXPECT_EQ(m.weights().at("x"), 0.1);
  EXPECT_EQ(m.spare().name(), "z");
  EXPECT_EQ(m.level(), -3);
  EXPECT_THAT(m.means(), ElementsAre(0.1, 1e-7));
}

TEST(ConfigKeysTest, FillsDefaults) {
  const test::Example m =
      LoadKeys("{main: {name: m}, parts: [{name: p}], named: {a: {name: s}}}")
          .message;
  EXPECT_EQ(m.room(), uint64_t{8} << 30);
  EXPECT_EQ(m.wait(), 30);
  EXPECT_EQ(m.threads(), 0u);
  EXPECT_TRUE(m.shuffle());
  EXPECT_THAT(m.listen(), ElementsAre("a:1", "b:2"));
  EXPECT_EQ(m.folder(), "/dir/parts");
  EXPECT_EQ(m.main().count(), 2u);
  EXPECT_EQ(m.main().depth(), 0) << "of light parts alone";
  EXPECT_EQ(m.parts(0).count(), 2u);
  EXPECT_EQ(m.named().at("a").kind(), test::Example::KIND_HEAVY);
  EXPECT_FALSE(m.has_spare());
  EXPECT_FALSE(m.has_level());
  EXPECT_FALSE(LoadKeys("spare: off").message.has_spare());
  // A faulty value becomes the default, so that no later check meets a zero.
  EXPECT_EQ(LoadKeys("main: {name: m, count: 10}").message.main().count(), 2u);
}

TEST(ConfigKeysTest, ChecksEveryKind) {
  EXPECT_EQ(LoadKeys(R"(room: 1KiB
wait: 0
threads: 65
shuffel: false
listen: [a, b, c, d]
folder: ""
main: {count: 0, kind: light, depth: 3}
parts: [{name: p, kind: very_light}, {name: q, kind: heavy, depth: 1}, 3]
weights: {x: 5.1}
spare: on
level: "1"
means: 3
wait: 2h
)")
                .faults,
            "F:1: room: found 1KiB; wanted a size from 1MiB to 1024TiB, as "
            "8GiB or a number of bytes\n"
            "F:2: wait: found 0; wanted seconds above 0 and at most 3600, as "
            "30 or 500ms\n"
            "F:3: threads: found 65; wanted a whole number from 0 to 64, or "
            "auto\n"
            "F:4: shuffel: unknown key; did you mean shuffle?\n"
            "F:5: listen: found 4 entries; wanted at most 3\n"
            "F:6: folder: found empty text; wanted text\n"
            "F:7: main.name: missing; wanted a name\n"
            "F:7: main.count: found 0; wanted a whole number from 1 to 9\n"
            "F:7: main.kind: found light; wanted one of heavy, very_light\n"
            "F:8: parts[0].depth: missing; wanted a depth\n"
            "F:8: parts[1].depth: found with kind: heavy; wanted it for "
            "kind: very_light alone\n"
            "F:8: parts[2]: found 3; wanted a map of keys and values\n"
            "F:9: weights.x: found 5.1; wanted a number from 0 to 5\n"
            "F:10: spare: found on; wanted a map of keys and values, or off\n"
            "F:11: level: found the text \"1\"; wanted a whole number from -3 "
            "to 3\n"
            "F:12: means: found 3; wanted a list\n"
            "F:13: wait: found a second time (first on line 2); wanted it "
            "once");
}

TEST(ConfigKeysTest, PrintsWhatItReads) {
  for (const std::string& yaml :
       {std::string(kAll), std::string("main: {name: m}")}) {
    const test::Example written = LoadKeys(yaml).message;
    const std::string printed = ToYaml(written, 0);
    const LoadedKeys again = LoadKeys(printed);
    EXPECT_EQ(again.faults, "") << printed;
    EXPECT_TRUE(MessageDifferencer::Equals(written, again.message)) << printed;
  }
  const std::string printed = ToYaml(LoadKeys(kAll).message, 2);
  EXPECT_THAT(printed, HasSubstr("  room: 1536MiB\n"));
  EXPECT_THAT(printed, HasSubstr("  shuffle: false\n")) << "not the default";
  EXPECT_THAT(printed, HasSubstr("  main:\n    name: \"m\"\n    count: 9\n"));
  EXPECT_THAT(printed, HasSubstr("  weights: {\"x\": 0.1, \"y\": 5}\n"));
  EXPECT_THAT(printed, HasSubstr("  means: [0.1, 1e-07]\n"));
}

TEST(ConfigKeysTest, ComparesAndSaysWhatAChangeTakes) {
  const test::Example a = LoadKeys(kAll).message;
  EXPECT_FALSE(FirstDifference(a, a).has_value());
  const auto change = [&](auto edit) {
    test::Example b = a;
    edit(&b);
    const auto found = FirstDifference(a, b);
    return found.has_value()
               ? absl::StrCat(found->key, " ", found->a, " ", found->b, " ",
                              v1::Setting::Change_Name(found->change))
               : "none";
  };
  using E = test::Example*;
  EXPECT_EQ(change([](E e) { e->set_room(7); }), "room 1610612736 7 SERVER");
  EXPECT_EQ(change([](E e) { e->set_wait(0.5); }), "wait 90 0.5 RELOAD");
  EXPECT_EQ(change([](E e) {
              e->mutable_main()->set_kind(test::Example::KIND_HEAVY);
            }),
            "main.kind very_light heavy JOB");
  EXPECT_EQ(change([](E e) { e->mutable_parts()->RemoveLast(); }),
            "parts[1] a section absent JOB");
  EXPECT_EQ(change([](E e) { (*e->mutable_named())["c"]; }),
            "named.c absent a section JOB");
  EXPECT_EQ(change([](E e) { e->mutable_named()->at("b").set_count(3); }),
            "named.b.count 2 3 RELOAD");
  EXPECT_EQ(change([](E e) { (*e->mutable_weights())["y"] = 4; }),
            "weights.y 5 4 JOB");
  EXPECT_EQ(change([](E e) { e->clear_spare(); }),
            "spare a section absent JOB");
  EXPECT_EQ(change([](E e) { e->clear_level(); }), "level -3 absent JOB");
}

TEST(ConfigKeysTest, AdoptsWhatAReloadMayChange) {
  test::Example running = LoadKeys("main: {name: m}").message;
  const test::Example wanted = LoadKeys(kAll).message;
  AdoptReloadable(wanted, &running);
  EXPECT_EQ(running.wait(), 90);
  EXPECT_EQ(running.main().count(), 9u);
  EXPECT_EQ(running.room(), uint64_t{8} << 30);
  EXPECT_TRUE(running.shuffle());
  EXPECT_FALSE(running.has_spare());
}

TEST(ConfigKeysTest, FingerprintsWhatItsOptionsSay) {
  std::map<std::string, std::string> entries;
  AddFingerprint(LoadKeys("{main: {name: m}, parts: [{name: p}],"
                          " means: [0.1, 5e-324]}")
                     .message,
                 &entries);
  EXPECT_THAT(
      entries,
      ElementsAre(Pair("main.count", "2"), Pair("main.depth", "0"),
                  Pair("main.kind", "KIND_HEAVY"), Pair("main.name", "m"),
                  Pair("means", "0.1,5e-324"), Pair("parts.0000.count", "2"),
                  Pair("parts.0000.depth", "0"),
                  Pair("parts.0000.kind", "KIND_HEAVY"),
                  Pair("parts.0000.name", "p")));
  entries.clear();
  AddFingerprint(
      LoadKeys("{threads: 4, spare: {name: z}, main: {name: m}}").message,
      &entries);
  EXPECT_EQ(entries["threads"], "4") << "not the default";
  EXPECT_EQ(entries["spare.name"], "z");
  EXPECT_EQ(entries.count("room"), 0u);
}

TEST(ConfigKeysTest, DocumentsEveryKind) {
  const std::string page = KeyReference(*test::Example::descriptor());
  for (const char* part :
       {"- **`room`**: a size from 1MiB to 1024TiB, as 8GiB or a number of "
        "bytes.\n  Default: `8GiB`.\n",
        "- **`wait`**: seconds above 0 and at most 3600, as 30 or 500ms.\n"
        "  Default: `30`. A reload may change it.\n",
        "- **`listen`**: a list: texts.\n  Default: `[\"a:1\", \"b:2\"]`. At "
        "most 3 entries.\n",
        "- **`weights`**: a map, each value a number from 0 to 5.\n",
        "## `parts[]`\n", "## `named.NAME`\n",
        "- **`kind`**: `heavy`, `very_light`.\n  Default: `heavy`.\n",
        "  Required. Only with `kind: very_light`. Default: `0.5`.\n"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
}

// Each default of the configuration is a value that a file may give.
TEST(ConfigKeysTest, DefaultsOfTheConfigurationAreWithinItsRules) {
  KeyReport none;
  v1::Config config;
  FillDefaults(none, &config);
  v1::Config again;
  KeyReport report;
  ReadYaml(ToYaml(config, 0), &again, &report);
  FillDefaults(report, &again);
  EXPECT_EQ(report.ToStatus("F").message(), "");
  EXPECT_TRUE(MessageDifferencer::Equals(config, again)) << ToYaml(config, 0);
  EXPECT_EQ(config.serve().memory(), uint64_t{8} << 30);
}

// The example in docs/configuration.md loads.

TEST(ConfigurationPage, ItsExampleLoads) {
  const std::string page = ReadFile("docs/configuration.md");
  const std::string fence = "```yaml\n";
  const size_t begin = page.find(fence);
  ASSERT_NE(begin, std::string::npos);
  const size_t end = page.find("```", begin + fence.size());
  const auto loaded =
      ParseConfig(page.substr(begin + fence.size(), end - begin - fence.size()),
                  "docs/configuration.md", ".");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.sources_size(), 2);
  EXPECT_EQ(loaded->config.serve().max_bad_samples(), 100u);
}

}  // namespace
}  // namespace ballast
