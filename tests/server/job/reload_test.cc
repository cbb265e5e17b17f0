#include "server/job/revision.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/config_loader.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr char kJob[] = R"(
sources: [{name: docs, format: jsonl, path: docs.jsonl}]
batch: {global: 4, micro: 2}
topology:
  modules: {language: {dp: 2}, vision: {dp: 1}}
  servers:
    - {address: "unix:/run/a.sock", ranks: {language: "0-1", vision: "0"}}
)";
constexpr char kServe[] = "serve: {listen: [\"unix:/run/a.sock\"]}\n";
constexpr char kTokens[] = "security: {tokens_file: old, job: day}\n";

v1::Config Parse(const std::string& more, const std::string& job = kJob) {
  const auto config = ParseConfig(job + more, "job.yaml", "/data");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? config->config : v1::Config();
}

std::string Reason(const v1::Config& running, const v1::Config& wanted) {
  return std::string(CheckReload(running, wanted).message());
}

TEST(ReloadTest, AcceptsKeysThatCanBeReloaded) {
  const v1::Config running = Parse(std::string(kServe) + kTokens);
  EXPECT_EQ(Reason(running, running), "");
  const v1::Config wanted = Parse(
      "serve: {listen: [\"unix:/run/a.sock\"], log_level: debug, stall_after: "
      "1,"
      " read_attempts: 9, read_timeout: 2.5, max_bad_samples: 7}\n"
      "security: {tokens_file: new, job: night}\n");
  EXPECT_EQ(Reason(running, wanted), "");
}

TEST(ReloadTest, SettingsOfOneServerNeedItsRestart) {
  const v1::Config running = Parse(kServe);
  EXPECT_EQ(
      Reason(running, Parse("serve: {listen: [\"unix:/run/a.sock\"], "
                            "max_streams: 5}\n")),
      "serve.max_streams is 65536 in this server and 5 in the file; that takes "
      "a restart of this server");
  EXPECT_THAT(
      Reason(running, Parse("serve: {listen: [\"unix:/run/a.sock\", "
                            "\"127.0.0.1:1\"]}\n")),
      HasSubstr(
          "serve.listen[1] is absent in this server and \\\"127.0.0.1:1"));
  // Whether tokens are required, and the paths of certificates.
  EXPECT_THAT(Reason(running, Parse(std::string(kServe) + kTokens)),
              HasSubstr("security is absent in this server and a section in "
                        "the file; that takes a restart of this server"));
  EXPECT_THAT(Reason(Parse(std::string(kServe) + kTokens), running),
              HasSubstr("security is a section"));
}

TEST(ReloadTest, RefusesChangesOfTheSchedule) {
  const v1::Config running = Parse(kServe);
  const struct {
    const char* more;
    const char* key;
  } kCases[] = {
      {"order: {seed: 5}\n", "order.seed is 1234 in this server and 5 in"},
      {"balance: {delivery: direct, window: 1}\n",
       "balance.delivery is exchange in this server and direct in"},
      {"balance: {cost: {model: auto, language: {linear: 0.5}}}\n",
       "balance.cost.language.linear is 42.42 in this server and 0.5 in"},
      {"packing: {mode: scheduled}\n", "packing.mode is shard"},
  };
  // The fingerprint covers it.
  EXPECT_THAT(
      Reason(running, Parse("serve: {listen: [\"unix:/run/a.sock\"], "
                            "on_bad_sample: error}\n")),
      HasSubstr("serve.on_bad_sample is placeholder in this server and error "
                "in the file; that would change the schedule"));
  for (const auto& test : kCases) {
    const std::string reason =
        Reason(running, Parse(std::string(kServe) + test.more));
    EXPECT_THAT(reason, HasSubstr(test.key));
    EXPECT_THAT(reason, HasSubstr("change the schedule"));
  }
  std::string job = kJob;
  job.replace(job.find("dp: 2"), 5, "dp: 1");
  job.replace(job.find("0-1"), 3, "0");
  EXPECT_THAT(Reason(running, Parse(kServe, job)),
              HasSubstr("topology.modules.language.dp is 2 in this server and "
                        "1 in the file"));
}

TEST(ReloadTest, NamesTheFirstStepThatAChangeByStepAlters) {
  const v1::Config running =
      Parse(std::string(kServe) + "order: {skips: [{step: 30, steps: 20}]}\n");
  const struct {
    const char* more;
    const char* key;
    const char* step;
  } kCases[] = {
      {"order: {skips: [{step: 30, steps: 20}, {step: 70}]}\n",
       "order.skips[1] is absent", "from step 70 on"},
      {"order: {skips: [{step: 30, steps: 21}]}\n",
       "order.skips[0].steps is 20 in this server and 21", "from step 30 on"},
      {"", "order.skips[0] is a section in this server and absent",
       "from step 30 on"},
      {"order: {skips: [{step: 30, steps: 20}],"
       " mixture_changes: [{step: 60, weights: {docs: 2}}]}\n",
       "order.mixture_changes[0] is absent", "from step 60 on"},
      // The skip leaves out data on both sides of step 40.
      {"order: {skips: [{step: 30, steps: 20}],"
       " mixture_changes: [{step: 40, weights: {docs: 2}}]}\n",
       "order.mixture_changes[0] is absent", "from step 30 on"},
  };
  for (const auto& test : kCases) {
    const std::string reason =
        Reason(running, Parse(std::string(kServe) + test.more));
    EXPECT_THAT(reason, HasSubstr(test.key));
    EXPECT_THAT(reason, HasSubstr(test.step));
  }
  std::string job = kJob;
  job.replace(job.find("micro: 2"), 8,
              "micro: 2, changes: [{step: 9, global: 8}]");
  EXPECT_THAT(
      Reason(Parse(kServe), Parse(kServe, job)),
      HasSubstr("batch.changes[0] is absent in this server and a "
                "section in the file; that would change the schedule "
                "from step 9 on, which every server and rank must agree "
                "on: restart them all, from a checkpoint at step 9 or "
                "before"));
}

TEST(ReloadTest, NamesTheFirstKeyThatNeedsARestart) {
  EXPECT_THAT(
      Reason(Parse(kServe), Parse("serve: {listen: [\"unix:/run/a.sock\"], "
                                  "log_level: debug, memory: 1GiB}\n"
                                  "order: {shuffle: false}\n")),
      HasSubstr("order.shuffle is true in this server and false in"));
}

}  // namespace
}  // namespace ballast
