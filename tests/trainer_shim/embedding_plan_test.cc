#include "trainer_shim/embedding_plan.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/schedule/schedule_table.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint32_t kMerge = 2;

// Appends a sample with one image for each of `grids`, which are (height,
// width) in patches.
void AddSample(uint32_t vision, uint32_t language, uint32_t place,
               const std::vector<std::pair<uint32_t, uint32_t>>& grids,
               v1::MicroBatchSchedule* out) {
  out->add_position(100 + out->position_size());
  out->add_images(grids.size());
  for (const auto& [height, width] : grids) {
    out->add_grid_h(height);
    out->add_grid_w(width);
  }
  out->add_place(place);
  out->mutable_modules(0)->add_owner(vision);
  out->mutable_modules(1)->add_owner(language);
}

v1::MicroBatchSchedule Empty(uint32_t vision_dp, uint32_t language_dp) {
  v1::MicroBatchSchedule out;
  out.add_modules()->set_module(v1::MODULE_VISION);
  out.add_modules()->set_module(v1::MODULE_LANGUAGE);
  out.mutable_modules(0)->mutable_load_after()->Resize(vision_dp, 0);
  out.mutable_modules(1)->mutable_load_after()->Resize(language_dp, 0);
  return out;
}

EmbeddingPlan GetPlan(const v1::MicroBatchSchedule& schedule,
                      const EmbeddingRank& rank) {
  EmbeddingPlan plan;
  const absl::Status status = PlanEmbeddings(schedule, rank, kMerge, &plan);
  EXPECT_TRUE(status.ok()) << status;
  return plan;
}

// Rank 0 trains on the text of samples 0 and 1, and encodes 1 and 2.
TEST(EmbeddingPlanTest, AnExampleByHand) {
  v1::MicroBatchSchedule schedule = Empty(2, 2);
  AddSample(1, 0, 0, {{2, 4}}, &schedule);          // 2 rows
  AddSample(0, 0, 1, {{2, 2}, {4, 4}}, &schedule);  // 5 rows
  AddSample(0, 1, 2, {{2, 6}}, &schedule);          // 3 rows
  const EmbeddingPlan first = GetPlan(schedule, {0});
  EXPECT_THAT(first.send, ElementsAre(5, 3));
  EXPECT_THAT(first.receive, ElementsAre(5, 2));
  // Sample 0's rows arrive last, from rank 1.
  EXPECT_THAT(first.order, ElementsAre(5, 6, 0, 1, 2, 3, 4));
  const EmbeddingPlan second = GetPlan(schedule, {1});
  EXPECT_THAT(second.send, ElementsAre(2, 0));
  EXPECT_THAT(second.receive, ElementsAre(3, 0));
  EXPECT_THAT(second.order, ElementsAre(0, 1, 2));
}

