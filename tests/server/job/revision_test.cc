#include "server/job/revision.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/config/config_loader.h"
#include "tests/fakes/fake_source_index.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kStep = 6;

constexpr char kJob[] = R"(
sources:
  - {name: docs, format: jsonl, path: docs.jsonl, weight: 3}
  - {name: chat, format: jsonl, path: chat.jsonl}
  - {name: exam, format: jsonl, path: exam.jsonl, split: valid}
order: {}
batch: {global: 8, micro: 4}
topology: {modules: {language: {dp: 2}, vision: {dp: 2}}}
balance: {}
)";

// A job's file in which each first text is replaced by the second.
using Edits = std::vector<std::pair<std::string, std::string>>;
v1::Config Job(const Edits& edits = {}) {
  std::string text = kJob;
  for (const auto& [from, to] : edits) {
    EXPECT_THAT(text, HasSubstr(from));
    text = absl::StrReplaceAll(text, {{from, to}});
  }
  const auto config = ParseConfig(text, "job.yaml", "/data");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? config->config : v1::Config();
}

class RevisionTest : public ::testing::Test {
 protected:
  std::unique_ptr<Scheduler> Schedule(const v1::Config& config) const {
    std::vector<const SourceIndex*> indexes;
    for (const v1::Source& source : config.sources()) {
      indexes.push_back(source.name() == "docs" ? &docs_ : &others_);
    }
    auto scheduler = Scheduler::Create(config, indexes);
    EXPECT_TRUE(scheduler.ok()) << scheduler.status();
    return *std::move(scheduler);
  }

  // The samples of a step, "docs:17" in order, and the owners' loads.
  static std::string Text(const Scheduler& scheduler, uint64_t step) {
    auto schedule = scheduler.Schedule(step);
    EXPECT_TRUE(schedule.ok()) << schedule.status();
    std::string text;
    for (const auto& batch : schedule->micro_batches()) {
      for (int i = 0; i < batch.position_size(); ++i) {
        absl::StrAppend(&text, schedule->sources(batch.source(i)), ":",
                        batch.ordinal(i), " ");
      }
      for (const auto& module : batch.modules()) {
        for (const double load : module.load_after()) {
          absl::StrAppend(&text, load, " ");
        }
      }
      text += "/ ";
    }
    return text;
  }

  // Composes `offered` from kStep on: the steps before are those of `running`,
  // and those from there on those of `by_step`, which a person would have
  // written at the start of the job.
  void Check(const v1::Config& running, const v1::Config& offered,
             const v1::Config& by_step) {
    const auto composed = ComposeRevision(running, offered, kStep);
    ASSERT_TRUE(composed.ok()) << composed.status();
    const auto before = Schedule(running);
    const auto after = Schedule(*composed);
    const auto wanted = Schedule(by_step);
    const absl::Status checked = CheckRevision(*before, *after, kStep);
    EXPECT_TRUE(checked.ok()) << checked;
    for (uint64_t step = 0; step < kStep; ++step) {
      EXPECT_EQ(Text(*before, step), Text(*wanted, step)) << step;
    }
    for (uint64_t step = kStep; step < kStep + 20; ++step) {
      EXPECT_EQ(Text(*after, step), Text(*wanted, step)) << step;
    }
  }

