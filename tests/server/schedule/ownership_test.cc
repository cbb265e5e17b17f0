// Owners where a job has more encoders than one: a shape lists its modules, and
// nothing else says how many there are.

#include "server/schedule/ownership.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "proto/schedule/schedule_table.h"
#include "server/schedule/balance.h"
#include "server/schedule/micro_batch_schedule.h"

namespace ballast {
namespace {

// Two encoders of images, whose costs differ, and language.
constexpr auto kFirst = v1::MODULE_VISION;
constexpr auto kSecond = static_cast<v1::Module>(7);
constexpr auto kText = v1::MODULE_LANGUAGE;

MicroBatchShape Shape(uint32_t first_dp, uint32_t second_dp,
                      uint32_t language_dp, uint32_t grid) {
  MicroBatchShape shape;
  shape.micro_batch = 8 * grid;
  shape.grid = grid;
  shape.modules = {{kFirst, first_dp, {}, Media::kImages},
                   {kSecond, second_dp, {}, Media::kImages},
                   {kText, language_dp, {}, Media::kText}};
  shape.costs = {{kFirst, Media::kImages, 1, 0},
                 {kSecond, Media::kImages, 0, 0.01},
                 {kText, Media::kText, 1, 0.001}};
  shape.balance.set_delivery(v1::DELIVERY_EXCHANGE);
  shape.balance.set_algorithm(v1::Balance::ALGORITHM_REFINED);
  shape.balance.set_align_images(true);
  return shape;
}

// One in three samples has no image.
std::vector<ScheduledSample> Draw(uint32_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<ScheduledSample> samples(count);
  for (uint32_t i = 0; i < count; ++i) {
    ScheduledSample& sample = samples[i];
    sample.position = 100 + i;
    sample.sample.ordinal = i;
    for (uint32_t k = random() % 3; k > 0; --k) {
      ImageGrid grid = {};
      grid.grid_h = 2 * (1 + random() % 20);
      grid.grid_w = 2 * (1 + random() % 20);
      sample.size.patches += grid.patches();
      sample.size.grids.push_back(grid);
      ++sample.size.images;
    }
    sample.size.tokens =
        static_cast<uint32_t>(20 + random() % 500 + sample.size.patches / 4);
  }
  return samples;
}

v1::MicroBatchSchedule OnlyMicroBatch(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape) {
  const auto owners = AssignOwners(samples, shape);
  EXPECT_TRUE(owners.ok()) << owners.status();
  EXPECT_EQ(owners->size(), 1u);
  return MakeMicroBatch(samples, owners->front(), 0, shape);
}

double Largest(const v1::ModuleSchedule& module) {
  return *std::max_element(module.load_after().begin(),
                           module.load_after().end());
}

// Ranks of each dp own the samples of consecutive places, so a sample's owners
// follow from its group.
TEST(OwnershipTest, EveryEncoderIsPairedWithLanguage) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    const MicroBatchShape shape = Shape(2, 6, 3, 6);
    const auto samples = Draw(shape.micro_batch, seed);
    const v1::MicroBatchSchedule made = OnlyMicroBatch(samples, shape);
    ASSERT_EQ(made.modules_size(), 3);
    for (int m = 0; m < 3; ++m) {
      EXPECT_EQ(made.modules(m).module(), shape.modules[m].module);
      EXPECT_EQ(made.modules(m).load_after_size(),
                static_cast<int>(shape.modules[m].dp));
    }
    for (int i = 0; i < made.place_size(); ++i) {
      // The second encoder has a rank for each group.
      const uint32_t group = made.modules(1).owner(i);
      EXPECT_EQ(made.modules(0).owner(i), group / 3);
      EXPECT_EQ(made.modules(2).owner(i), group / 2);
      for (int m = 0; m < 3; ++m) {
        EXPECT_EQ(made.modules(m).cost(i),
                  SampleCost(samples[i].size, shape.costs[m]));
      }
    }
    EXPECT_FALSE(made.totals().has_embeddings_moved());
  }
}

// Too few samples with images for the six ranks of the second encoder: each
// encoder's ranks without one, and no others, get dummies.
TEST(OwnershipTest, EveryEncoderHasItsDummies) {
  for (const bool packs : {false, true}) {
    const MicroBatchShape shape = Shape(2, 6, 3, 6);
    std::vector<ScheduledSample> samples = Draw(shape.micro_batch, 1);
    uint32_t kept = 0;
    for (ScheduledSample& sample : samples) {
      if (sample.size.grids.empty() || ++kept <= 3) continue;
      sample.size.grids.clear();
      sample.size.patches = 0;
      sample.size.images = 0;
    }
    const auto owners =
        packs ? AssignPackedOwners(samples, shape, {.capacity = 4000})
              : AssignOwners(samples, shape);
    ASSERT_TRUE(owners.ok()) << owners.status();
    for (const Ownership& ownership : *owners) {
      const v1::MicroBatchSchedule made =
          MakeMicroBatch(samples, ownership, 0, shape);
      for (int m = 0; m < 2; ++m) {
        std::vector<bool> has(shape.modules[m].dp, false);
        bool any = false;
        for (int i = 0; i < made.images_size(); ++i) {
          if (made.images(i) == 0) continue;
          has[made.modules(m).owner(i)] = any = true;
        }
        std::vector<uint32_t> wanted;
        for (uint32_t r = 0; r < has.size(); ++r) {
          if (any && !has[r]) wanted.push_back(r);
        }
        const auto& found = made.modules(m).dummy_rank();
        EXPECT_EQ(std::vector<uint32_t>(found.begin(), found.end()), wanted)
            << "module " << m << (packs ? ", packs" : "");
      }
      EXPECT_TRUE(made.modules(2).dummy_rank().empty());
    }
  }
}

