// balance.placement `split`: every sample has an owner in each module, each
// module is at its own bound, and the totals count the embeddings that move.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"
#include "tests/fakes/job_config.h"
#include "tests/server/schedule/formula_scheduler.h"

namespace ballast {
namespace {

// A lower bound on the largest load of any partition of `costs` into `ranks`
// sets, tighter than the mean and the largest cost where few large samples
// share a rank. For each k: of the m costliest samples, m > k*ranks, s ranks
// hold more than k each, and those hold at least m - k*(ranks - s) of them
// together. The fullest of these ranks has at least their mean, even if they
// hold the cheapest ones. s is not known: the least value over all s counts.
double LoadBound(std::vector<double> costs, uint32_t ranks) {
  std::sort(costs.begin(), costs.end(), std::greater<double>());
  const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / ranks;
  double bound = std::max(mean, costs.empty() ? 0 : costs[0]);
  std::vector<double> sums(costs.size() + 1, 0);  // of the costliest
  std::partial_sum(costs.begin(), costs.end(), sums.begin() + 1);
  for (size_t k = 1; k < 8 && k * ranks < costs.size(); ++k) {
    const size_t step = std::max<size_t>(1, ranks / 64);
    for (size_t m = k * ranks + 1; m <= costs.size(); m += step) {
      double least = std::numeric_limits<double>::infinity();
      for (size_t s = 1; s <= ranks; ++s) {
        const size_t held = std::max(m - k * (ranks - s), (k + 1) * s);
        if (held > m) break;
        least = std::min(least, (sums[m] - sums[m - held]) / s);
      }
      bound = std::max(bound, least);
    }
  }
  return bound;
}

v1::Config SplitConfig(uint32_t dp, uint32_t global, uint32_t micro,
                       v1::Delivery delivery = v1::DELIVERY_EXCHANGE) {
  v1::Config config = JobConfig(dp, dp, global, micro, delivery);
  config.mutable_balance()->set_placement(v1::Balance::PLACEMENT_SPLIT);
  config.mutable_balance()->mutable_cost()->mutable_language()->set_linear(3);
  return config;
}

const v1::ModuleSchedule& ModuleOf(const v1::MicroBatchSchedule& micro_batch,
                                   v1::Module module) {
  return *FindModule(micro_batch, module);
}

// Checks what holds for every schedule with split placement.
void CheckSchedule(const v1::StepSchedule& schedule, const v1::Config& config) {
  ASSERT_TRUE(CheckColumns(schedule).ok()) << CheckColumns(schedule);
  std::set<uint64_t> positions;
  uint64_t within = 0;
  uint64_t between = 0;
  for (const auto& micro_batch : schedule.micro_batches()) {
    const auto& vision = ModuleOf(micro_batch, v1::MODULE_VISION);
    const auto& language = ModuleOf(micro_batch, v1::MODULE_LANGUAGE);
    const std::vector<uint64_t> patches = SamplePatches(micro_batch);
    std::vector<uint32_t> by_place(micro_batch.place_size());
    std::vector<uint32_t> images(vision.load_after_size(), 0);
    for (int i = 0; i < micro_batch.place_size(); ++i) {
      EXPECT_TRUE(positions.insert(micro_batch.position(i)).second);
      by_place[micro_batch.place(i)] = language.owner(i);
      images[vision.owner(i)] += micro_batch.images(i);
      if (micro_batch.images(i) == 0) {
        EXPECT_EQ(vision.owner(i), language.owner(i));
      }
      if (vision.owner(i) == language.owner(i)) continue;
      // Servers hold two ranks each where there are several.
      const bool same = config.topology().servers_size() == 1 ||
                        vision.owner(i) / 2 == language.owner(i) / 2;
      (same ? within : between) += patches[i] / 4;
    }
    EXPECT_TRUE(std::is_sorted(by_place.begin(), by_place.end()));
    for (const auto* module : {&vision, &language}) {
      std::vector<double> loads(module->load_after_size(), 0);
      for (int i = 0; i < module->cost_size(); ++i) {
        loads[module->owner(i)] += module->cost(i);
      }
      for (size_t r = 0; r < loads.size(); ++r) {
        EXPECT_DOUBLE_EQ(module->load_after(r), loads[r]);
      }
    }
    // Dummies are exactly the ranks without an image while others have one.
    std::vector<uint32_t> dummies;
    for (uint32_t r = 0; r < images.size(); ++r) {
      if (images[r] == 0) dummies.push_back(r);
    }
    if (dummies.size() == images.size()) dummies.clear();
    EXPECT_EQ(std::vector<uint32_t>(vision.dummy_rank().begin(),
                                    vision.dummy_rank().end()),
              dummies);
    if (config.balance().delivery() == v1::DELIVERY_OFF) continue;
    const uint32_t with_images =
        std::count_if(micro_batch.images().begin(), micro_batch.images().end(),
                      [](uint32_t count) { return count > 0; });
    EXPECT_EQ(dummies.empty(),
              with_images == 0 || with_images >= images.size());
  }
  EXPECT_EQ(positions.size(), config.batch().global());
  EXPECT_EQ(*positions.rbegin() - *positions.begin() + 1, positions.size());
  const v1::EmbeddingsMoved& moved = schedule.totals().embeddings_moved();
  EXPECT_TRUE(schedule.totals().has_embeddings_moved());
  EXPECT_EQ(moved.tokens_within_servers(), within);
  EXPECT_EQ(moved.tokens_between_servers(), between);
}

void AddServers(uint32_t dp, v1::Config* config) {
  config->mutable_topology()->clear_servers();
  for (uint32_t first = 0; first < dp; first += 2) {
    auto* server = config->mutable_topology()->add_servers();
    server->set_address(absl::StrCat("127.0.0.1:", first + 1));
    for (const char* module : {"vision", "language"}) {
      (*server->mutable_ranks())[module] = absl::StrCat(first, "-", first + 1);
    }
  }
}

class SplitPlacementTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(SplitPlacementTest, EverySampleHasOneOwnerAModule) {
  const uint32_t dp = GetParam();
  for (const bool servers : {false, true}) {
    if (servers && dp % 2 != 0) continue;
    v1::Config config = SplitConfig(dp, 8 * dp, 4 * dp);
    if (servers) AddServers(dp, &config);
    for (uint64_t step = 0; step < 4; ++step) {
      CheckSchedule(ScheduleOf(config, step), config);
    }
  }
}

TEST_P(SplitPlacementTest, DeliveriesShareOneSchedule) {
  const uint32_t dp = GetParam();
  const auto schedule = [&](v1::Delivery delivery) {
    return ScheduleToJson(
        ScheduleOf(SplitConfig(dp, 8 * dp, 4 * dp, delivery), 2));
  };
  EXPECT_EQ(schedule(v1::DELIVERY_DIRECT), schedule(v1::DELIVERY_EXCHANGE));
  EXPECT_EQ(schedule(v1::DELIVERY_HYBRID), schedule(v1::DELIVERY_EXCHANGE));
}

TEST_P(SplitPlacementTest, OffLeavesEverySampleAtItsReader) {
  const uint32_t dp = GetParam();
  const v1::Config config = SplitConfig(dp, 8 * dp, 4 * dp, v1::DELIVERY_OFF);
  const v1::StepSchedule schedule = ScheduleOf(config, 1);
  CheckSchedule(schedule, config);
  for (const auto& micro_batch : schedule.micro_batches()) {
    for (const auto& module : micro_batch.modules()) {
      for (int i = 0; i < module.owner_size(); ++i) {
        EXPECT_EQ(module.owner(i), module.reader(i));
      }
    }
  }
}

TEST_P(SplitPlacementTest, WindowsAreSplitInEachMicroBatch) {
  const uint32_t dp = GetParam();
  v1::Config config = SplitConfig(dp, 16 * dp, 4 * dp);
  config.mutable_balance()->set_scope(v1::Balance::SCOPE_WINDOW);
  config.mutable_balance()->set_window(2);
  CheckSchedule(ScheduleOf(config, 3), config);
}

TEST_P(SplitPlacementTest, PipelineOrderKeepsTheOwners) {
  const uint32_t dp = GetParam();
  v1::Config config = SplitConfig(dp, 16 * dp, 4 * dp);
  config.mutable_balance()->set_order(v1::Balance::ORDER_PIPELINE);
  CheckSchedule(ScheduleOf(config, 3), config);
}

TEST_P(SplitPlacementTest, ScheduledPacksAreLanguages) {
  const uint32_t dp = GetParam();
  v1::Config config = SplitConfig(dp, 16 * dp, 4 * dp);
  config.mutable_packing()->set_mode(v1::Packing::MODE_SCHEDULED);
  config.mutable_packing()->set_max_tokens_per_rank(4096);
  config.mutable_packing()->set_virtual_pipeline_group(1);
  const v1::StepSchedule split = ScheduleOf(config, 1);
  CheckSchedule(split, config);
  config.mutable_balance()->clear_placement();
  const v1::StepSchedule paired = ScheduleOf(config, 1);
  ASSERT_EQ(split.micro_batches_size(), paired.micro_batches_size());
  for (int m = 0; m < split.micro_batches_size(); ++m) {
    const auto& mine = ModuleOf(split.micro_batches(m), v1::MODULE_LANGUAGE);
    const auto& theirs = ModuleOf(paired.micro_batches(m), v1::MODULE_LANGUAGE);
    EXPECT_EQ(mine.SerializeAsString(), theirs.SerializeAsString());
  }
}

// Images are packed whatever their number, so only language's counts matter.
TEST_P(SplitPlacementTest, EqualCountsHoldForLanguage) {
  const uint32_t dp = GetParam();
  v1::Config config = SplitConfig(dp, 8 * dp, 4 * dp);
  config.mutable_balance()->set_equal_count(true);
  const v1::StepSchedule schedule = ScheduleOf(config, 2);
  CheckSchedule(schedule, config);
  for (const auto& micro_batch : schedule.micro_batches()) {
    std::vector<int> counts(dp, 0);
    for (const uint32_t r :
         ModuleOf(micro_batch, v1::MODULE_LANGUAGE).owner()) {
      ++counts[r];
    }
    EXPECT_EQ(counts, std::vector<int>(dp, 4));
  }
}

// A module without costs has nothing to balance.
TEST_P(SplitPlacementTest, LanguageWithoutCostStaysAsRead) {
  const uint32_t dp = GetParam();
  v1::Config config = SplitConfig(dp, 8 * dp, 4 * dp);
  config.mutable_balance()->mutable_cost()->clear_language();
  const v1::StepSchedule schedule = ScheduleOf(config, 2);
  CheckSchedule(schedule, config);
  for (const auto& micro_batch : schedule.micro_batches()) {
    const auto& language = ModuleOf(micro_batch, v1::MODULE_LANGUAGE);
    for (int i = 0; i < language.owner_size(); ++i) {
      EXPECT_EQ(language.owner(i), language.reader(i));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DpSizes, SplitPlacementTest,
                         ::testing::Values(1, 2, 3, 4, 8));

// Modules on ranks of their own: dp of vision and of language.
using Sizes = std::tuple<uint32_t, uint32_t>;

v1::Config ApartConfig(const Sizes& sizes,
                       v1::Delivery delivery = v1::DELIVERY_EXCHANGE) {
  const auto [vision, language] = sizes;
  const uint32_t micro = 4 * std::lcm(vision, language);
  v1::Config config = JobConfig(vision, language, 4 * micro, micro, delivery);
  config.mutable_topology()->set_colocated(false);
  config.mutable_balance()->set_placement(v1::Balance::PLACEMENT_SPLIT);
  config.mutable_balance()->mutable_cost()->mutable_language()->set_linear(3);
  return config;
}

// Two servers that read for half of each module's ranks.
void AddTwoServers(const Sizes& sizes, v1::Config* config) {
  const auto [vision, language] = sizes;
  config->mutable_topology()->clear_servers();
  for (uint32_t s = 0; s < 2; ++s) {
    auto* server = config->mutable_topology()->add_servers();
    server->set_address(absl::StrCat("127.0.0.1:", s + 1));
    const auto half = [s](uint32_t dp) {
      return absl::StrCat(s * dp / 2, "-", (s + 1) * dp / 2 - 1);
    };
    (*server->mutable_ranks())["vision"] = half(vision);
    (*server->mutable_ranks())["language"] = half(language);
  }
}

class ApartPlacementTest : public ::testing::TestWithParam<Sizes> {
 protected:
  // Checks what holds for every schedule; `servers`: as AddTwoServers.
  void Check(const v1::StepSchedule& schedule, const v1::Config& config,
             bool servers = false) const {
    ASSERT_TRUE(CheckColumns(schedule).ok()) << CheckColumns(schedule);
    const auto [vision_dp, language_dp] = GetParam();
    std::set<uint64_t> positions;
    uint64_t within = 0, between = 0;
    for (const auto& micro_batch : schedule.micro_batches()) {
      const auto& vision = ModuleOf(micro_batch, v1::MODULE_VISION);
      const auto& language = ModuleOf(micro_batch, v1::MODULE_LANGUAGE);
      ASSERT_EQ(vision.load_after_size(), static_cast<int>(vision_dp));
      ASSERT_EQ(language.load_after_size(), static_cast<int>(language_dp));
      const std::vector<uint64_t> patches = SamplePatches(micro_batch);
      std::vector<uint32_t> by_place(micro_batch.place_size());
      std::vector<uint32_t> images(vision_dp, 0), texts(language_dp, 0);
      for (int i = 0; i < micro_batch.place_size(); ++i) {
        EXPECT_TRUE(positions.insert(micro_batch.position(i)).second);
        by_place[micro_batch.place(i)] = language.owner(i);
        images[vision.owner(i)] += micro_batch.images(i);
        ++texts[language.owner(i)];
        if (micro_batch.images(i) == 0) {
          EXPECT_EQ(vision.owner(i), vision.reader(i));
        }
        const bool same = !servers || vision.owner(i) / (vision_dp / 2) ==
                                          language.owner(i) / (language_dp / 2);
        (same ? within : between) += patches[i] / 4;
      }
      EXPECT_TRUE(std::is_sorted(by_place.begin(), by_place.end()));
      EXPECT_EQ(std::count(texts.begin(), texts.end(), 0u), 0);
      std::vector<uint32_t> dummies;
      for (uint32_t r = 0; r < vision_dp; ++r) {
        if (images[r] == 0) dummies.push_back(r);
      }
      if (dummies.size() == images.size()) dummies.clear();
      EXPECT_EQ(std::vector<uint32_t>(vision.dummy_rank().begin(),
                                      vision.dummy_rank().end()),
                dummies);
    }
    EXPECT_EQ(positions.size(), config.batch().global());
    const v1::EmbeddingsMoved& moved = schedule.totals().embeddings_moved();
    EXPECT_EQ(moved.tokens_within_servers(), within);
    EXPECT_EQ(moved.tokens_between_servers(), between);
    EXPECT_EQ(within + between, schedule.totals().patches() / 4);
  }
};

TEST_P(ApartPlacementTest, EverySampleHasOneOwnerAModule) {
  const v1::Config config = ApartConfig(GetParam());
  for (uint64_t step = 0; step < 4; ++step) {
    Check(ScheduleOf(config, step), config);
  }
}

TEST_P(ApartPlacementTest, DeliveriesShareOneSchedule) {
  const auto schedule = [&](v1::Delivery delivery) {
    return ScheduleToJson(ScheduleOf(ApartConfig(GetParam(), delivery), 2));
  };
  EXPECT_EQ(schedule(v1::DELIVERY_DIRECT), schedule(v1::DELIVERY_EXCHANGE));
  EXPECT_EQ(schedule(v1::DELIVERY_HYBRID), schedule(v1::DELIVERY_EXCHANGE));
}

TEST_P(ApartPlacementTest, OffLeavesEverySampleAtItsReader) {
  const v1::Config config = ApartConfig(GetParam(), v1::DELIVERY_OFF);
  const v1::StepSchedule schedule = ScheduleOf(config, 1);
  Check(schedule, config);
  for (const auto& micro_batch : schedule.micro_batches()) {
    for (const auto& module : micro_batch.modules()) {
      EXPECT_EQ(
          std::vector<uint32_t>(module.owner().begin(), module.owner().end()),
          std::vector<uint32_t>(module.reader().begin(),
                                module.reader().end()));
    }
  }
}

TEST_P(ApartPlacementTest, WindowsPacksAndEqualCounts) {
  v1::Config window = ApartConfig(GetParam());
  window.mutable_balance()->set_scope(v1::Balance::SCOPE_WINDOW);
  window.mutable_balance()->set_window(2);
  window.mutable_balance()->set_order(v1::Balance::ORDER_PIPELINE);
  Check(ScheduleOf(window, 3), window);
  v1::Config packs = ApartConfig(GetParam());
  packs.mutable_packing()->set_mode(v1::Packing::MODE_SCHEDULED);
  packs.mutable_packing()->set_max_tokens_per_rank(4096);
  packs.mutable_packing()->set_virtual_pipeline_group(1);
  Check(ScheduleOf(packs, 1), packs);
  v1::Config equal = ApartConfig(GetParam());
  equal.mutable_balance()->set_equal_count(true);
  const v1::StepSchedule schedule = ScheduleOf(equal, 2);
  Check(schedule, equal);
  const int each = equal.batch().micro() / std::get<1>(GetParam());
  for (const auto& micro_batch : schedule.micro_batches()) {
    const auto& owner = ModuleOf(micro_batch, v1::MODULE_LANGUAGE).owner();
    for (uint32_t r = 0; r < std::get<1>(GetParam()); ++r) {
      EXPECT_EQ(std::count(owner.begin(), owner.end(), r), each);
    }
  }
}

// Nothing ties one module's owners to the other's.
TEST_P(ApartPlacementTest, EachModuleIsBalancedByItsOwnCosts) {
  const v1::Config config = ApartConfig(GetParam());
  const auto owners = [](const v1::Config& of, v1::Module module) {
    std::vector<std::vector<uint32_t>> found;
    const v1::StepSchedule schedule = ScheduleOf(of, 1);
    for (const auto& micro_batch : schedule.micro_batches()) {
      const auto& owner = ModuleOf(micro_batch, module).owner();
      found.emplace_back(owner.begin(), owner.end());
    }
    return found;
  };
  v1::Config other = config;
  other.mutable_balance()->mutable_cost()->mutable_vision()->set_quadratic(1);
  EXPECT_EQ(owners(other, v1::MODULE_LANGUAGE),
            owners(config, v1::MODULE_LANGUAGE));
  other = config;
  other.mutable_balance()->mutable_cost()->mutable_language()->set_quadratic(1);
  EXPECT_EQ(owners(other, v1::MODULE_VISION),
            owners(config, v1::MODULE_VISION));
}

INSTANTIATE_TEST_SUITE_P(Ratios, ApartPlacementTest,
                         ::testing::Values(Sizes{1, 1}, Sizes{2, 2},
                                           Sizes{2, 1}, Sizes{1, 3},
                                           Sizes{3, 2}, Sizes{4, 8}));

// Of embeddings that all move, fewer do between servers than by chance, which
// is half.
TEST(ApartServersTest, EmbeddingsStayAtTheirServers) {
  const Sizes sizes = {4, 8};
  v1::Config config = ApartConfig(sizes);
  AddTwoServers(sizes, &config);
  uint64_t between = 0, all = 0;
  for (uint64_t step = 0; step < 8; ++step) {
    const v1::StepSchedule schedule = ScheduleOf(config, step);
    const v1::EmbeddingsMoved& moved = schedule.totals().embeddings_moved();
    between += moved.tokens_between_servers();
    all += moved.tokens_between_servers() + moved.tokens_within_servers();
    EXPECT_EQ(moved.tokens_between_servers() + moved.tokens_within_servers(),
              schedule.totals().patches() / 4);
  }
  EXPECT_LT(between, 0.3 * all);
}

bool HasSplitRules(const v1::Config& config) {
  const v1::Fingerprint fingerprint = Make(config)->fingerprint();
  return std::any_of(
      fingerprint.entries().begin(), fingerprint.entries().end(),
      [](const auto& entry) { return entry.key() == "balance.split_rules"; });
}

TEST(PairedPlacementTest, IsTheDefaultAndLeavesSchedulesAndFingerprints) {
  v1::Config config = JobConfig(4, 4, 32, 16);
  const std::string before = ScheduleOf(config, 1).SerializeAsString();
  config.mutable_balance()->set_placement(v1::Balance::PLACEMENT_PAIRED);
  EXPECT_EQ(ScheduleOf(config, 1).SerializeAsString(), before);
  config.mutable_balance()->set_placement(v1::Balance::PLACEMENT_SPLIT);
  EXPECT_NE(Make(config)->fingerprint().hash(),
            Make(JobConfig(4, 4, 32, 16))->fingerprint().hash());
}

// Servers of versions that split otherwise refuse each other.
TEST(PairedPlacementTest, FingerprintsOfSplitAloneHaveItsRules) {
  v1::Config config = JobConfig(4, 4, 32, 16);
  EXPECT_FALSE(HasSplitRules(config));
  config.mutable_balance()->set_placement(v1::Balance::PLACEMENT_SPLIT);
  EXPECT_TRUE(HasSplitRules(config));
}

struct Ratios {
  double vision = 0;  // largest over mean load, or over the bound
  double language = 0;
};

Ratios RatiosOf(const v1::StepSchedule& schedule, bool over_bound) {
  const auto ratio = [&](v1::Module module) {
    const auto& found = ModuleOf(schedule.micro_batches(0), module);
    const std::vector<double> loads(found.load_after().begin(),
                                    found.load_after().end());
    const double mean =
        std::accumulate(loads.begin(), loads.end(), 0.0) / loads.size();
    const std::vector<double> costs(found.cost().begin(), found.cost().end());
    return *std::max_element(loads.begin(), loads.end()) /
           (over_bound ? LoadBound(costs, loads.size()) : mean);
  };
  return {ratio(v1::MODULE_VISION), ratio(v1::MODULE_LANGUAGE)};
}

class DrawnLoadTest
    : public ::testing::TestWithParam<std::tuple<std::string, uint32_t>> {};

TEST_P(DrawnLoadTest, BothModulesAreAtTheirBounds) {
  const std::string kind = std::get<0>(GetParam());
  const uint32_t ranks = std::get<1>(GetParam());
  constexpr uint32_t kEach = 8;
  const FakeSourceIndex index(DrawLoad(kind, 4 * kEach * ranks));
  const auto schedule = [&](v1::Balance::Placement placement,
                            v1::Balance::Objective objective, uint64_t step) {
    v1::Config config = DrawnLoadConfig(ranks, kEach);
    config.mutable_balance()->set_placement(placement);
    config.mutable_balance()->set_objective(objective);
    return *(*Scheduler::Create(config, {&index}))->Schedule(step);
  };
  const double limit = kind == "receipts" ? 1.001 : 1.01;
  const bool many = ranks > 512;
  for (uint64_t step = 0; step < (many ? 1u : 4u); ++step) {
    const v1::StepSchedule split = schedule(v1::Balance::PLACEMENT_SPLIT,
                                            v1::Balance::OBJECTIVE_SUM, step);
    const Ratios over_bound = RatiosOf(split, true);
    EXPECT_LE(over_bound.vision, limit) << "step " << step;
    EXPECT_LE(over_bound.language, limit) << "step " << step;
    if (many) {
      std::printf("%s, %u ranks: split over the bound %.4f %.4f\n",
                  kind.c_str(), ranks, over_bound.vision, over_bound.language);
    }
    // The others take long.
    if (step > 0 || many) continue;
    const Ratios mean = RatiosOf(split, false);
    const Ratios sum = RatiosOf(schedule(v1::Balance::PLACEMENT_PAIRED,
                                         v1::Balance::OBJECTIVE_SUM, step),
                                false);
    const Ratios phases =
        RatiosOf(schedule(v1::Balance::PLACEMENT_PAIRED,
                          v1::Balance::OBJECTIVE_PHASES, step),
                 false);
    const v1::Totals& totals = split.totals();
    const v1::EmbeddingsMoved& moved = totals.embeddings_moved();
    const double tokens = totals.patches() / 4;
    std::printf(
        "%s, %u ranks: max over mean, vision and language: split %.4f %.4f "
        "(over the bound %.4f %.4f), paired %.4f %.4f, phases %.4f %.4f; "
        "embeddings moved %.1f %% within servers, %.1f %% between\n",
        kind.c_str(), ranks, mean.vision, mean.language, over_bound.vision,
        over_bound.language, sum.vision, sum.language, phases.vision,
        phases.language, 100 * moved.tokens_within_servers() / tokens,
        100 * moved.tokens_between_servers() / tokens);
  }
}

// The same with modules on ranks of their own, against what paired placement
// does there by default. Eight samples a rank of the larger module.
class ApartLoadTest : public ::testing::TestWithParam<
                          std::tuple<std::string, std::tuple<int, int>>> {};

TEST_P(ApartLoadTest, BothModulesAreAtTheirBounds) {
  const auto& [kind, sizes] = GetParam();
  const uint32_t vision = std::get<0>(sizes), language = std::get<1>(sizes);
  const uint32_t grid = std::lcm(vision, language);
  v1::Config config = DrawnLoadConfig(grid, 8);
  auto& topology = *config.mutable_topology();
  topology.set_colocated(false);
  (*topology.mutable_modules())["vision"].set_dp(vision);
  (*topology.mutable_modules())["language"].set_dp(language);
  topology.clear_servers();
  auto* server = topology.add_servers();
  server->set_address("127.0.0.1:1");
  (*server->mutable_ranks())["vision"] = absl::StrCat("0-", vision - 1);
  (*server->mutable_ranks())["language"] = absl::StrCat("0-", language - 1);
  const FakeSourceIndex index(DrawLoad(kind, 4 * 8 * grid));
  Ratios paired, apart;
  constexpr int kSteps = 4;
  for (uint64_t step = 0; step < kSteps; ++step) {
    config.mutable_balance()->set_placement(v1::Balance::PLACEMENT_PAIRED);
    config.mutable_balance()->set_objective(v1::Balance::OBJECTIVE_PHASES);
    const v1::StepSchedule before =
        *(*Scheduler::Create(config, {&index}))->Schedule(step);
    config.mutable_balance()->set_placement(v1::Balance::PLACEMENT_SPLIT);
    const v1::StepSchedule split =
        *(*Scheduler::Create(config, {&index}))->Schedule(step);
    const Ratios over_bound = RatiosOf(split, true);
    EXPECT_LE(over_bound.vision, 1.01) << "step " << step;
    EXPECT_LE(over_bound.language, 1.01) << "step " << step;
    for (const auto& [schedule, sum] :
         {std::pair(&before, &paired), std::pair(&split, &apart)}) {
      const Ratios ratios = RatiosOf(*schedule, false);
      sum->vision += ratios.vision / kSteps;
      sum->language += ratios.language / kSteps;
    }
  }
  EXPECT_LE(apart.vision + apart.language,
            1.001 * (paired.vision + paired.language));
  std::printf(
      "%s, vision %u, language %u ranks: max over mean, vision and language: "
      "paired %.3f %.3f, split %.3f %.3f\n",
      kind.c_str(), vision, language, paired.vision, paired.language,
      apart.vision, apart.language);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ApartLoadTest,
    ::testing::Combine(
        ::testing::Values("receipts", "bimodal", "mixed", "lognormal"),
        ::testing::Values(std::tuple(8, 24), std::tuple(32, 96),
                          std::tuple(64, 64), std::tuple(48, 32))));

INSTANTIATE_TEST_SUITE_P(
    Kinds, DrawnLoadTest,
    ::testing::Combine(::testing::Values("receipts", "bimodal", "mixed",
                                         "lognormal"),
                       ::testing::Values(8, 64, 512)));
INSTANTIATE_TEST_SUITE_P(
    ManyRanks, DrawnLoadTest,
    ::testing::Combine(::testing::Values("receipts", "bimodal", "mixed"),
                       ::testing::Values(4096)));
// A search that passes over ranks one by one ends 4.8 % above the bound here.
INSTANTIATE_TEST_SUITE_P(MostRanks, DrawnLoadTest,
                         ::testing::Combine(::testing::Values("bimodal"),
                                            ::testing::Values(16384)));

}  // namespace
}  // namespace ballast