  static std::string Refusal(const v1::Config& running,
                             const v1::Config& offered, uint64_t step = kStep) {
    const auto composed = ComposeRevision(running, offered, step);
    EXPECT_EQ(composed.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(composed.status().message());
  }

  const FakeSourceIndex docs_{FormulaSamples(41)};
  const FakeSourceIndex others_{FormulaSamples(29), std::string(32, '1')};
};

TEST_F(RevisionTest, WeightsFollowTheFileFromTheStepOn) {
  Check(Job(), Job({{"weight: 3", "weight: 1"}}),
        Job({{"order: {}",
              "order: {mixture_changes: [{step: 6, weights: {docs: 1}}]}"}}));
}

TEST_F(RevisionTest, WeightsAreThoseThatTheFileGivesAtTheStep) {
  // The file's own changes before the step count, as do those after it.
  const std::string changes =
      "order: {mixture_changes: [{step: 2, weights: {chat: 5}}, {step: 9, "
      "weights: {docs: 7}}]}";
  Check(Job({{"order: {}",
              "order: {mixture_changes: [{step: 4, weights: {docs: 2}}, {step: "
              "8, weights: {docs: 9}}]}"}}),
        Job({{"order: {}", changes}}),
        Job({{"order: {}",
              "order: {mixture_changes: [{step: 4, weights: {docs: 2}}, {step: "
              "6, weights: {docs: 3, chat: 5}}, {step: 9, weights: {docs: "
              "7}}]}"}}));
}

TEST_F(RevisionTest, SourcesJoinAndEnd) {
  const std::string chat =
      "  - {name: chat, format: jsonl, path: chat.jsonl}\n";
  const std::string web =
      "  - {name: web, format: jsonl, path: web.jsonl, weight: 2}\n";
  const v1::Config running = Job();
  const v1::Config offered = Job({{chat, web}});
  Check(running, offered,
        Job({{chat, absl::StrCat(chat, absl::StrReplaceAll(
                                           web, {{"weight: 2", "weight: 0"}}))},
             {"order: {}",
              "order: {mixture_changes: [{step: 6, weights: {chat: 0, web: "
              "2}}]}"}}));
  // An ended source keeps its number, and an added one comes last.
  const auto composed = ComposeRevision(running, offered, kStep);
  std::vector<std::string> names;
  for (const auto& source : composed->sources()) names.push_back(source.name());
  EXPECT_THAT(names, ElementsAre("docs", "chat", "exam", "web"));
}

TEST_F(RevisionTest, StepsGrow) {
  Check(Job(), Job({{"global: 8", "global: 16"}}),
        Job({{"global: 8", "global: 8, changes: [{step: 6, global: 16}]"}}));
  Check(Job({{"global: 8", "global: 8, changes: [{step: 3, global: 12}]"}}),
        Job({{"global: 8", "global: 16, changes: [{step: 9, global: 4}]"}}),
        Job({{"global: 8",
              "global: 8, changes: [{step: 3, global: 12}, {step: 6, global: "
              "16}, {step: 9, global: 4}]"}}));
}

TEST_F(RevisionTest, ARampUpEndsAtTheStep) {
  const std::string ramp =
      "global: 16, rampup: {start: 4, increment: 4, samples: 200}";
  Check(Job({{"global: 8", ramp}}), Job(),
        Job({{"global: 8",
              absl::StrCat(ramp, ", changes: [{step: 6, global: 8}]")}}));
}

TEST_F(RevisionTest, SkipsAtTheStepAndLater) {
  const std::string skips =
      "order: {skips: [{step: 6, steps: 2}, {step: 12, steps: 1}]}";
  Check(Job(), Job({{"order: {}", skips}}), Job({{"order: {}", skips}}));
}

TEST_F(RevisionTest, CostsAndPackingAreThoseOfTheFile) {
  const v1::Config running = Job();
  const v1::Config offered =
      Job({{"balance: {}",
            "balance: {cost: {vision: {linear: 3, quadratic: "
            "0.01}}}"}});
  Check(running, offered, [&] {
    // Steps before are not asked of it.
    v1::Config config = running;
    auto* change = config.mutable_balance()->add_cost_changes();
    change->set_step(kStep);
    *change->mutable_cost() = offered.balance().cost();
    return config;
  }());
}

TEST_F(RevisionTest, AChangeFollowsAnother) {
  const v1::Config first = Job({{"weight: 3", "weight: 1"}});
  const auto composed = ComposeRevision(Job(), first, 3);
  ASSERT_TRUE(composed.ok());
  // The second file contains the first change, as the first file did.
  Check(*composed,
        Job({{"weight: 3", "weight: 1"}, {"global: 8", "global: 4"}}),
        Job({{"order: {}",
              "order: {mixture_changes: [{step: 3, weights: {docs: 1}}]}"},
             {"global: 8", "global: 8, changes: [{step: 6, global: 4}]"}}));
  EXPECT_THAT(ListDifferences(Schedule(Job())->fingerprint(),
                              Schedule(*composed)->fingerprint()),
              ElementsAre("from_step.0000000003.order.mixture_changes.3: none "
                          "-> docs weight 1, chat weight 1"));
}

TEST_F(RevisionTest, RefusesWhatARunningJobCannotChange) {
  const v1::Config job = Job();
  EXPECT_THAT(Refusal(job, Job({{"language: {dp: 2}", "language: {dp: 1}"}})),
              HasSubstr("topology.modules.language.dp is 2 in the job and 1 in "
                        "the file"));
  EXPECT_THAT(Refusal(job, Job({{"order: {}", "order: {seed: 7}"}})),
              HasSubstr("order.seed is 1234 in the job and 7 in the file"));
  EXPECT_THAT(Refusal(job, Job({{"micro: 4", "micro: 4, max_tokens: 99"}})),
              HasSubstr("batch.max_tokens is 4096 in the job and 99"));
  EXPECT_THAT(
      Refusal(job, Job({{"path: exam.jsonl",
                         "path: exam.jsonl, "
                         "weight: 2"}})),
      HasSubstr("source exam: weight is 1 in the job and 2 in the file; "
                "valid and test stay"));
  EXPECT_THAT(
      Refusal(job, Job({{"order: {}", "order: {skips: [{step: 5}]}"}})),
      HasSubstr("order.skips leaves out 1 steps at step 5 in the file and not "
                "in the job"));
  EXPECT_THAT(Refusal(job, Job(), 0), HasSubstr("a change at step 0"));
  // The skip at step 4 leaves out data of steps up to 7.
  const v1::Config skips =
      Job({{"order: {}", "order: {skips: [{step: 4, steps: 4}]}"}});
  EXPECT_THAT(
      Refusal(skips,
              Job({{"order: {}", "order: {skips: [{step: 4, steps: 4}]}"},
                   {"weight: 3", "weight: 1"}})),
      HasSubstr("would alter step 4, before its first step 6"));
}

TEST_F(RevisionTest, RefusesAFileThatChangesNothing) {
  const auto composed = ComposeRevision(Job(), Job(), kStep);
  ASSERT_TRUE(composed.ok());
  EXPECT_THAT(
      std::string(CheckRevision(*Schedule(Job()), *Schedule(*composed), kStep)
                      .message()),
      HasSubstr("changes nothing"));
}

TEST_F(RevisionTest, RefusesWhatRanksLayOutTheirBatchesBy) {
  const auto composed = ComposeRevision(
      Job(), Job({{"balance: {}", "balance: {delivery: direct}"}}), kStep);
  ASSERT_TRUE(composed.ok()) << composed.status();
  EXPECT_THAT(
      std::string(CheckRevision(*Schedule(Job()), *Schedule(*composed), kStep)
                      .message()),
      HasSubstr("delivery: DELIVERY_EXCHANGE -> DELIVERY_DIRECT"));
}

TEST_F(RevisionTest, ListsKeysOfOneServer) {
  EXPECT_THAT(ListUntaken(Job(), Job({{"balance: {}", "serve: {threads: 3}"}})),
              ElementsAre("serve.threads stays 0 here (the file has 3)"));
}

}  // namespace
}  // namespace ballast
