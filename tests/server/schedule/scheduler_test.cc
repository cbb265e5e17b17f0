#include "server/schedule/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"
#include "tests/server/schedule/formula_scheduler.h"

namespace ballast {
namespace {

// The largest window at the micro-batch of 16,384 ranks with four samples each.
TEST(WindowTest, AWindowOfMoreSamplesThan32BitsCountIsTheWholeStep) {
  v1::Config config = JobConfig(0, 2, 65536, 65536);
  config.mutable_balance()->set_algorithm(v1::Balance::ALGORITHM_LPT);
  config.mutable_balance()->set_scope(v1::Balance::SCOPE_WINDOW);
  config.mutable_balance()->set_window(65536);
  EXPECT_EQ(ScheduleOf(config, 0).micro_batches_size(), 1);
}

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Index() with one damaged sample, which checks that reads were prefetched.
class WatchedIndex final : public SourceIndex {
 public:
  explicit WatchedIndex(uint64_t damaged) : damaged_(damaged) {}

  uint64_t size() const override { return Index().size(); }
  std::string digest() const override { return Index().digest(); }
  absl::StatusOr<IndexedSample> sample(uint64_t ordinal) const override {
    EXPECT_EQ(prefetched_.count(ordinal), 1) << ordinal;
    if (ordinal == damaged_) return absl::DataLossError("docs.index: damaged");
    return Index().sample(ordinal);
  }
  void Prefetch(absl::Span<const uint64_t> ordinals) const override {
    prefetched_ = std::set<uint64_t>(ordinals.begin(), ordinals.end());
  }

