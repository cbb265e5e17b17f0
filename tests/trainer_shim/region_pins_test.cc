#include "trainer_shim/region_pins.h"

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "client/buffer_pool.h"
#include "common/mutex.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/no_threads.h"

namespace ballast {
namespace {

class TestRegion : public MemoryRegion {
 public:
  absl::Span<const uint8_t> bytes() const override { return {page_, 4096}; }
  bool read_only() const override { return true; }

 private:
  alignas(4096) uint8_t page_[4096] = {};
};

// Remembers how often each region was pinned and unpinned.
class FakePinner : public MemoryPinner {
 public:
  absl::Status Pin(const MemoryRegion& region) override {
    MutexLock lock(&mutex_);
    ++pins_[&region];
    return refuses_ ? absl::InternalError("the system refuses")
                    : absl::Status();
  }
  absl::Status Unpin(const MemoryRegion& region) override {
    MutexLock lock(&mutex_);
    ++unpins_[&region];
    return absl::OkStatus();
  }
  void Refuse() {
    MutexLock lock(&mutex_);
    refuses_ = true;
  }
  int pins(const MemoryRegion* region) {
    MutexLock lock(&mutex_);
    return pins_[region];
  }
  int unpins(const MemoryRegion* region) {
    MutexLock lock(&mutex_);
    return unpins_[region];
  }

 private:
  Mutex mutex_;
  bool refuses_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<const MemoryRegion*, int> pins_ ABSL_GUARDED_BY(mutex_);
  std::map<const MemoryRegion*, int> unpins_ ABSL_GUARDED_BY(mutex_);
};

class RegionPinsTest : public ::testing::Test {
 protected:
  RegionPinsTest() {
    RegionPins::Options options;
    options.interval = absl::Milliseconds(200);
    options.clock = &clock_;
    pins_ = *RegionPins::Create(&pinner_, options);
  }

  // Lets the thread look at every region once.
  void Look() {
    clock_.AwaitSleepers(1);
    clock_.Advance(absl::Milliseconds(200));
    clock_.AwaitSleepers(1);
  }

  ManualClock clock_;
  FakePinner pinner_;
  std::unique_ptr<RegionPins> pins_;
};

TEST_F(RegionPinsTest, PinsARegionAtItsFirstBlockOnly) {
  const auto region = std::make_shared<TestRegion>();
  EXPECT_TRUE(pins_->Pin(region));
  EXPECT_TRUE(pins_->Pin(region));
  EXPECT_EQ(pinner_.pins(region.get()), 1);
  EXPECT_FALSE(pins_->Pin(nullptr));
  EXPECT_EQ(pins_->regions(), 1u);
}

TEST_F(RegionPinsTest, KeepsARegionWhileAConnectionOrABlockHoldsIt) {
  auto connection = std::make_shared<const TestRegion>();
  std::shared_ptr<const MemoryRegion> block = connection;
  const std::weak_ptr<const MemoryRegion> memory = block;
  const MemoryRegion* const region = block.get();
  ASSERT_TRUE(pins_->Pin(block));
  Look();
  connection = nullptr;  // the server is gone; its last block is not done
  Look();
  EXPECT_EQ(pinner_.unpins(region), 0);
  block = nullptr;
  Look();
  EXPECT_EQ(pinner_.unpins(region), 1);
  EXPECT_EQ(pins_->regions(), 0u);
  EXPECT_TRUE(memory.expired()) << "its memory is not freed";
}

TEST_F(RegionPinsTest, HoldsAtMostTwoOfManyGenerations) {
  auto blocks = std::make_shared<const TestRegion>();
  for (int generation = 0; generation < 5; ++generation) {
    ASSERT_TRUE(pins_->Pin(blocks));
    EXPECT_EQ(pins_->regions(), 1u);
    auto next = std::make_shared<const TestRegion>();
    ASSERT_TRUE(pins_->Pin(next));
    EXPECT_EQ(pins_->regions(), 2u);
    blocks = std::move(next);
    Look();
    EXPECT_EQ(pins_->regions(), 1u);
  }
}

TEST_F(RegionPinsTest, ARegionThatCannotBePinnedIsTriedOnce) {
  pinner_.Refuse();
  auto region = std::make_shared<const TestRegion>();
  const MemoryRegion* const address = region.get();
  EXPECT_FALSE(pins_->Pin(region));
  EXPECT_FALSE(pins_->Pin(region));
  EXPECT_EQ(pinner_.pins(address), 1);
  region = nullptr;
  Look();
  EXPECT_EQ(pins_->regions(), 0u);
  EXPECT_EQ(pinner_.unpins(address), 0) << "it was never pinned";
}

TEST_F(RegionPinsTest, TheEndUnpinsWhatIsPinned) {
  const auto region = std::make_shared<const TestRegion>();
  ASSERT_TRUE(pins_->Pin(region));
  pins_ = nullptr;
  EXPECT_EQ(pinner_.unpins(region.get()), 1);
}

TEST_F(RegionPinsTest, AProcessAtItsLimitOfThreadsIsAnError) {
  const NoThreads none;
  EXPECT_TRUE(absl::IsResourceExhausted(
      RegionPins::Create(&pinner_, RegionPins::Options()).status()));
}

}  // namespace
}  // namespace ballast
