#include "server/job/revision.h"

#include <memory>
#include <set>
#include <utility>

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "server/config/config_loader.h"
#include "tests/fakes/fake_source_index.h"

namespace ballast {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr uint64_t kStep = 6;

constexpr char kRevisedJob[] = R"(
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
  std::string text = kRevisedJob;
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
              ElementsAre("order.mixture_changes.3 from step 3: absent -> docs "
                          "weight 1, chat weight 1"));
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

// A key of one server, from which the address of the job's only server follows.
TEST_F(RevisionTest, TakesAFileOfAnotherListenAddress) {
  const v1::Config running =
      Job({{"balance: {}", "serve: {listen: ['unix:/a']}"}});
  const v1::Config offered =
      Job({{"balance: {}", "serve: {listen: ['unix:/b']}"},
           {"weight: 3", "weight: 2"}});
  const auto composed = ComposeRevision(running, offered, kStep);
  ASSERT_TRUE(composed.ok()) << composed.status();
  EXPECT_EQ(composed->topology().servers(0).address(), "unix:/a");
  EXPECT_THAT(ListUntaken(running, offered),
              ElementsAre(StartsWith("serve.listen"),
                          StartsWith("topology.servers[0].address stays ")));
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

TEST_F(RevisionTest, RefusesOtherLengthsBeforeFilledSteps) {
  const Edits filled = {
      {"global: 8, micro: 4",
       "tokens: 9000, micro: 4, valid: {global: 8, micro: 4}"}};
  const v1::Config running = Job(filled);
  const auto next = Scheduler::Create(running, {&others_, &docs_, &others_});
  ASSERT_TRUE(next.ok()) << next.status();
  const absl::Status checked = CheckRevision(*Schedule(running), **next, kStep);
  EXPECT_EQ(checked.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(checked.message()), HasSubstr("batch.tokens"));
}

// --- every key of the configuration ---

using Path = std::vector<const google::protobuf::FieldDescriptor*>;

std::string KeyOf(const Path& path) {
  std::string key;
  for (const auto* field : path) {
    absl::StrAppend(&key, key.empty() ? "" : ".", field->name());
  }
  return key;
}

// The leaves of a message: values, lists and maps of them.
void AddLeaves(const google::protobuf::Descriptor& type, Path* path,
               std::vector<Path>* leaves) {
  for (int i = 0; i < type.field_count(); ++i) {
    const auto* field = type.field(i);
    path->push_back(field);
    const auto* message = field->message_type();
    if (field->is_map()) message = message->map_value()->message_type();
    if (message == nullptr) {
      leaves->push_back(*path);
    } else {
      AddLeaves(*message, path, leaves);
    }
    path->pop_back();
  }
}

// Gives the leaf another value, in the first of each list and map.
void Alter(google::protobuf::Message* message,
           absl::Span<const Path::value_type> path) {
  const auto* reflection = message->GetReflection();
  const auto* field = path[0];
  if (field->is_map() ||
      (field->message_type() != nullptr && path.size() > 1)) {
    google::protobuf::Message* next;
    if (!field->is_repeated()) {
      next = reflection->MutableMessage(message, field);
    } else if (reflection->FieldSize(*message, field) > 0) {
      next = reflection->MutableRepeatedMessage(message, field, 0);
    } else {
      next = reflection->AddMessage(message, field);
    }
    if (!field->is_map()) return Alter(next, path.subspan(1));
    const auto* value = field->message_type()->map_value();
    Path rest(path.begin() + 1, path.end());
    rest.insert(rest.begin(), value);
    return Alter(next, rest);
  }
  using Field = google::protobuf::FieldDescriptor;
  if (field->is_repeated()) {
    if (field->cpp_type() == Field::CPPTYPE_DOUBLE) {
      return reflection->AddDouble(message, field, 1);
    }
    ASSERT_EQ(field->cpp_type(), Field::CPPTYPE_STRING) << field->full_name();
    return reflection->AddString(message, field, "another");
  }
  switch (field->cpp_type()) {
    case Field::CPPTYPE_BOOL:
      return reflection->SetBool(message, field,
                                 !reflection->GetBool(*message, field));
    case Field::CPPTYPE_UINT32:
      return reflection->SetUInt32(message, field,
                                   reflection->GetUInt32(*message, field) + 1);
    case Field::CPPTYPE_INT32:
      return reflection->SetInt32(message, field,
                                  reflection->GetInt32(*message, field) + 1);
    case Field::CPPTYPE_UINT64:
      return reflection->SetUInt64(message, field,
                                   reflection->GetUInt64(*message, field) + 1);
    case Field::CPPTYPE_INT64:
      return reflection->SetInt64(message, field,
                                  reflection->GetInt64(*message, field) + 1);
    case Field::CPPTYPE_DOUBLE:
      return reflection->SetDouble(message, field,
                                   reflection->GetDouble(*message, field) + 1);
    case Field::CPPTYPE_FLOAT:
      return reflection->SetFloat(message, field,
                                  reflection->GetFloat(*message, field) + 1);
    case Field::CPPTYPE_STRING:
      return reflection->SetString(
          message, field, reflection->GetString(*message, field) + "x");
    case Field::CPPTYPE_ENUM: {
      const int next = reflection->GetEnumValue(*message, field) == 1 ? 2 : 1;
      return reflection->SetEnumValue(message, field, next);
    }
    default:
      FAIL() << field->full_name();
  }
}

// What becomes of a key that the file changes, where it is not what its option
// says: `change: JOB` keys are refused, with both values, and keys of one
// server (SERVER, RELOAD) are noted.
enum class Outcome {
  kTaken,
  kSchedule,  // refused once the schedules are known, as CheckRevision says
  kRefused,   // in other words
};
struct KeyOutcome {
  std::string key;  // or a section
  Outcome outcome;
  // Of kRefused: what the message says. Of the others: the job's edits and the
  // file's that show it with schedules; none: the composed configuration alone
  // is looked at.
  std::string message = "";
  Edits running = {};
  Edits offered = {};
};

const std::vector<KeyOutcome>& Outcomes() {
  const auto balance = [](std::string text) {
    return Edits{{"balance: {}", "balance: {" + text + "}"}};
  };
  // Packs, and a file that adds `text` to them.
  const auto packing = [](std::string text) {
    return Edits{
        {"balance: {}", "balance: {}\npacking: {mode: scheduled" + text + "}"}};
  };
  // Packs of a job without vision.
  const auto of_text = [&](std::string text) {
    Edits edits = packing(text);
    edits.push_back({", vision: {dp: 2}", ""});
    return edits;
  };
  const std::string laid_out = "ranks lay out their batches by";
  static const auto* outcomes = new std::vector<KeyOutcome>{
      {"sources.name", Outcome::kTaken},
      {"sources.path", Outcome::kTaken},
      {"sources.media_root", Outcome::kTaken},
      {"sources.index", Outcome::kTaken},
      {"sources.recipe", Outcome::kTaken},
      {"sources.weight", Outcome::kTaken},
      {"sources.blend", Outcome::kRefused, "blend is"},
      {"order.mixture_changes",
       Outcome::kTaken,
       "",
       {},
       {{"order: {}",
         "order: {mixture_changes: [{step: 9, weights: {docs: 1}}]}"}}},
      {"order.skips",
       Outcome::kTaken,
       "",
       {},
       {{"order: {}", "order: {skips: [{step: 9}]}"}}},
      {"batch.global", Outcome::kTaken, "", {}, {{"global: 8", "global: 16"}}},
      {"batch.micro", Outcome::kTaken, "", {}, {{"micro: 4", "micro: 8"}}},
      {"batch.changes.samples",
       Outcome::kRefused,
       "a change takes batch.changes[].step",
       {},
       {{"global: 8", "global: 8, changes: [{samples: 96, global: 16}]"}}},
      {"batch.changes",
       Outcome::kTaken,
       "",
       {},
       {{"global: 8", "global: 8, changes: [{step: 9, global: 16}]"}}},
      {"batch.rampup",
       Outcome::kRefused,
       "by samples of training",
       {},
       {{"global: 8",
         "global: 16, rampup: {start: 4, increment: 4, samples: 200}"}}},
      {"model.min_pixels", Outcome::kTaken},
      {"model.max_pixels", Outcome::kTaken},
      {"model.recipe", Outcome::kTaken},
      {"model.image_family.min_pixels", Outcome::kTaken},
      {"model.image_family.max_pixels", Outcome::kTaken},
      {"model.image_family.longest_edge", Outcome::kTaken},
      {"model.image_family.min_tiles", Outcome::kTaken},
      {"model.image_family.max_tiles", Outcome::kTaken},
      {"model.video.min_pixels", Outcome::kTaken},
      {"model.video.max_pixels", Outcome::kTaken},
      {"model.video.total_pixels", Outcome::kTaken},
      {"balance.delivery",
       Outcome::kSchedule,
       laid_out,
       {},
       balance("delivery: direct")},
      {"balance.placement", Outcome::kSchedule, laid_out,
       balance("cost: {language: {linear: 1}}"),
       balance("placement: split, cost: {language: {linear: 1}}")},
      {"balance.algorithm", Outcome::kTaken, "", {}, balance("algorithm: lpt")},
      {"balance.scope", Outcome::kTaken, "", {}, balance("scope: window")},
      {"balance.window", Outcome::kTaken, "", balance("scope: window"),
       balance("scope: window, window: 2")},
      {"balance.equal_count",
       Outcome::kTaken,
       "",
       {},
       balance("equal_count: true")},
      {"balance.align_images",
       Outcome::kTaken,
       "",
       {},
       balance("align_images: false")},
      {"balance.cost",
       Outcome::kTaken,
       "",
       {},
       balance("cost: {vision: {linear: 3}}")},
      {"balance.cost_changes",
       Outcome::kTaken,
       "",
       {},
       balance("cost_changes: [{step: 9, cost: {vision: {linear: 3}}}]")},
      {"balance.skip_below", Outcome::kTaken, "", {}, balance("skip_below: 2")},
      {"balance.order", Outcome::kTaken, "", {}, balance("order: pipeline")},
      {"balance.objective", Outcome::kTaken, "", balance("objective: sum"),
       balance("objective: phases")},
      {"packing.mode", Outcome::kTaken, "", {}, packing("")},
      {"packing.max_tokens_per_rank", Outcome::kTaken, "", packing(""),
       packing(", max_tokens_per_rank: 4096")},
      {"packing.align", Outcome::kSchedule, laid_out, packing(""),
       packing(", align: 64")},
      {"packing.virtual_pipeline_group", Outcome::kSchedule, laid_out,
       packing(""), packing(", virtual_pipeline_group: 2")},
      {"packing.dynamic_cp", Outcome::kSchedule, laid_out, of_text(""),
       of_text(", dynamic_cp: 2")},
      {"packing.encoder_slack", Outcome::kTaken, "", packing(""),
       packing(", encoder_slack: 0.5")},
      {"packing.row_length",
       Outcome::kSchedule,
       laid_out,
       {{"balance: {}",
         "balance: {equal_count: true}\npacking: {mode: padded}"}},
       {{"balance: {}",
         "balance: {equal_count: true}\npacking: {mode: padded, row_length: "
         "4096}"}}},
  };
  return *outcomes;
}

const KeyOutcome* FindOutcome(const std::string& key) {
  for (const KeyOutcome& each : Outcomes()) {
    if (key == each.key || absl::StartsWith(key, each.key + ".")) return &each;
  }
  return nullptr;
}

// A key that is added to the configuration is refused, or listed above.
TEST_F(RevisionTest, EveryKeyIsTakenRefusedOrNoted) {
  v1::Config running = Job();
  running.mutable_model()->mutable_image_family();
  running.mutable_model()->mutable_video();
  const auto unaltered = ComposeRevision(running, running, kStep);
  ASSERT_TRUE(unaltered.ok()) << unaltered.status();
  std::vector<Path> leaves;
  Path path;
  AddLeaves(*v1::Config::descriptor(), &path, &leaves);
  std::set<std::string> seen;
  for (const Path& leaf : leaves) {
    const std::string key = KeyOf(leaf);
    SCOPED_TRACE(key);
    const KeyOutcome* const listed = FindOutcome(key);
    if (listed != nullptr) seen.insert(listed->key);
    if (listed != nullptr && !listed->offered.empty()) continue;  // below
    v1::Config offered = running;
    Alter(&offered, leaf);
    const auto composed = ComposeRevision(running, offered, kStep);
    if (listed != nullptr && listed->outcome == Outcome::kTaken) {
      ASSERT_TRUE(composed.ok()) << composed.status();
      EXPECT_FALSE(MessageDifferencer::Equals(*composed, *unaltered));
      EXPECT_THAT(ListUntaken(running, offered), IsEmpty());
      continue;
    }
    const std::string section =
        absl::StrCat(leaf[0]->name(), ".", leaf[1]->name());
    if (leaf[0]->name() == "serve" || leaf[0]->name() == "storage" ||
        leaf[0]->name() == "security" || key == "topology.servers.address") {
      ASSERT_TRUE(composed.ok()) << composed.status();
      EXPECT_TRUE(MessageDifferencer::Equals(*composed, *unaltered));
      EXPECT_THAT(ListUntaken(running, offered),
                  ElementsAre(StartsWith(section)));
      continue;
    }
    ASSERT_EQ(composed.status().code(), absl::StatusCode::kInvalidArgument)
        << "not refused; may a running job change it? List it above, and in "
           "docs/changes.md";
    const std::string message(composed.status().message());
    if (listed != nullptr) {
      EXPECT_THAT(message, HasSubstr(listed->message));
      continue;
    }
    EXPECT_THAT(message, StartsWith(leaf[0]->name() == "sources"
                                        ? "source docs: " + leaf[1]->name()
                                        : section));
    EXPECT_THAT(message, HasSubstr(" in the job and "));
    EXPECT_THAT(message, HasSubstr(" in the file; "));
  }
  for (const KeyOutcome& each : Outcomes()) {
    EXPECT_EQ(seen.count(each.key), 1) << each.key << " is no key";
  }
}

TEST_F(RevisionTest, SchedulesShowWhatAKeyMayChange) {
  for (const KeyOutcome& each : Outcomes()) {
    if (each.offered.empty()) continue;
    SCOPED_TRACE(each.key);
    const v1::Config running = Job(each.running);
    const auto composed = ComposeRevision(running, Job(each.offered), kStep);
    if (each.outcome == Outcome::kRefused) {
      EXPECT_THAT(std::string(composed.status().message()),
                  HasSubstr(each.message));
      continue;
    }
    ASSERT_TRUE(composed.ok()) << composed.status();
    const absl::Status checked =
        CheckRevision(*Schedule(running), *Schedule(*composed), kStep);
    EXPECT_EQ(checked.ok(), each.outcome == Outcome::kTaken) << checked;
    EXPECT_THAT(std::string(checked.message()), HasSubstr(each.message));
  }
}

TEST_F(RevisionTest, ListsKeysOfOneServer) {
  EXPECT_THAT(ListUntaken(Job(), Job({{"balance: {}", "serve: {threads: 3}"}})),
              ElementsAre("serve.threads stays 0 here (the file has 3)"));
}

}  // namespace
}  // namespace ballast