// Ranks 0 and 1 share the pack of samples 0 and 1; ranks 2 and 3 have one each.
TEST(EmbeddingPlanTest, APackThatRanksShare) {
  v1::MicroBatchSchedule schedule = Empty(4, 4);
  AddSample(1, 0, 0, {{2, 4}}, &schedule);          // 2 rows
  AddSample(0, 0, 1, {{2, 2}, {4, 4}}, &schedule);  // 5 rows
  AddSample(0, 2, 2, {{2, 6}}, &schedule);          // 3 rows
  AddSample(3, 3, 3, {}, &schedule);
  for (const uint32_t ranks : {2, 2, 1, 1}) {
    schedule.mutable_modules(1)->add_pack_ranks(ranks);
  }
  const EmbeddingPlan first = GetPlan(schedule, {0});
  EXPECT_TRUE(first.shared);
  EXPECT_THAT(first.send, ElementsAre(5, 5, 3, 0));
  EXPECT_THAT(first.send_order,
              ElementsAre(0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(first.receive, ElementsAre(5, 2, 0, 0));
  EXPECT_THAT(first.order, ElementsAre(5, 6, 0, 1, 2, 3, 4));
  EXPECT_THAT(first.sent_runs, IsEmpty());
  const EmbeddingPlan second = GetPlan(schedule, {1});
  EXPECT_THAT(second.send, ElementsAre(2, 2, 0, 0));
  EXPECT_THAT(second.send_order, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(second.receive, ElementsAre(5, 2, 0, 0));
  EXPECT_EQ(second.order, first.order);
  EXPECT_THAT(GetPlan(schedule, {2}).receive, ElementsAre(3, 0, 0, 0));
  const EmbeddingPlan last = GetPlan(schedule, {3});
  EXPECT_TRUE(last.shared);
  EXPECT_THAT(last.send, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(last.send_order, IsEmpty());
}

TEST(EmbeddingPlanTest, ARankWithoutImagesSendsAndReceivesNothing) {
  v1::MicroBatchSchedule schedule = Empty(2, 2);
  AddSample(0, 0, 0, {{2, 2}}, &schedule);
  AddSample(1, 1, 1, {}, &schedule);
  const EmbeddingPlan plan = GetPlan(schedule, {1});
  EXPECT_TRUE(plan.planned());
  EXPECT_THAT(plan.send, ElementsAre(0, 0));
  EXPECT_THAT(plan.receive, ElementsAre(0, 0));
  EXPECT_THAT(plan.order, IsEmpty());
}

TEST(EmbeddingPlanTest, ReplacesTheFormerPlan) {
  v1::MicroBatchSchedule schedule = Empty(1, 1);
  AddSample(0, 0, 0, {{2, 2}}, &schedule);
  EmbeddingPlan plan;
  plan.send = {7, 7, 7};
  plan.receive = {1};
  plan.order = {4, 5};
  plan.shared = true;
  plan.send_order = {6};
  ASSERT_TRUE(PlanEmbeddings(schedule, {0}, kMerge, &plan).ok());
  EXPECT_THAT(plan.send, ElementsAre(1));
  EXPECT_THAT(plan.receive, ElementsAre(1));
  EXPECT_THAT(plan.order, ElementsAre(0));
  EXPECT_FALSE(plan.shared);
  EXPECT_THAT(plan.send_order, IsEmpty());
}

TEST(EmbeddingPlanTest, RefusesModulesOnDifferentRanks) {
  EmbeddingPlan plan;
  EXPECT_THAT(PlanEmbeddings(Empty(2, 4), {0}, kMerge, &plan).message(),
              HasSubstr("vision dp 2 and language dp 4"));
  EXPECT_THAT(PlanEmbeddings(Empty(2, 2), {2}, kMerge, &plan).message(),
              HasSubstr("embeddings of rank 2"));
  EXPECT_TRUE(
      PlanEmbeddings(Empty(2, 4), {3, false, true}, kMerge, &plan).ok());
  EXPECT_THAT(
      PlanEmbeddings(Empty(2, 4), {3, true, false}, kMerge, &plan).message(),
      HasSubstr("embeddings of rank 3 of the encoder"));
  EXPECT_THAT(
      PlanEmbeddings(Empty(4, 2), {3, false, true}, kMerge, &plan).message(),
      HasSubstr("embeddings of rank 3 of language"));
  v1::MicroBatchSchedule vision = Empty(2, 2);
  vision.mutable_modules()->RemoveLast();
  EXPECT_THAT(PlanEmbeddings(vision, {0}, kMerge, &plan).message(),
              HasSubstr("language dp 0"));
  v1::MicroBatchSchedule language = Empty(2, 2);
  language.mutable_modules()->DeleteSubrange(0, 1);
  EXPECT_THAT(PlanEmbeddings(language, {0}, kMerge, &plan).message(),
              HasSubstr("embeddings of 0 encoders"));
  v1::MicroBatchSchedule twice = Empty(2, 2);
  *twice.add_modules() = twice.modules(0);
  EXPECT_THAT(PlanEmbeddings(twice, {0}, kMerge, &plan).message(),
              HasSubstr("embeddings of 2 encoders"));
}

// The same ranks, and rows of their own: sample 0 has two clips of 3 and 1
// tokens, sample 1 none, sample 2 one of 5.
TEST(EmbeddingPlanTest, EachEncoderHasItsPlan) {
  v1::MicroBatchSchedule schedule = Empty(2, 2);
  AddSample(1, 0, 0, {{2, 4}}, &schedule);
  AddSample(0, 0, 1, {{2, 2}}, &schedule);
  AddSample(0, 1, 2, {}, &schedule);
  v1::ModuleSchedule* audio = schedule.add_modules();
  audio->set_module(v1::MODULE_AUDIO);
  audio->mutable_load_after()->Resize(3, 0);
  for (const uint32_t owner : {2, 0, 1}) audio->add_owner(owner);
  for (const uint32_t clips : {2, 0, 1}) schedule.add_clips(clips);
  for (const uint32_t rows : {30, 10, 50}) schedule.add_clip_rows(rows);
  EmbeddingRank text = {0, false, true, v1::MODULE_AUDIO};
  EmbeddingPlan plan;
  EXPECT_THAT(PlanEmbeddings(schedule, text, kMerge, &plan).message(),
              HasSubstr("clip_tokens of 0 of 3 clips"));
  for (const uint32_t tokens : {3, 1, 5}) schedule.add_clip_tokens(tokens);
  EXPECT_THAT(GetPlan(schedule, text).receive, ElementsAre(0, 0, 4));
  EXPECT_THAT(GetPlan(schedule, text).order, ElementsAre(0, 1, 2, 3));
  text.rank = 1;
  EXPECT_THAT(GetPlan(schedule, text).receive, ElementsAre(0, 5, 0));
  const EmbeddingRank heard = {2, true, false, v1::MODULE_AUDIO};
  EXPECT_THAT(GetPlan(schedule, heard).send, ElementsAre(4, 0));
  EXPECT_THAT(GetPlan(schedule, {0}).send, ElementsAre(1, 0));
  EXPECT_THAT(GetPlan(schedule, {0}).receive, ElementsAre(1, 2));
}

TEST(EmbeddingPlanTest, RefusesOwnersThatDoNotAscendWithPlace) {
  v1::MicroBatchSchedule schedule = Empty(2, 2);
  AddSample(0, 1, 0, {{2, 2}}, &schedule);
  AddSample(0, 0, 1, {{2, 2}}, &schedule);
  EmbeddingPlan plan;
  EXPECT_THAT(PlanEmbeddings(schedule, {0}, kMerge, &plan).message(),
              HasSubstr("position 101 at place 1 belongs to language rank 0"));
}

// One row of a tower's output: a sample, and the row's number within it.
using RowName = std::pair<uint32_t, int64_t>;

// The rows of the samples that `rank` owns in a module, in the order of place:
// the tower's output (vision), or the placeholders of the packed text.
std::vector<RowName> GetRows(const v1::MicroBatchSchedule& schedule, int module,
                             uint32_t rank) {
  std::vector<uint32_t> samples(schedule.place_size());
  std::iota(samples.begin(), samples.end(), 0);
  std::sort(samples.begin(), samples.end(), [&](uint32_t a, uint32_t b) {
    return schedule.place(a) < schedule.place(b);
  });
  std::vector<RowName> rows;
  for (const uint32_t i : samples) {
    if (!TrainsOn(schedule.modules(module), i, rank)) continue;
    uint32_t first = 0;
    for (uint32_t k = 0; k < i; ++k) first += schedule.images(k);
    int64_t count = 0;
    for (uint32_t k = first; k < first + schedule.images(i); ++k) {
      count += schedule.grid_h(k) * schedule.grid_w(k) / (kMerge * kMerge);
    }
    for (int64_t row = 0; row < count; ++row) rows.emplace_back(i, row);
  }
  return rows;
}

// Up to 39 samples of up to 3 images, with random places and owners.
v1::MicroBatchSchedule Draw(uint32_t vision_dp, uint32_t language_dp,
                            std::mt19937* random) {
  const uint32_t samples = (*random)() % 40;
  v1::MicroBatchSchedule schedule = Empty(vision_dp, language_dp);
  std::vector<uint32_t> places(samples), language(samples);
  std::iota(places.begin(), places.end(), 0);
  std::shuffle(places.begin(), places.end(), *random);
  for (uint32_t& owner : language) owner = (*random)() % language_dp;
  std::sort(language.begin(), language.end());
  for (const uint32_t place : places) {
    std::vector<std::pair<uint32_t, uint32_t>> grids((*random)() % 4);
    for (auto& [height, width] : grids) {
      height = kMerge * (1 + (*random)() % 3);
      width = kMerge * (1 + (*random)() % 3);
    }
    AddSample((*random)() % vision_dp, language[place], place, grids,
              &schedule);
  }
  return schedule;
}

class EmbeddingPlanOracleTest : public ::testing::TestWithParam<uint32_t> {};

// Runs the all-to-all on named rows: every placeholder gets its own. The plans
// are those of the encoder's ranks and of language's.
void CheckRowsArrive(const v1::MicroBatchSchedule& schedule,
                     const std::vector<EmbeddingPlan>& vision,
                     const std::vector<EmbeddingPlan>& language) {
  std::vector<std::vector<RowName>> received(language.size());
  for (uint32_t from = 0; from < vision.size(); ++from) {
    std::vector<RowName> rows = GetRows(schedule, 0, from);
    if (vision[from].shared) {
      std::vector<RowName> sent;
      for (const int64_t row : vision[from].send_order) {
        sent.push_back(rows.at(row));
      }
      rows = std::move(sent);
    }
    ASSERT_EQ(vision[from].send.size(), language.size());
    size_t at = 0;
    for (uint32_t to = 0; to < language.size(); ++to) {
      const int64_t count = vision[from].send[to];
      ASSERT_EQ(language[to].receive.size(), vision.size());
      ASSERT_EQ(language[to].receive[from], count);
      ASSERT_LE(at + count, rows.size());
      received[to].insert(received[to].end(), rows.begin() + at,
                          rows.begin() + at + count);
      at += count;
    }
    EXPECT_EQ(at, rows.size());
  }
  for (uint32_t r = 0; r < language.size(); ++r) {
    std::vector<RowName> placed;
    for (const int64_t row : language[r].order) {
      placed.push_back(received[r][row]);
    }
    EXPECT_EQ(placed, GetRows(schedule, 1, r)) << "rank " << r;
  }
}

TEST_P(EmbeddingPlanOracleTest, EveryPlaceholderGetsItsRow) {
  std::mt19937 random(GetParam());
  const uint32_t dp = 1 + random() % 7;
  const v1::MicroBatchSchedule schedule = Draw(dp, dp, &random);
  std::vector<EmbeddingPlan> plans;
  for (uint32_t r = 0; r < dp; ++r) plans.push_back(GetPlan(schedule, {r}));
  CheckRowsArrive(schedule, plans, plans);
}

// Draw's samples in packs that 1, 2, 4 or 8 ranks share.
v1::MicroBatchSchedule DrawShared(std::mt19937* random) {
  const uint32_t dp = 8;
  v1::MicroBatchSchedule schedule = Draw(dp, dp, random);
  std::vector<uint32_t> owner(dp), ranks(dp);
  for (uint32_t r = 0; r < dp;) {
    uint32_t shared = 1 << (*random)() % 4;
    while (r % shared != 0) shared /= 2;
    for (const uint32_t first = r; r < first + shared; ++r) {
      owner[r] = first;
      ranks[r] = shared;
    }
  }
  v1::ModuleSchedule& language = *schedule.mutable_modules(1);
  for (uint32_t& rank : *language.mutable_owner()) {
    language.add_pack_ranks(ranks[rank]);
    rank = owner[rank];
  }
  return schedule;
}

TEST_P(EmbeddingPlanOracleTest, EveryRankOfAPackGetsItsRows) {
  std::mt19937 random(GetParam() + 3000);
  const v1::MicroBatchSchedule schedule = DrawShared(&random);
  std::vector<EmbeddingPlan> plans;
  for (uint32_t r = 0; r < 8; ++r) plans.push_back(GetPlan(schedule, {r}));
  CheckRowsArrive(schedule, plans, plans);
}

// Ranks of one module each, of any numbers: an encoder's send only, language's
// receive only.
TEST_P(EmbeddingPlanOracleTest, ModulesOnRanksOfTheirOwn) {
  std::mt19937 random(GetParam() + 2000);
  const uint32_t vision_dp = 1 + random() % 7;
  const uint32_t language_dp = 1 + random() % 7;
  const v1::MicroBatchSchedule schedule = Draw(vision_dp, language_dp, &random);
  std::vector<EmbeddingPlan> vision, language;
  for (uint32_t r = 0; r < vision_dp; ++r) {
    vision.push_back(GetPlan(schedule, {r, true, false}));
    EXPECT_TRUE(vision.back().apart());
    EXPECT_THAT(vision.back().receive, IsEmpty());
    EXPECT_THAT(vision.back().order, IsEmpty());
    EXPECT_THAT(vision.back().sent_runs, IsEmpty());
  }
  for (uint32_t r = 0; r < language_dp; ++r) {
    language.push_back(GetPlan(schedule, {r, false, true}));
    EXPECT_TRUE(language.back().apart());
    EXPECT_THAT(language.back().send, IsEmpty());
    EXPECT_THAT(language.back().received_runs, IsEmpty());
  }
  CheckRowsArrive(schedule, vision, language);
}

// The same by runs, which need no permutation: the k-th that a sends to b is
// the k-th that b receives from a.
TEST_P(EmbeddingPlanOracleTest, RunsBringEveryRowToItsPlaceholder) {
  std::mt19937 random(GetParam() + 1000);
  const uint32_t dp = 1 + random() % 7;
  const v1::MicroBatchSchedule schedule = Draw(dp, dp, &random);
  std::vector<EmbeddingPlan> plans;
  for (uint32_t r = 0; r < dp; ++r) plans.push_back(GetPlan(schedule, {r}));
  for (uint32_t to = 0; to < dp; ++to) {
    std::vector<RowName> text;
    std::vector<size_t> taken(dp);  // runs of each sender
    for (const EmbeddingPlan::Run& run : plans[to].received_runs) {
      const std::vector<RowName> tower = GetRows(schedule, 0, run.peer);
      const auto& sent = plans[run.peer].sent_runs;
      size_t& k = taken[run.peer];
      while (k < sent.size() && sent[k].peer != to) ++k;
      ASSERT_LT(k, sent.size());
      ASSERT_GT(run.rows, 0);
      ASSERT_EQ(sent[k].rows, run.rows);
      ASSERT_EQ(run.first, text.size());
      text.insert(text.end(), tower.begin() + sent[k].first,
                  tower.begin() + sent[k].first + run.rows);
      ++k;
    }
    EXPECT_EQ(text, GetRows(schedule, 1, to)) << "rank " << to;
    for (uint32_t from = 0; from < dp; ++from) {
      const auto& sent = plans[from].sent_runs;
      for (; taken[from] < sent.size(); ++taken[from]) {
        EXPECT_NE(sent[taken[from]].peer, to) << "a run that nobody receives";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EmbeddingPlanOracleTest,
                         ::testing::Range(0u, 50u));

}  // namespace
}  // namespace ballast
