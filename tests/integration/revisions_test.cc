// A running job is changed at a step: ranks go over it without a restart.

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/ballastctl/query_client.h"
#include "client/loader_client.h"
#include "client/schedule_source.h"
#include "common/mutex.h"
#include "common/python_helper.h"
#include "proto/revision_service.grpc.pb.h"
#include "server/job/index_sources.h"
#include "server/serve/service/server.h"
#include "tests/fakes/test_job.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kFrom = 16;
constexpr uint64_t kEnd = 20;

constexpr char kJob[] = R"(
sources:
  - {name: docs, format: webdataset, path: 'docs-*.tar', weight: 3}
  - {name: more, format: webdataset, path: 'docs-*.tar', weight: 1}
model: {profile: qwen2_5_vl, max_pixels: 200704}
batch: {global: 16, micro: 8}
topology:
  modules: {vision: {dp: 2}, language: {dp: 2}}
  servers: [SERVERS]
order: {}
balance: {delivery: DELIVERY}
serve: {threads: 2, memory: 64MiB, listen: ['unix:/replaced']}
)";

std::string Text(
    const std::string& delivery,
    const std::vector<std::pair<std::string, std::string>>& edits = {}) {
  std::string text = absl::StrReplaceAll(kJob, {{"DELIVERY", delivery}});
  for (const auto& [from, to] : edits) {
    EXPECT_THAT(text, HasSubstr(from));
    text = absl::StrReplaceAll(text, {{from, to}});
  }
  return text;
}

LoadedConfig Load(const std::string& text) {
  const std::string servers =
      "{address: 'unix:/replaced', ranks: {vision: "
      "\"0-1\", language: \"0-1\"}}";
  const auto config =
      ParseConfig(absl::StrReplaceAll(text, {{"SERVERS", servers}}),
                  "test.yaml", FormulaFolder("formula", 50));
  EXPECT_TRUE(config.ok()) << config.status();
  return *config;
}

// An index is made for one bound of pixels, and the job reads its own.
const std::vector<std::pair<std::string, std::string>>& Smaller() {
  static const auto* edits =
      new std::vector<std::pair<std::string, std::string>>{
          {"weight: 1}", "weight: 1, index: small-more.index}"},
          {"weight: 3}", "weight: 3, index: small-docs.index}"},
          {"max_pixels: 200704", "max_pixels: 50176"}};
  return *edits;
}

// What is offered to the job: other weights, larger steps, fewer pixels.
const std::vector<std::pair<std::string, std::string>>& Offered() {
  static const auto* edits = [] {
    auto* all = new std::vector<std::pair<std::string, std::string>>(Smaller());
    all->push_back({"weight: 3", "weight: 1"});
    all->push_back({"global: 16", "global: 32"});
    return all;
  }();
  return *edits;
}

class RevisionsTest : public ::testing::Test {
 protected:
  // Starts the job of kJob.
  void Start(
      const std::string& delivery, int servers,
      const std::vector<std::pair<std::string, std::string>>& edits = {}) {
    folder_ = absl::StrCat(
        ::testing::TempDir(), "/",
        ::testing::UnitTest::GetInstance()->current_test_info()->name(), "-",
        delivery, servers);
    std::filesystem::remove_all(folder_);
    ASSERT_TRUE(IndexSources(Load(Text(delivery, Smaller())), {}).ok());
    LoadedConfig config = Load(Text(delivery, edits));
    config.config.mutable_serve()->set_revisions(folder_ + "/revisions");
    auto cluster = TestCluster::Start(config, servers);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
  }

  std::string Servers() const {
    const auto& addresses = cluster_->addresses();
    if (addresses.size() == 1) {
      return absl::StrCat("{address: '", addresses[0],
                          "', ranks: {vision: \"0-1\", language: \"0-1\"}}");
    }
    std::string text;
    for (size_t s = 0; s < addresses.size(); ++s) {
      absl::StrAppend(&text, s == 0 ? "" : ", ", "{address: '", addresses[s],
                      "', ranks: {vision: \"", s, "-", s, "\", language: \"", s,
                      "-", s, "\"}}");
    }
    return text;
  }

