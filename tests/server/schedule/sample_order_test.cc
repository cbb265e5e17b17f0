#include "server/schedule/sample_order.h"

#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "server/schedule/group_order.h"

namespace ballast {
namespace {

TEST(PermutationTest, HitsEveryElementOnceForOddSizes) {
  for (const uint64_t size : {1, 2, 3, 5, 7, 31, 63, 64, 65, 127, 1000, 4097}) {
    for (const uint64_t key : {0, 1, 99}) {
      const Permutation permutation(size, key);
      std::vector<bool> seen(size, false);
      for (uint64_t i = 0; i < size; ++i) {
        const uint64_t image = permutation(i);
        ASSERT_LT(image, size);
        EXPECT_FALSE(seen[image]) << "size " << size << " element " << i;
        seen[image] = true;
      }
    }
  }
}

TEST(PermutationTest, HoldsForTheLargestSizes) {
  const Permutation permutation(~uint64_t{0}, 7);
  std::set<uint64_t> images;
  for (uint64_t i = 0; i < 1000; ++i) images.insert(permutation(i));
  EXPECT_EQ(images.size(), 1000u);
}

// The network of Permutation as group_order.h has it, without what makes ours
// quick: another order would be another training run.
uint64_t NetworkOf(uint64_t size, uint64_t key, uint64_t i) {
  const auto mix = [](uint64_t value) {
    value += 0x9E3779B97F4A7C15u;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
  };
  int half = 3;
  while (half < 32 && (uint64_t{1} << (2 * half)) < size) ++half;
  do {
    uint64_t left = i >> half, right = i % (uint64_t{1} << half);
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t upper =
          mix(key + round * 0xD1B54A32D192ED03u + right) >> (64 - half);
      const uint64_t next = left ^ upper;
      left = right;
      right = next;
    }
    i = (left << half) + right;
  } while (i >= size);
  return i;
}

TEST(PermutationTest, IsTheNetworkOfItsDefinition) {
  const uint64_t k62 = uint64_t{1} << 62;
  for (const uint64_t size :
       {uint64_t{2}, uint64_t{64}, uint64_t{65}, uint64_t{1600},
        uint64_t{24'000'000}, uint64_t{1} << 32, k62 - 1, k62, k62 + 1,
        ~uint64_t{0}}) {
    for (uint64_t i = 0; i < 200; ++i) {
      const uint64_t key = Mix64(i);
      const uint64_t element = Mix64(~i) % size;
      ASSERT_EQ(Permutation(size, key)(element), NetworkOf(size, key, element))
          << "size " << size << " key " << key << " element " << element;
    }
  }
}

// A uniformly random permutation has one fixed point on average and moves an
// element by a third of the size.
TEST(PermutationTest, ShufflesWell) {
  constexpr uint64_t kSize = 1000;
  double fixed = 0, distance = 0;
  for (uint64_t key = 0; key < 200; ++key) {
    const Permutation permutation(kSize, Mix64(key));
    for (uint64_t i = 0; i < kSize; ++i) {
      const uint64_t image = permutation(i);
      fixed += image == i;
      distance += std::abs(static_cast<double>(image) - static_cast<double>(i));
    }
  }
  EXPECT_NEAR(fixed / 200, 1.0, 0.3);
  EXPECT_NEAR(distance / 200 / kSize, kSize / 3.0, kSize / 100.0);
}

TEST(MixtureTest, EveryPrefixIsWithinOneOfTheExactShare) {
  const std::vector<std::vector<double>> cases = {
      {1}, {3, 1}, {0.7, 0.3}, {1, 1, 1}, {5, 3, 2, 2}, {0.125, 100, 7.5, 1}};
  for (const std::vector<double>& weights : cases) {
    const Mixture mixture(weights);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<uint64_t> drawn(weights.size(), 0);
    for (uint64_t p = 0; p < 20000; ++p) {
      const Mixture::Draw draw = mixture.At(p);
      ASSERT_EQ(draw.number, drawn[draw.source]) << "position " << p;
      ++drawn[draw.source];
      for (size_t s = 0; s < weights.size(); ++s) {
        ASSERT_LT(std::abs(drawn[s] - (p + 1) * weights[s] / sum), 1.0 + 1e-9)
            << "source " << s << " after position " << p;
      }
    }
  }
}

TEST(MixtureTest, SourcesOfWeightZeroAreNotDrawn) {
  const Mixture mixture({0, 3, 0, 1});
  const Mixture without({3, 1});
  for (uint64_t p = 0; p < 1000; ++p) {
    EXPECT_EQ(mixture.At(p).source, 2 * without.At(p).source + 1) << p;
    EXPECT_EQ(mixture.At(p).number, without.At(p).number) << p;
  }
  EXPECT_EQ(mixture.GetPosition(0, 0), UINT64_MAX);
}

// Also where the others' weights do not fit the table, so that a source can
// join a job that has begun.
TEST(MixtureTest, SourcesOfWeightZeroDoNotMoveTheOthers) {
  for (const std::vector<double>& weights :
       {std::vector<double>{0.351273, 0.748738}, {0.5, 0.333333, 0.123457}}) {
    for (const uint64_t table : {101, 1000, 65536}) {
      const Mixture without(weights, table);
      std::vector<double> more = weights;
      for (int zeros = 1; zeros < 4; ++zeros) {
        more.push_back(0);
        const Mixture mixture(more, table);
        for (uint64_t p = 0; p < 2 * table; ++p) {
          ASSERT_EQ(mixture.At(p).source, without.At(p).source)
              << zeros << " sources, table " << table << ", position " << p;
          ASSERT_EQ(mixture.At(p).number, without.At(p).number);
        }
      }
    }
  }
}

TEST(MixtureTest, CountsDraws) {
  const Mixture mixture({5, 0, 2, 2});
  std::vector<uint64_t> drawn(4, 0);
  for (uint64_t p = 0; p < 100; ++p) {
    EXPECT_EQ(mixture.DrawsBefore(p), drawn) << p;
    ++drawn[mixture.At(p).source];
  }
}

TEST(MixtureTest, PositionOfIsTheInverse) {
  for (const std::vector<double>& weights :
       {std::vector<double>{1}, {3, 1}, {0.7, 0.3}, {5, 3, 2, 2}}) {
    const Mixture mixture(weights);
    for (uint64_t p = 0; p < 5000; ++p) {
      const Mixture::Draw draw = mixture.At(p);
      ASSERT_EQ(mixture.GetPosition(draw.source, draw.number), p);
    }
    EXPECT_EQ(mixture.GetPosition(0, UINT64_MAX), UINT64_MAX);
  }
}

TEST(MixtureTest, ExtremeWeightsFitTheTable) {
  const Mixture mixture({1e-9, 1e12, 3.14159265358979});
  EXPECT_EQ(mixture.weights()[0], 1u);
  EXPECT_LE(mixture.weights()[0] + mixture.weights()[1] + mixture.weights()[2],
            uint64_t{1} << 20);
}

TEST(SampleOrderTest, VisitsEachSampleOncePerEpoch) {
  const SampleOrder order({{"a", 7, 2}, {"b", 3, 1}}, 1234, true);
  std::vector<std::set<uint64_t>> seen(2);
  std::vector<uint64_t> drawn(2, 0);
  const uint64_t sizes[] = {7, 3};
  for (uint64_t p = 0; p < 2100; ++p) {
    const SampleOrder::Sample sample = order.At(p);
    ASSERT_EQ(sample.epoch, drawn[sample.source] / sizes[sample.source]);
    EXPECT_TRUE(seen[sample.source].insert(sample.ordinal).second);
    if (++drawn[sample.source] % sizes[sample.source] == 0) {
      EXPECT_EQ(seen[sample.source].size(), sizes[sample.source]);
      seen[sample.source].clear();
    }
  }
  EXPECT_EQ(drawn[0], 1400u);
  EXPECT_EQ(drawn[1], 700u);
}

// Compares with the order itself: the end is where the first excess epoch
// begins.
TEST(SampleOrderTest, EndsBeforeTheFirstEpochTooMany) {
  const std::vector<std::vector<SampleOrder::Source>> cases = {
      {{"a", 7, 1}},
      {{"a", 7, 2}, {"b", 3, 1}},
      {{"a", 7, 2}, {"b", 300, 1}, {"c", 11, 0.5}}};
  for (const auto& sources : cases) {
    const SampleOrder order(sources, 1, true);
    for (uint32_t epochs = 1; epochs <= 5; ++epochs) {
      uint64_t end = 0;
      while (order.At(end).epoch < epochs) ++end;
      EXPECT_EQ(order.GetEnd(epochs), end);
    }
  }
  EXPECT_EQ(SampleOrder({{"a", UINT64_MAX / 2, 1}}, 1, true).GetEnd(3),
            UINT64_MAX);
}

std::vector<uint64_t> Ordinals(const SampleOrder& order, uint64_t n) {
  std::vector<uint64_t> ordinals;
  for (uint64_t p = 0; p < n; ++p) ordinals.push_back(order.At(p).ordinal);
  return ordinals;
}

TEST(SampleOrderTest, EpochsAndSeedsDiffer) {
  const SampleOrder order({{"a", 50, 1}}, 1, true);
  const std::vector<uint64_t> two = Ordinals(order, 100);
  EXPECT_NE(std::vector<uint64_t>(two.begin(), two.begin() + 50),
            std::vector<uint64_t>(two.begin() + 50, two.end()));
  EXPECT_NE(Ordinals(order, 50),
            Ordinals(SampleOrder({{"a", 50, 1}}, 2, true), 50));
}

TEST(SampleOrderTest, FollowsTheFilesWithoutShuffling) {
  const SampleOrder order({{"a", 4, 1}}, 1, false);
  EXPECT_EQ(Ordinals(order, 6), (std::vector<uint64_t>{0, 1, 2, 3, 0, 1}));
}

// Another source changes when a sample comes, but not this source's own order.
TEST(SampleOrderTest, ASourceKeepsItsOrderInAMixture) {
  const SampleOrder alone({{"a", 20, 1}}, 5, true);
  const SampleOrder mixed({{"b", 9, 2}, {"a", 20, 1}}, 5, true);
  std::vector<uint64_t> from_mixture;
  for (uint64_t p = 0; p < 60; ++p) {
    const SampleOrder::Sample sample = mixed.At(p);
    if (sample.source == 1) from_mixture.push_back(sample.ordinal);
  }
  EXPECT_EQ(from_mixture, Ordinals(alone, 20));
}

}  // namespace
}  // namespace ballast