// With split placement each encoder is even by its own costs, and the
// embeddings of both are counted.
TEST(OwnershipTest, EveryEncoderIsPlacedByItself) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    MicroBatchShape shape = Shape(4, 4, 4, 4);
    shape.balance.set_placement(v1::Balance::PLACEMENT_SPLIT);
    const auto samples = Draw(shape.micro_batch, seed);
    const v1::MicroBatchSchedule made = OnlyMicroBatch(samples, shape);
    uint64_t moved = 0;
    bool differ = false;
    for (int m = 0; m < 2; ++m) {
      const v1::ModuleSchedule& module = made.modules(m);
      std::vector<double> costs;
      for (int i = 0; i < made.place_size(); ++i) {
        costs.push_back(module.cost(i));
        differ |= module.owner(i) != made.modules(1 - m).owner(i);
        if (module.owner(i) == made.modules(2).owner(i)) continue;
        moved += samples[i].size.patches / shape.patches_a_token;
      }
      EXPECT_LE(Largest(module), 1.25 * LoadLowerBound(costs, 4)) << m;
      EXPECT_TRUE(module.dummy_rank().empty());
    }
    EXPECT_TRUE(differ);
    EXPECT_EQ(made.totals().embeddings_moved().tokens_within_servers(), moved);
    EXPECT_EQ(made.totals().embeddings_moved().tokens_between_servers(), 0u);
  }
}

// Where ranks share packs of language, encoders are as even as elsewhere, each
// sample has one owner of them, and its embeddings go to all ranks of the pack.
TEST(OwnershipTest, EncodersBesideSharedPacks) {
  uint32_t shared = 0;
  for (uint32_t seed = 0; seed < 5; ++seed) {
    MicroBatchShape shape = Shape(8, 8, 8, 8);
    shape.balance.set_placement(v1::Balance::PLACEMENT_SPLIT);
    const auto samples = Draw(shape.micro_batch, seed);
    const auto owners = AssignPackedOwners(
        samples, shape, {.capacity = 2800, .align = 8, .dynamic_cp = 4});
    ASSERT_TRUE(owners.ok()) << owners.status();
    for (const Ownership& ownership : *owners) {
      const v1::MicroBatchSchedule made =
          MakeMicroBatch(samples, ownership, 0, shape);
      const v1::ModuleSchedule& language = made.modules(2);
      uint64_t moved = 0;
      for (int m = 0; m < 2; ++m) {
        const v1::ModuleSchedule& module = made.modules(m);
        EXPECT_TRUE(module.pack_ranks().empty());
        std::vector<double> costs;
        for (int i = 0; i < made.place_size(); ++i) {
          const auto& size = samples[made.position(i) - 100].size;
          costs.push_back(module.cost(i));
          EXPECT_EQ(module.cost(i), SampleCost(size, shape.costs[m]));
          for (uint32_t r = 0; r < 8; ++r) {
            if (r == module.owner(i) || !TrainsOn(language, i, r)) continue;
            moved += size.patches / shape.patches_a_token;
          }
          shared += PackRanks(language, i) > 1;
        }
        EXPECT_LE(Largest(module), 1.25 * LoadLowerBound(costs, 8)) << m;
      }
      EXPECT_EQ(made.totals().embeddings_moved().tokens_within_servers(),
                moved);
    }
  }
  EXPECT_GT(shared, 0u);
}

// The objective `phases` sums the largest loads of all three modules.
TEST(OwnershipTest, PhasesWeighEveryEncoder) {
  double sum = 0, phases = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    MicroBatchShape shape = Shape(4, 4, 4, 4);
    shape.balance.set_align_images(false);
    const auto samples = Draw(shape.micro_batch, seed);
    const auto time = [&](v1::Balance::Objective objective) {
      shape.balance.set_objective(objective);
      const v1::MicroBatchSchedule made = OnlyMicroBatch(samples, shape);
      return Largest(made.modules(0)) + Largest(made.modules(1)) +
             Largest(made.modules(2));
    };
    const double of_sum = time(v1::Balance::OBJECTIVE_SUM);
    const double of_phases = time(v1::Balance::OBJECTIVE_PHASES);
    EXPECT_LE(of_phases, of_sum * (1 + 1e-9)) << "seed " << seed;
    sum += of_sum;
    phases += of_phases;
  }
  EXPECT_LT(phases, 0.98 * sum);
}

}  // namespace
}  // namespace ballast