 private:
  const uint64_t damaged_;
  mutable std::set<uint64_t> prefetched_;
};

class SchedulerTest
    : public ::testing::TestWithParam<std::tuple<uint32_t, uint32_t>> {
 protected:
  uint32_t vision() const { return std::get<0>(GetParam()); }
  uint32_t language() const { return std::get<1>(GetParam()); }
  uint32_t grid() const { return std::lcm(vision(), language()); }
  v1::Config Config(v1::Delivery delivery) const {
    return JobConfig(vision(), language(), 8 * grid(), 4 * grid(), delivery);
  }
};

TEST_P(SchedulerTest, StepsCoverThePositionsWithoutAGap) {
  const auto scheduler = Make(Config(v1::DELIVERY_EXCHANGE));
  uint64_t position = 0;
  for (uint64_t step = 0; step < 5; ++step) {
    const auto schedule = scheduler->Schedule(step);
    ASSERT_TRUE(schedule.ok());
    ASSERT_EQ(schedule->micro_batches_size(), 2);
    for (const auto& micro_batch : schedule->micro_batches()) {
      for (const uint64_t found : micro_batch.position()) {
        EXPECT_EQ(found, position++);
      }
    }
  }
  EXPECT_EQ(position, 5 * 8 * grid());
}

// Rank r of d reads groups [r*grid/d, (r+1)*grid/d), so its samples are
// consecutive.
TEST_P(SchedulerTest, ReadersTakeEqualRangesOfPositions) {
  const auto schedule = ScheduleOf(Config(v1::DELIVERY_EXCHANGE), 3);
  for (const auto& micro_batch : schedule.micro_batches()) {
    for (const auto& module : micro_batch.modules()) {
      const uint32_t dp =
          module.module() == v1::MODULE_VISION ? vision() : language();
      const uint32_t each = 4 * grid() / dp;
      for (uint32_t i = 0; i < 4 * grid(); ++i) {
        EXPECT_EQ(module.reader(i), i / each);
      }
    }
  }
}

// Ranks own consecutive places, and for each sample the vision and the language
// owner cover the same part of the order.
TEST_P(SchedulerTest, ModulesStayPaired) {
  for (const auto delivery : {v1::DELIVERY_EXCHANGE, v1::DELIVERY_OFF}) {
    const auto schedule = ScheduleOf(Config(delivery), 1);
    for (const auto& micro_batch : schedule.micro_batches()) {
      std::map<uint32_t, std::pair<uint32_t, uint32_t>> by_place;
      for (int i = 0; i < micro_batch.place_size(); ++i) {
        by_place[micro_batch.place(i)] = {micro_batch.modules(0).owner(i),
                                          micro_batch.modules(1).owner(i)};
      }
      ASSERT_EQ(by_place.size(), 4 * grid());
      EXPECT_EQ(by_place.rbegin()->first, 4 * grid() - 1);
      std::pair<uint32_t, uint32_t> last = {0, 0};
      for (const auto& [place, owners] : by_place) {
        EXPECT_GE(owners.first, last.first);
        EXPECT_GE(owners.second, last.second);
        // Both cover the same fraction of the grid.
        EXPECT_LT(owners.first * language(), (owners.second + 1) * vision());
        EXPECT_LT(owners.second * vision(), (owners.first + 1) * language());
        last = owners;
      }
    }
  }
}

TEST_P(SchedulerTest, LoadsAreTheSumsOfCosts) {
  auto config = Config(v1::DELIVERY_EXCHANGE);
  config.mutable_balance()->mutable_cost()->mutable_language()->set_linear(0.5);
  const auto schedule = ScheduleOf(config, 2);
  for (const auto& micro_batch : schedule.micro_batches()) {
    for (const auto& module : micro_batch.modules()) {
      std::vector<double> before(module.load_before_size(), 0);
      std::vector<double> after(before);
      for (int i = 0; i < module.cost_size(); ++i) {
        before[module.reader(i)] += module.cost(i);
        after[module.owner(i)] += module.cost(i);
      }
      EXPECT_THAT(module.load_before(), ::testing::ElementsAreArray(before));
      EXPECT_THAT(module.load_after(), ::testing::ElementsAreArray(after));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    DpSizes, SchedulerTest,
    ::testing::Values(std::make_tuple(1, 1), std::make_tuple(2, 2),
                      std::make_tuple(4, 4), std::make_tuple(2, 4),
                      std::make_tuple(4, 2), std::make_tuple(2, 3),
                      std::make_tuple(3, 6), std::make_tuple(8, 2)));

// The step fails: without the sample, ranks would disagree.
TEST(SchedulerErrorsTest, ADamagedIndexFailsTheStepsThatNeedTheSample) {
  const v1::Config config = JobConfig(2, 2, 16, 8);
  const WatchedIndex index(40);
  const auto scheduler = Scheduler::Create(config, {&index});
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  uint64_t failed = 0;
  for (uint64_t step = 0; step < 20; ++step) {
    bool needs_it = false;
    const v1::StepSchedule whole = ScheduleOf(config, step);
    for (const auto& micro_batch : whole.micro_batches()) {
      for (const uint64_t ordinal : micro_batch.ordinal()) {
        needs_it = needs_it || ordinal == 40;
      }
    }
    const auto schedule = (*scheduler)->Schedule(step);
    EXPECT_EQ(schedule.ok(), !needs_it) << schedule.status();
    if (!needs_it) continue;
    ++failed;
    EXPECT_EQ(schedule.status(),
              absl::DataLossError("sample docs:40: docs.index: damaged"));
  }
  EXPECT_GT(failed, 0u);
}

TEST(SchedulerValuesTest, SizesFollowFromTheIndex) {
  const auto config = JobConfig(2, 2, 16, 8);
  const auto schedule = ScheduleOf(config, 0);
  uint64_t tokens = 0, squared = 0, labels = 0, patches = 0, images = 0;
  for (const auto& micro_batch : schedule.micro_batches()) {
    int image = 0;
    for (int i = 0; i < micro_batch.tokens_size(); ++i) {
      const auto sample = *Index().sample(micro_batch.ordinal(i));
      ASSERT_EQ(micro_batch.images(i), sample.media.images().size());
      uint64_t sample_patches = 0;
      for (size_t k = 0; k < sample.media.images().size(); ++k, ++image) {
        sample_patches +=
            uint64_t{micro_batch.grid_h(image)} * micro_batch.grid_w(image);
      }
      EXPECT_EQ(micro_batch.tokens(i), sample.text_tokens + sample_patches / 4);
      EXPECT_EQ(micro_batch.modules(0).cost(i), sample_patches);
      tokens += micro_batch.tokens(i);
      squared += uint64_t{micro_batch.tokens(i)} * micro_batch.tokens(i);
      labels += sample.label_tokens;
      patches += sample_patches;
      images += sample.media.images().size();
    }
  }
  EXPECT_EQ(schedule.totals().tokens(), tokens);
  EXPECT_EQ(schedule.totals().tokens_squared(), squared);
  EXPECT_EQ(schedule.totals().label_tokens(), labels);
  EXPECT_EQ(schedule.totals().patches(), patches);
  EXPECT_EQ(schedule.totals().images(), images);
}

TEST(SchedulerValuesTest, TheOrderDoesNotDependOnDpSizes) {
  const auto samples = [](uint32_t vision, uint32_t language) {
    std::vector<uint64_t> ordinals;
    const auto schedule = ScheduleOf(JobConfig(vision, language, 48, 24), 7);
    for (const auto& micro_batch : schedule.micro_batches()) {
      ordinals.insert(ordinals.end(), micro_batch.ordinal().begin(),
                      micro_batch.ordinal().end());
    }
    return ordinals;
  };
  EXPECT_EQ(samples(1, 1), samples(4, 2));
  EXPECT_EQ(samples(1, 1), samples(2, 3));
}

TEST(SchedulerValuesTest, WithOffReadersAreOwners) {
  const auto schedule = ScheduleOf(JobConfig(2, 4, 16, 8, v1::DELIVERY_OFF), 0);
  for (const auto& micro_batch : schedule.micro_batches()) {
    for (const auto& module : micro_batch.modules()) {
      EXPECT_THAT(module.owner(), ::testing::ElementsAreArray(module.reader()));
    }
  }
}

TEST(SchedulerValuesTest, BalanceNarrowsTheSpread) {
  const auto schedule = ScheduleOf(JobConfig(4, 4, 128, 128), 0);
  const auto& vision = schedule.micro_batches(0).modules(0);
  const auto spread = [](const auto& loads) {
    return *std::max_element(loads.begin(), loads.end()) -
           *std::min_element(loads.begin(), loads.end());
  };
  EXPECT_LT(spread(vision.load_after()), 0.1 * spread(vision.load_before()));
}

// With align_images every vision rank has an image or gets a dummy, unless no
// rank has an image.
TEST(SchedulerValuesTest, VisionRanksAllHaveAnImageOrADummy) {
  for (const auto delivery : {v1::DELIVERY_EXCHANGE, v1::DELIVERY_OFF}) {
    int dummies = 0;
    const auto scheduler = Make(JobConfig(4, 2, 4, 4, delivery));
    for (uint64_t step = 0; step < 50; ++step) {
      const auto schedule = scheduler->Schedule(step);
      const auto& micro_batch = schedule->micro_batches(0);
      const auto& vision = micro_batch.modules(0);
      std::set<uint32_t> with_image(vision.dummy_rank().begin(),
                                    vision.dummy_rank().end());
      ASSERT_EQ(with_image.size(),
                static_cast<size_t>(vision.dummy_rank_size()));
      dummies += vision.dummy_rank_size();
      for (int i = 0; i < micro_batch.images_size(); ++i) {
        if (micro_batch.images(i) > 0) with_image.insert(vision.owner(i));
      }
      EXPECT_TRUE(with_image.empty() || with_image.size() == 4u);
    }
    EXPECT_GT(dummies, 0);
  }
}

// The parallel sizes from which a rank derives its module's layout.
TEST(SchedulerValuesTest, TheJobContainsTheLayout) {
  auto config = JobConfig(2, 4, 16, 8);
  auto& modules = *config.mutable_topology()->mutable_modules();
  modules["vision"].set_pp(2);
  modules["language"].set_tp(2);
  modules["language"].set_pp(4);
  modules["language"].set_cp(8);
  config.mutable_topology()->set_colocated(false);
  config.mutable_packing()->set_virtual_pipeline_group(3);
  const v1::Job job = Make(config)->job();
  EXPECT_EQ(job.modules(0).tp(), 1u);
  EXPECT_EQ(job.modules(0).pp(), 2u);
  EXPECT_EQ(job.modules(1).tp(), 2u);
  EXPECT_EQ(job.modules(1).pp(), 4u);
  EXPECT_EQ(job.modules(1).cp(), 8u);
  EXPECT_EQ(job.modules(1).align(), 16u);
  EXPECT_FALSE(job.colocated());
  EXPECT_EQ(job.virtual_pipeline_group(), 3u);
}

// Blocks differ with it; the data and the default's fingerprint do not.
TEST(SchedulerValuesTest, TheFingerprintSaysWhereImagesAreDecoded) {
  const auto host = JobConfig(2, 2, 64, 16);
  const v1::Fingerprint before = Make(host)->fingerprint();
  auto named = host;
  named.mutable_model()->set_decode(v1::Model::DECODE_HOST);
  EXPECT_EQ(Make(named)->fingerprint().hash(), before.hash());
  auto device = host;
  device.mutable_model()->set_decode(v1::Model::DECODE_DEVICE);
  const v1::Fingerprint after = Make(device)->fingerprint();
  EXPECT_NE(after.hash(), before.hash());
  EXPECT_EQ(after.data_hash(), before.data_hash());
  for (const auto& entry : before.entries()) {
    EXPECT_THAT(entry.key(),
                Not(AnyOf(HasSubstr("decode"), HasSubstr("encoded"),
                          HasSubstr("unchecked"))));
  }
  // A share of them: other blocks again, of the same data. 1 is the default.
  auto share = device;
  share.mutable_model()->set_device_share(1);
  EXPECT_EQ(Make(share)->fingerprint().hash(), after.hash());
  share.mutable_model()->set_device_share(0.8);
  const v1::Fingerprint shared = Make(share)->fingerprint();
  EXPECT_NE(shared.hash(), after.hash());
  EXPECT_EQ(shared.data_hash(), before.data_hash());
  share.mutable_model()->set_device_share(0.75);
  EXPECT_NE(Make(share)->fingerprint().hash(), shared.hash());
  // Other files travel encoded: the same data, other blocks.
  class OtherEncoded final : public SourceIndex {
   public:
    uint64_t size() const override { return Index().size(); }
    absl::StatusOr<IndexedSample> sample(uint64_t ordinal) const override {
      return Index().sample(ordinal);
    }
    std::string digest() const override { return Index().digest(); }
    std::string encoded_digest() const override { return std::string(32, '7'); }
  };
  const OtherEncoded other;
  const auto scheduler = Scheduler::Create(device, {&other});
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  EXPECT_NE((*scheduler)->fingerprint().hash(), after.hash());
  EXPECT_EQ((*scheduler)->fingerprint().data_hash(), after.data_hash());
}

TEST(SchedulerValuesTest, TheFingerprintCoversTheSchedulesInputs) {
  const auto config = JobConfig(2, 2, 16, 8);
  const std::string hash = Make(config)->fingerprint().hash();
  EXPECT_EQ(hash.size(), 32u);
  EXPECT_EQ(ScheduleOf(config, 0).fingerprint(), hash);

  auto same = config;
  same.mutable_serve()->set_threads(7);
  same.mutable_sources(0)->set_path("elsewhere-*.tar");
  same.mutable_balance()->set_delivery(v1::DELIVERY_DIRECT);
  EXPECT_EQ(Make(same)->fingerprint().hash(), hash);

  auto seed = config;
  seed.mutable_order()->set_seed(1);
  auto off = config;
  off.mutable_balance()->set_delivery(v1::DELIVERY_OFF);
  auto pixels = config;
  pixels.mutable_model()->set_max_pixels(100352);
  auto dp = JobConfig(4, 2, 16, 8);
  // Servers must agree on what a damaged sample becomes.
  auto errors = config;
  errors.mutable_serve()->set_on_bad_sample(v1::Serve::ON_BAD_SAMPLE_ERROR);
  for (const auto& other : {seed, off, pixels, dp, errors}) {
    EXPECT_NE(Make(other)->fingerprint().hash(), hash);
  }
  const FakeSourceIndex other_index(FormulaSamples(97), std::string(32, '1'));
  EXPECT_NE((*Scheduler::Create(config, {&other_index}))->fingerprint().hash(),
            hash);
}

TEST(SchedulerValuesTest, TheDataEndAfterTheirEpochs) {
  const uint64_t samples = Index().size();
  v1::Config config = JobConfig(2, 2, 8, 4);
  EXPECT_EQ((*Scheduler::Create(config, {&Index()}))->job().end_step(), 0u);
  config.mutable_order()->set_epochs(3);
  const auto scheduler = Scheduler::Create(config, {&Index()});
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  const uint64_t end = 3 * samples / 8;
  EXPECT_EQ((*scheduler)->job().end_step(), end);
  EXPECT_TRUE((*scheduler)->Schedule(end - 1).ok());
  for (const uint64_t step : {end, UINT64_MAX}) {
    const absl::Status status = (*scheduler)->Schedule(step).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("the data end before step ", end)));
  }
  // More epochs are the same data.
  const auto longer = [&] {
    config.mutable_order()->set_epochs(4);
    return *Scheduler::Create(config, {&Index()});
  }();
  EXPECT_NE(longer->fingerprint().hash(), (*scheduler)->fingerprint().hash());
  EXPECT_EQ(longer->fingerprint().data_hash(),
            (*scheduler)->fingerprint().data_hash());

  config.mutable_order()->set_epochs(1);
  const uint32_t too_many = 4 * (samples / 4 + 1);
  config.mutable_batch()->set_global(too_many);
  EXPECT_THAT(
      std::string(Scheduler::Create(config, {&Index()}).status().message()),
      HasSubstr(absl::StrCat("at ", samples, " samples")));
}

TEST(SchedulerValuesTest, RefusesImpossibleSchedules) {
  const FakeSourceIndex empty({});
  EXPECT_THAT(
      Scheduler::Create(JobConfig(1, 1, 2, 2), {&empty}).status().message(),
      HasSubstr("source docs: its index holds no sample"));
  auto packing = JobConfig(1, 1, 2, 2, v1::DELIVERY_OFF);
  packing.mutable_packing()->set_mode(v1::Packing::MODE_SCHEDULED);
  EXPECT_THAT(Scheduler::Create(packing, {&Index()}).status().message(),
              HasSubstr("packing.mode"));
  const auto scheduler = Make(JobConfig(1, 1, 2, 2));
  EXPECT_EQ(scheduler->Schedule(~uint64_t{0}).status().code(),
            absl::StatusCode::kOutOfRange);
}

}  // namespace

}  // namespace ballast