  absl::StatusOr<v1::ChangeResponse> Change(const std::string& text,
                                            uint64_t from, bool dry = false) {
    v1::ChangeRequest request;
    request.set_config(absl::StrReplaceAll(text, {{"SERVERS", Servers()}}));
    request.set_first_step(from);
    request.set_dry_run(dry);
    return QueryClient(cluster_->addresses()[0]).Change(request);
  }

  // Waits until the servers know the changes of each other, and serve ranks.
  void AwaitComplete() {
    for (const std::string& address : cluster_->addresses()) {
      QueryClient client(address);
      while (!client.GetRevisions(0)->knows()) std::this_thread::yield();
      const auto health = LoaderClient::Create(address);
      while (!health->CheckHealth().ok()) std::this_thread::yield();
    }
  }

  // The batches of a job that had the change in its configuration from its
  // start.
  TestCluster::Batches Wanted(const std::string& delivery, int servers) {
    const auto run = [&](const std::string& text, uint64_t step,
                         uint64_t steps) {
      auto cluster = TestCluster::Start(Load(text), servers);
      EXPECT_TRUE(cluster.ok()) << cluster.status();
      auto batches = (*cluster)->RunRanks(step, steps);
      EXPECT_TRUE(batches.ok()) << batches.status();
      return batches.ok() ? *batches : TestCluster::Batches();
    };
    TestCluster::Batches wanted = run(Text(delivery), 0, kFrom);
    const std::string order = absl::StrCat(
        "order: {mixture_changes: [{step: ", kFrom, ", weights: {docs: 1}}]}");
    const std::string batch =
        absl::StrCat("global: 16, changes: [{step: ", kFrom, ", global: 32}]");
    std::vector<std::pair<std::string, std::string>> edits = Smaller();
    edits.push_back({"order: {}", order});
    edits.push_back({"global: 16", batch});
    wanted.merge(run(Text(delivery, edits), kFrom, kEnd - kFrom));
    return wanted;
  }

  static void ExpectSame(const TestCluster::Batches& got,
                         const TestCluster::Batches& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (const auto& [key, batch] : wanted) {
      const auto found = got.find(key);
      ASSERT_TRUE(found != got.end()) << std::get<0>(key);
      EXPECT_EQ(ComputeDigest(found->second), ComputeDigest(batch))
          << "step " << std::get<0>(key);
    }
  }

  std::string folder_;
  std::unique_ptr<TestCluster> cluster_;
};

class DeliveryRevisionsTest
    : public RevisionsTest,
      public ::testing::WithParamInterface<const char*> {};

// The change is offered while all ranks train step 2, and they learn of it with
// the schedule of its first step.
TEST_P(DeliveryRevisionsTest, RanksGoOverTheStepWithoutARestart) {
  const std::string delivery = GetParam();
  const int servers = 2;
  Start(delivery, servers);
  AwaitComplete();
  Mutex mutex;
  bool offered = false;
  const auto batches = cluster_->RunRanks(0, kEnd, [&](const RankBatch& batch) {
    if (batch.batch->step < 2) return;
    MutexLock lock(&mutex);
    if (offered) return;
    offered = true;
    const auto change = Change(Text(delivery, Offered()), kFrom);
    ASSERT_TRUE(change.ok()) << change.status();
    EXPECT_EQ(change->revision().number(), 1);
    EXPECT_EQ(change->servers_size(), servers);
  });
  ASSERT_TRUE(batches.ok()) << batches.status();
  ASSERT_TRUE(offered);
  ExpectSame(*batches, Wanted(delivery, servers));
}

