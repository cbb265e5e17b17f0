#include "trainer_shim/batch_pool.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

// The entries that exist, and those that are busy.
struct World {
  std::set<const BatchEntry*> alive;
  std::set<const BatchEntry*> busy;
  std::set<const BatchEntry*> released;
};

class FakeEntry final : public BatchEntry {
 public:
  explicit FakeEntry(World* world) : world_(world) {
    world_->alive.insert(this);
  }
  ~FakeEntry() override { world_->alive.erase(this); }

  const BatchInfo& info() const override { return info_; }
  bool placeholder(size_t) const override { return false; }
  absl::StatusOr<std::string> Digest(StreamHandle) const override { return ""; }
  absl::Status RecordStream(StreamHandle) override { return absl::OkStatus(); }

 private:
  void List(std::vector<TensorView>*) const override {}
  void OnRelease() override { world_->released.insert(this); }
  bool IsBusy() override { return world_->busy.count(this) != 0; }

  World* const world_;
  BatchInfo info_;
};

class BatchPoolTest : public ::testing::Test {
 protected:
  std::shared_ptr<BatchPool> MakePool() {
    return std::make_shared<BatchPool>(
        2, [this] { return std::make_unique<FakeEntry>(&world_); });
  }
  static BatchRef<BatchInfo> Next(BatchPool* pool) {
    return pool->GiveOut(*pool->Take());
  }

  World world_;
};

TEST_F(BatchPoolTest, TakesTheEntryThatWasReleasedLongestAgo) {
  const auto pool = MakePool();
  BatchRef<BatchInfo> first = Next(pool.get());
  BatchRef<BatchInfo> second = Next(pool.get());
  const BatchEntry* const oldest = second.entry();
  second.Reset();
  first.Reset();
  EXPECT_EQ(Next(pool.get()).entry(), oldest);
  EXPECT_EQ(pool->entries(), 2u);
  pool->Close();
}

// Streams that were noted for it may end from then on, as after a release.
TEST_F(BatchPoolTest, AnEntryThatIsPutBackIsReleased) {
  const auto pool = MakePool();
  BatchEntry* const entry = *pool->Take();
  pool->PutBack(entry);
  EXPECT_EQ(world_.released.count(entry), 1u);
  pool->Close();
}

TEST_F(BatchPoolTest, ABusyEntryIsPassedOverUntilItIsNot) {
  const auto pool = MakePool();
  BatchRef<BatchInfo> batch = Next(pool.get());
  const BatchEntry* const entry = batch.entry();
  world_.busy.insert(entry);
  batch.Reset();
  EXPECT_NE(Next(pool.get()).entry(), entry);
  EXPECT_NE(Next(pool.get()).entry(), entry);
  EXPECT_EQ(pool->entries(), 2u);
  world_.busy.clear();
  EXPECT_EQ(Next(pool.get()).entry(), entry);
  pool->Close();
}

TEST_F(BatchPoolTest, ABusyEntryOutlivesItsPoolUntilItIsNot) {
  auto pool = MakePool();
  BatchRef<BatchInfo> held = Next(pool.get());
  BatchRef<BatchInfo> released = Next(pool.get());
  world_.busy = {held.entry(), released.entry()};
  released.Reset();
  pool->Close();
  pool.reset();
  held.Reset();
  EXPECT_EQ(world_.alive, world_.busy);
  MakePool()->Close();
  EXPECT_EQ(world_.alive, world_.busy);
  world_.busy.clear();
  MakePool()->Close();
  EXPECT_TRUE(world_.alive.empty());
}

}  // namespace
}  // namespace ballast