// What changes without the order: the steps from the change on are the steps of
// a job that was started with the file.
TEST_F(RevisionsTest, PackingAndRecipesAloneChange) {
  const std::string recipe =
      absl::StrCat(FormulaFolder("formula", 50), "/revised_plan.py");
  std::ofstream(recipe) << R"(
import ballast.recipe as recipe

@recipe.image_plan
def plan(facts):
    return recipe.ImagePlan([(56, 28 * (1 + facts.width % 2))])
)";
  using Edits = std::vector<std::pair<std::string, std::string>>;
  const auto packs = [](const std::string& room) {
    return Edits{{"order: {}",
                  "packing: {mode: scheduled, "
                  "max_tokens_per_rank: " +
                      room + "}"},
                 {"micro: 8", "micro: 8, max_tokens: 512"}};
  };
  std::vector<std::pair<Edits, Edits>> changes = {
      {packs("8192"), packs("512")}};
  if (!FindPythons().empty()) {
    changes.push_back({{},
                       {{"weight: 1}", "weight: 1, index: recipe-more.index}"},
                        {"weight: 3}", "weight: 3, index: recipe-docs.index}"},
                        {"max_pixels: 200704",
                         "max_pixels: 200704, recipe: revised_plan.py"}}});
  }
  for (const auto& [running, offered] : changes) {
    SCOPED_TRACE(offered[0].second);
    const std::string text = Text("exchange", offered);
    const auto indexed = IndexSources(Load(text), {});
    ASSERT_TRUE(indexed.ok()) << indexed.status();
    Start("exchange", 2, running);
    AwaitComplete();
    const auto change = Change(text, kFrom);
    ASSERT_TRUE(change.ok()) << change.status();
    const auto before = cluster_->RunRanks(kFrom - 1, 1);
    ASSERT_TRUE(before.ok()) << before.status();
    const auto got = cluster_->RunRanks(kFrom, kEnd - kFrom);
    ASSERT_TRUE(got.ok()) << got.status();
    const auto run = [&](const std::string& file, uint64_t step,
                         uint64_t steps) {
      auto cluster = TestCluster::Start(Load(file), 2);
      EXPECT_TRUE(cluster.ok()) << cluster.status();
      auto batches = (*cluster)->RunRanks(step, steps);
      EXPECT_TRUE(batches.ok()) << batches.status();
      return *std::move(batches);
    };
    ExpectSame(*before, run(Text("exchange", running), kFrom - 1, 1));
    ExpectSame(*got, run(text, kFrom, kEnd - kFrom));
    const auto digests = [](const TestCluster::Batches& batches) {
      std::vector<std::string> digests;
      for (const auto& each : batches) {
        digests.push_back(ComputeDigest(each.second));
      }
      return digests;
    };
    EXPECT_NE(digests(*got),
              digests(run(Text("exchange", running), kFrom, kEnd - kFrom)));
  }
}

INSTANTIATE_TEST_SUITE_P(Deliveries, DeliveryRevisionsTest,
                         ::testing::Values("exchange", "direct", "hybrid",
                                           "off"));

// All servers of the job end and start again: the file has the change. A
// checkpoint that was made after it resumes, and so does one of before.
TEST_F(RevisionsTest, AChangeOutlivesItsServers) {
  Start("exchange", 2);
  AwaitComplete();
  ASSERT_TRUE(Change(Text("exchange", Offered()), kFrom).ok());
  const auto attached =
      LoaderClient::Create(cluster_->addresses()[0])->Attach({}, {});
  ASSERT_TRUE(attached.ok());
  ASSERT_EQ(attached->revisions_size(), 1);
  EXPECT_EQ(attached->revisions(0).first_step(), kFrom);
  cluster_->Kill(0);
  cluster_->Kill(1);
  ASSERT_TRUE(cluster_->Restart(1).ok());
  ASSERT_TRUE(cluster_->Restart(0).ok());
  auto batches = cluster_->RunRanks(0, kEnd, attached->fingerprint());
  ASSERT_TRUE(batches.ok()) << batches.status();
  ExpectSame(*batches, Wanted("exchange", 2));

  const auto again =
      LoaderClient::Create(cluster_->addresses()[1])->Attach({}, {});
  const std::vector<v1::Revision> chain(attached->revisions().begin(),
                                        attached->revisions().end());
  const auto check = [&](absl::Span<const v1::Revision> revisions,
                         uint64_t next_step) {
    return CheckSameData(attached->fingerprint(), revisions, *again, "servers",
                         v1::SPLIT_TRAIN, next_step);
  };
  EXPECT_TRUE(check(chain, kFrom + 3).ok());
  EXPECT_TRUE(check({}, kFrom).ok());
  // It trained a step after the change without it.
  EXPECT_FALSE(check({}, kFrom + 1).ok());
}

TEST_F(RevisionsTest, AServerThatHasLostItsFileLearnsTheChange) {
  Start("exchange", 2);
  AwaitComplete();
  ASSERT_TRUE(Change(Text("exchange", Offered()), kFrom).ok());
  cluster_->Kill(1);
  std::filesystem::remove(folder_ + "/revisions.1");
  ASSERT_TRUE(cluster_->Restart(1).ok());
  AwaitComplete();
  const auto known = QueryClient(cluster_->addresses()[1]).GetRevisions(0);
  ASSERT_EQ(known->revisions_size(), 1);
  EXPECT_EQ(known->revisions(0).first_step(), kFrom);
  auto batches = cluster_->RunRanks(0, kEnd, nullptr);
  ASSERT_TRUE(batches.ok()) << batches.status();
  ExpectSame(*batches, Wanted("exchange", 2));
}

TEST_F(RevisionsTest, NothingChangesUnlessAllServersAgree) {
  Start("exchange", 2);
  AwaitComplete();
  const auto message = [](const absl::StatusOr<v1::ChangeResponse>& change) {
    return std::string(change.status().message());
  };
  const std::string text = Text("exchange", Offered());
  const auto dry = Change(text, kFrom, /*dry=*/true);
  ASSERT_TRUE(dry.ok()) << dry.status();
  EXPECT_EQ(dry->revision().number(), 0);
  EXPECT_GT(dry->differences_size(), 2);
  // Ranks reach steps 0 to 9.
  ASSERT_TRUE(cluster_->RunRanks(0, 10).ok());
  EXPECT_THAT(message(Change(text, 12)),
              HasSubstr("would begin at step 12, and the earliest step is 14"));
  EXPECT_THAT(
      message(Change(Text("off"), kFrom)),
      HasSubstr("ranks lay out their batches by what the file changes"));
  EXPECT_THAT(message(Change(absl::StrCat(text, "\nnonsense: 1\n"), kFrom)),
              HasSubstr("nonsense"));
  v1::ChangeRequest request;
  request.set_config(text);
  request.set_first_step(kFrom);
  EXPECT_THAT(message(QueryClient(cluster_->addresses()[1]).Change(request)),
              HasSubstr("does not decide; offer the change to server"));
  // A server that is away is asked in vain.
  cluster_->Kill(1);
  EXPECT_THAT(message(Change(text, kFrom)), HasSubstr("server unix:"));
  ASSERT_TRUE(cluster_->Restart(1).ok());
  for (const std::string& address : cluster_->addresses()) {
    const auto known = QueryClient(address).GetRevisions(0);
    EXPECT_EQ(known->revisions_size(), 0);
    EXPECT_FALSE(known->has_prepared());
  }
  ASSERT_TRUE(cluster_->RunRanks(10, 10).ok());
}

// A server that a person has started again without serve.revisions, while no
// other server answers: it would serve the steps of the change under the job's
// own configuration, next to servers that know better.
TEST_F(RevisionsTest, AServerThatHasLostTheKeyServesNoRankOfTheJob) {
  Start("exchange", 2);
  AwaitComplete();
  ASSERT_TRUE(Change(Text("exchange", Offered()), kFrom).ok());
  const std::string address = cluster_->addresses()[1];
  auto client = LoaderClient::Create(address);
  const auto before = client->Attach({}, {});
  ASSERT_TRUE(before.ok()) << before.status();
  const auto wanted = client->GetSchedule(kFrom, v1::SPLIT_TRAIN);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  EXPECT_EQ(wanted->fingerprint(), before->revisions(0).fingerprint().hash());
  cluster_->Kill(0);
  cluster_->Kill(1);

  const auto config = ParseConfig(
      absl::StrReplaceAll(Text("exchange"), {{"SERVERS", Servers()},
                                             {"unix:/replaced", address}}),
      "test.yaml", FormulaFolder("formula", 50));
  ASSERT_TRUE(config.ok()) << config.status();
  const auto server = LoaderServer::Start(*config);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto attached = client->Attach({}, before->fingerprint());
  EXPECT_EQ(attached.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(attached.status().message()),
              HasSubstr("serve.revisions"));
  // A rank that was attached before compares each schedule and block.
  const auto schedule = client->GetSchedule(kFrom, v1::SPLIT_TRAIN);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_NE(schedule->fingerprint(), before->fingerprint().hash());
  RevisionChain chain(before->fingerprint().hash(), {});
  EXPECT_EQ(chain.Extend(*client->Attach({}, {})).code(),
            absl::StatusCode::kFailedPrecondition);
}

// Operators take a server out of use by its health: it is NOT_SERVING while no
// rank is served, and SERVING while only the steps of a change wait.
TEST_F(RevisionsTest, HealthSaysWhetherRanksAreServed) {
  Start("exchange", 2);
  AwaitComplete();
  const std::string address = cluster_->addresses()[1];
  auto client = LoaderClient::Create(address);
  // As the server that decides asks, which then goes away.
  const auto stub = v1::RevisionService::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  v1::AgreeRequest ask;
  ask.set_job(client->Attach({}, {})->fingerprint().hash());
  ask.mutable_revision()->set_number(1);
  ask.mutable_revision()->set_first_step(kFrom);
  ask.mutable_revision()->set_config(absl::StrReplaceAll(
      Text("exchange", Offered()), {{"SERVERS", Servers()}}));
  ask.mutable_revision()->set_book(
      QueryClient(cluster_->addresses()[0]).GetRevisions(0)->book());
  ask.mutable_revision()->set_attempt(1);
  const auto agree = [&](v1::AgreeRequest::Phase phase) {
    ask.set_phase(phase);
    grpc::ClientContext context;
    v1::AgreeResponse answer;
    const grpc::Status status = stub->Agree(&context, ask, &answer);
    EXPECT_TRUE(status.ok()) << status.error_message();
    ask.mutable_revision()->set_fingerprint(answer.fingerprint());
  };
  agree(v1::AgreeRequest::PHASE_CHECK);
  agree(v1::AgreeRequest::PHASE_PREPARE);
  EXPECT_TRUE(client->GetSchedule(kFrom - 1, v1::SPLIT_TRAIN).ok());
  const auto held = client->GetSchedule(kFrom, v1::SPLIT_TRAIN);
  EXPECT_EQ(held.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(held.status().message()),
              HasSubstr("step 16 waits: the servers of the job agree on change "
                        "1 from step 16"));
  EXPECT_TRUE(client->CheckHealth().ok());

  cluster_->Kill(0);
  cluster_->Kill(1);
  std::filesystem::remove(folder_ + "/revisions.1");
  ASSERT_TRUE(cluster_->Restart(1).ok());
  client = LoaderClient::Create(address);
  EXPECT_FALSE(client->CheckHealth().ok());
  EXPECT_THAT(
      std::string(client->GetSchedule(0, v1::SPLIT_TRAIN).status().message()),
      HasSubstr("has not answered yet"));
  ASSERT_TRUE(cluster_->Restart(0).ok());
  AwaitComplete();
}

TEST_F(RevisionsTest, AFileThatHasBeenEmptiedEndsTheServer) {
  Start("exchange", 2);
  AwaitComplete();
  cluster_->Kill(1);
  std::filesystem::resize_file(folder_ + "/revisions.1", 0);
  const absl::Status status = cluster_->Restart(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no file of revisions, or damaged; restore it"));
}

TEST_F(RevisionsTest, AServerWithoutTheKeyTakesPartInNoChange) {
  LoadedConfig config = Load(Text("exchange"));
  auto cluster = TestCluster::Start(config, 1);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  cluster_ = *std::move(cluster);
  EXPECT_THAT(
      std::string(
          Change(Text("exchange", Offered()), kFrom).status().message()),
      HasSubstr("has no serve.revisions"));
}

}  // namespace
}  // namespace ballast
