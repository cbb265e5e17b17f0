#include "server/delivery/block_ledger.h"

#include <iterator>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using Fate = BlockLedger::Fate;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kPage = 4096;
// Size of a block that takes this many pages with its stamp.
constexpr uint64_t Pages(uint64_t pages) { return pages * kPage - 256; }

BlockKey Key(uint64_t step, uint32_t dp_rank = 0) {
  return {v1::MODULE_VISION, dp_rank, {step, 0}};
}

// A ledger of `pages` pages, all of them in the arena.
class BlockLedgerTest : public ::testing::Test {
 protected:
  // Each of the roles, of ranks 0 and up, has a stream.
  void Start(uint64_t pages, uint32_t roles) { StartWith(pages, roles, roles); }
  void StartWith(uint64_t pages, uint32_t roles, uint32_t open) {
    ledger_.emplace(pages * kPage, roles, 0, pages * kPage);
    for (uint32_t rank = 0; rank < open; ++rank) {
      ledger_->OpenStream(Key(0, rank).role());
    }
  }
  std::optional<BlockLedger::Grant> Acquire(uint64_t stream,
                                            const BlockKey& key,
                                            uint64_t pages = 1) {
    gone_.clear();
    return ledger_->Acquire(stream, key, Pages(pages), &gone_);
  }
  // Acquires the block and marks it as built.
  uint64_t Hold(uint64_t stream, const BlockKey& key, uint64_t pages = 1) {
    const auto grant = Acquire(stream, key, pages);
    EXPECT_TRUE(grant.has_value());
    if (!grant.has_value()) return 0;
    if (grant->is_new) ledger_->OnBuilt(grant->block, true);
    return grant->block;
  }

  std::optional<BlockLedger> ledger_;
  std::vector<uint64_t> gone_;
};

TEST_F(BlockLedgerTest, ABlockTakesItsStampAndWholePages) {
  EXPECT_EQ(BlockLedger::Footprint(1), kPage);
  EXPECT_EQ(BlockLedger::Footprint(kPage - 256), kPage);
  EXPECT_EQ(BlockLedger::Footprint(kPage - 255), 2 * kPage);
}

TEST_F(BlockLedgerTest, PeersShareABlock) {
  Start(8, 1);
  const auto first = Acquire(1, Key(0));
  const auto second = Acquire(2, Key(0));
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(first->is_new);
  EXPECT_FALSE(second->is_new);
  EXPECT_EQ(first->block, second->block);
  EXPECT_EQ(ledger_->in_use(), kPage);
  EXPECT_EQ(ledger_->Release(1, first->block), Fate::kStays);
  EXPECT_EQ(ledger_->OnBuilt(first->block, true), Fate::kStays);
  EXPECT_TRUE(ledger_->IsHeld(first->block));
  EXPECT_EQ(ledger_->Release(2, first->block), Fate::kStays);
  EXPECT_EQ(ledger_->in_use(), 0u);
  EXPECT_EQ(ledger_->idle(), kPage);
}

TEST_F(BlockLedgerTest, KeysThatDifferInAnyFieldAreDifferentBlocks) {
  Start(8, 1);
  std::set<uint64_t> blocks;
  blocks.insert(Acquire(1, {v1::MODULE_VISION, 0, {0, 0}})->block);
  blocks.insert(Acquire(2, {v1::MODULE_LANGUAGE, 0, {0, 0}})->block);
  blocks.insert(Acquire(3, {v1::MODULE_VISION, 1, {0, 0}})->block);
  blocks.insert(Acquire(4, {v1::MODULE_VISION, 0, {1, 0}})->block);
  blocks.insert(Acquire(5, {v1::MODULE_VISION, 0, {0, 1}})->block);
  EXPECT_EQ(blocks.size(), 5u);
}

TEST_F(BlockLedgerTest, ReusesAnIdleBlock) {
  Start(8, 1);
  const uint64_t block = Hold(1, Key(3));
  ledger_->Release(1, block);
  const auto again = Acquire(2, Key(3));
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->is_new);
  EXPECT_EQ(again->block, block);
  EXPECT_EQ(ledger_->in_use(), kPage);
  EXPECT_EQ(ledger_->idle(), 0u);
}

TEST_F(BlockLedgerTest, EvictsTheLongestIdleFirstAndOnlyIfNeeded) {
  Start(4, 1);
  std::vector<uint64_t> blocks;
  for (uint64_t step = 0; step < 4; ++step)
    blocks.push_back(Hold(1, Key(step)));
  for (const int i : {2, 3, 0, 1}) ledger_->Release(1, blocks[i]);
  Hold(1, Key(10));
  EXPECT_THAT(gone_, ElementsAre(blocks[2]));
  EXPECT_EQ(ledger_->GetPlace(blocks[2]), std::nullopt);
  // Takes two adjacent pages: those of blocks 0 and 1.
  const uint64_t large = Hold(1, Key(11), 2);
  EXPECT_THAT(gone_, ElementsAre(blocks[3], blocks[0], blocks[1]));
  EXPECT_EQ(ledger_->GetPlace(large), 0u);
  EXPECT_EQ(ledger_->idle(), 0u);
}

TEST_F(BlockLedgerTest, DoesNotEvictIdleBlocksInVain) {
  Start(4, 1);
  const uint64_t held = Hold(1, Key(0), 2);
  const uint64_t idle = Hold(2, Key(1), 1);
  ledger_->Release(2, idle);
  EXPECT_FALSE(Acquire(1, Key(2), 3));
  EXPECT_THAT(gone_, IsEmpty());
  EXPECT_EQ(ledger_->idle(), kPage);
  EXPECT_TRUE(ledger_->IsHeld(held));
}

TEST_F(BlockLedgerTest, AStreamStaysWithinItsShareAndTheTotal) {
  Start(8, 2);
  Hold(1, Key(0));
  Hold(1, Key(1), 3);
  EXPECT_FALSE(Acquire(1, Key(2)));  // its share is 4 pages
  Hold(2, Key(3, 1), 4);
  EXPECT_FALSE(Acquire(2, Key(4, 1)));
  // A third stream would exceed the total; it gets a block outside the arena.
  const auto beyond = Acquire(3, Key(5));
  ASSERT_TRUE(beyond);
  EXPECT_FALSE(ledger_->Promise(3, beyond->block));
  EXPECT_EQ(ledger_->GetPlace(beyond->block), std::nullopt);
  EXPECT_FALSE(Acquire(3, Key(6)));
  ledger_->OnBuilt(beyond->block, true);
  EXPECT_EQ(ledger_->Release(3, beyond->block), Fate::kGone);
}

// However many streams a role opens, they have one share; what they hold in
// common counts once.
TEST_F(BlockLedgerTest, StreamsOfARoleHaveOneShareTogether) {
  Start(8, 2);
  for (uint64_t stream = 1; stream <= 4; ++stream) {
    Hold(stream, Key(stream));  // 4 pages, the role's share
    Hold(stream, Key(1 + stream % 4));
  }
  EXPECT_FALSE(Acquire(1, Key(8)));
  const auto beyond = Acquire(5, Key(9));  // its first block
  ASSERT_TRUE(beyond);
  EXPECT_FALSE(Acquire(5, Key(10)));
  EXPECT_FALSE(Acquire(5, Key(1)));
  // The other role has its own, of which one page is taken.
  Hold(6, Key(0, 1), 3);
  EXPECT_FALSE(Acquire(6, Key(1, 1), 2));
  ledger_->OnBuilt(beyond->block, true);
  ledger_->Release(5, beyond->block);
  EXPECT_TRUE(Acquire(6, Key(1, 1)));
  EXPECT_TRUE(Acquire(5, Key(1)));  // the role holds it anyway
}

// A server that could serve any of many roles divides its memory among those
// that have streams.
TEST_F(BlockLedgerTest, MemoryFollowsTheOpenStreams) {
  StartWith(8, 1000, 1);
  EXPECT_EQ(ledger_->share(), 8 * kPage);
  for (uint64_t step = 0; step < 8; ++step) Hold(1, Key(step));
  EXPECT_FALSE(Acquire(1, Key(8)));
  ledger_->OpenStream(Key(0).role());  // another of the same role
  EXPECT_EQ(ledger_->share(), 8 * kPage);
  ledger_->OpenStream(Key(0, 7).role());
  EXPECT_EQ(ledger_->share(), 4 * kPage);
  ledger_->CloseStream(Key(0).role());
  EXPECT_EQ(ledger_->share(), 4 * kPage);
  ledger_->CloseStream(Key(0, 7).role());
  EXPECT_EQ(ledger_->share(), 8 * kPage);
}

TEST_F(BlockLedgerTest, ARoleAboveItsShareGivesBackForOneBelow) {
  StartWith(8, 1000, 1);
  std::vector<uint64_t> blocks;
  for (uint64_t step = 0; step < 8; ++step)
    blocks.push_back(Hold(1, Key(step)));
  const RoleKey early = Key(0).role(), late = Key(0, 7).role();
  EXPECT_EQ(ledger_->AboveShare(early, 1, {}), std::nullopt);
  ledger_->OpenStream(late);
  EXPECT_EQ(ledger_->AboveShare(early, 1, {}), std::nullopt);
  for (uint64_t step = 0; step < 4; ++step) {
    EXPECT_FALSE(ledger_->HasRoom(Pages(1)));
    EXPECT_EQ(ledger_->AboveShare(late, Pages(1), {}), early);
    EXPECT_EQ(ledger_->AboveShare(late, Pages(1), {early}), std::nullopt);
    ledger_->Release(1, blocks[7 - step]);
    EXPECT_TRUE(ledger_->HasRoom(Pages(1)));
    EXPECT_TRUE(ledger_->GetPlace(Hold(2, Key(step, 7))).has_value());
  }
  // Each has its share, and nobody gives more.
  EXPECT_EQ(ledger_->AboveShare(late, Pages(1), {}), std::nullopt);
  EXPECT_FALSE(Acquire(2, Key(4, 7)));
  EXPECT_FALSE(Acquire(1, Key(4)));
  EXPECT_EQ(ledger_->in_use(), 8 * kPage);
}

// What clients have in hand cannot be taken back, so it stays within the part
// that a role has when all have streams.
TEST_F(BlockLedgerTest, AnEarlyClientKeepsNoMoreThanThePartOfOneOfAllRoles) {
  StartWith(8, 4, 1);
  std::vector<bool> promised;
  for (uint64_t step = 0; step < 4; ++step) {
    promised.push_back(ledger_->Promise(1, Hold(1, Key(step))));
  }
  EXPECT_THAT(promised, ElementsAre(true, true, false, false));
}

TEST_F(BlockLedgerTest, ABlockLargerThanAllMemoryIsGrantedAlone) {
  Start(2, 1);
  for (uint64_t step = 0; step < 3; ++step) {
    const uint64_t block = Hold(1, Key(step), 5);
    EXPECT_FALSE(Acquire(1, Key(step + 1), 5));
    EXPECT_EQ(ledger_->Release(1, block), Fate::kGone);
  }
  EXPECT_EQ(ledger_->in_use(), 0u);
}

// A client that keeps its blocks still gets the next one, but as a copy.
TEST_F(BlockLedgerTest, LentBlocksFillTheShareButDoNotStopTheStream) {
  Start(4, 2);
  const uint64_t first = Hold(1, Key(0));
  const uint64_t second = Hold(1, Key(1));
  EXPECT_FALSE(Acquire(1, Key(2)));
  ledger_->Lend(1, first);  // not promised: no effect
  EXPECT_TRUE(ledger_->Promise(1, first));
  ledger_->Lend(1, first);
  EXPECT_FALSE(Acquire(1, Key(2)));
  EXPECT_TRUE(ledger_->Promise(1, second));
  ledger_->Lend(1, second);
  ledger_->Lend(1, second);  // no effect
  const auto third = Acquire(1, Key(2));
  ASSERT_TRUE(third);
  EXPECT_FALSE(ledger_->Promise(1, third->block));
  EXPECT_FALSE(Acquire(1, Key(3)));
  // There was room for it in the arena, so it stays there for peers.
  EXPECT_TRUE(ledger_->GetPlace(third->block).has_value());
  ledger_->OnBuilt(third->block, true);
  EXPECT_EQ(ledger_->Release(1, third->block), Fate::kStays);
  // A peer's block is not lent to it either.
  Hold(2, Key(3));
  const auto shared = Acquire(1, Key(3));
  ASSERT_TRUE(shared);
  EXPECT_FALSE(shared->is_new);
  EXPECT_FALSE(ledger_->Promise(1, shared->block));
  // Once it has released some blocks, it is.
  ledger_->Release(1, shared->block);
  ledger_->Release(1, first);
  EXPECT_TRUE(ledger_->Promise(1, Acquire(1, Key(3))->block));
}

TEST_F(BlockLedgerTest, UnwantedWorkMayBeDroppedOrReused) {
  Start(8, 1);
  const uint64_t dropped = Acquire(1, Key(0))->block;
  EXPECT_EQ(ledger_->Release(1, dropped), Fate::kUnwanted);
  EXPECT_EQ(ledger_->in_use(), kPage);  // it is still written
  EXPECT_EQ(ledger_->OnBuilt(dropped, false), Fate::kGone);
  EXPECT_EQ(ledger_->in_use(), 0u);

  const uint64_t taken_up = Acquire(1, Key(0))->block;
  EXPECT_EQ(ledger_->Release(1, taken_up), Fate::kUnwanted);
  const auto again = Acquire(2, Key(0));
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->is_new);
  EXPECT_EQ(again->block, taken_up);

  const uint64_t finished = Acquire(1, Key(1))->block;
  EXPECT_EQ(ledger_->Release(1, finished), Fate::kUnwanted);
  EXPECT_EQ(ledger_->OnBuilt(finished, true), Fate::kStays);
  EXPECT_EQ(Acquire(1, Key(1))->block, finished);
}

TEST_F(BlockLedgerTest, RebuildsAFailedBlock) {
  Start(8, 1);
  const uint64_t failed = Acquire(1, Key(0))->block;
  EXPECT_EQ(ledger_->OnBuilt(failed, false), Fate::kStays);
  const auto again = Acquire(2, Key(0));
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->is_new);
  EXPECT_NE(again->block, failed);
  EXPECT_EQ(ledger_->Release(1, failed), Fate::kGone);
  EXPECT_EQ(Acquire(3, Key(0))->block, again->block);
}

TEST_F(BlockLedgerTest, IgnoresUnknownStreamsAndBlocks) {
  Start(4, 0);  // 0 shares count as 1
  EXPECT_EQ(ledger_->share(), 4 * kPage);
  EXPECT_EQ(ledger_->Release(1, 7), Fate::kStays);
  EXPECT_EQ(ledger_->OnBuilt(7, true), Fate::kStays);
  ledger_->Lend(1, 7);
  const uint64_t block = Hold(1, Key(0));
  EXPECT_EQ(ledger_->Release(2, block), Fate::kStays);
  EXPECT_EQ(ledger_->in_use(), kPage);
}

// Streams come, hold, lend and leave at random. Places never overlap, the bound
// stated in the header holds, and everything is released in the end.
TEST_F(BlockLedgerTest, TheBoundHoldsForRandomStreams) {
  constexpr uint64_t kWhole = 64, kStreams = 6, kLargest = 8;
  Start(kWhole, 4);
  std::mt19937 random(3);
  std::set<std::pair<uint64_t, uint64_t>> asked;  // (stream, step)
  std::set<std::pair<uint64_t, uint64_t>> holds;  // (stream, block)
  std::map<uint64_t, uint64_t> pages;             // of blocks that exist
  for (int i = 0; i < 20000; ++i) {
    const uint64_t stream = 1 + random() % kStreams;
    if (random() % 2 == 0) {
      const uint64_t step = i / 100 + random() % 40;
      const uint64_t size = 1 + step % kLargest;
      // A stream requests a block only once.
      if (!asked.emplace(stream, step).second) continue;
      const auto grant = Acquire(stream, Key(step), size);
      for (const uint64_t block : gone_) pages.erase(block);
      if (grant) {
        pages[grant->block] = size;
        holds.emplace(stream, grant->block);
        if (grant->is_new) ledger_->OnBuilt(grant->block, true);
        if (ledger_->Promise(stream, grant->block) && random() % 2 == 0) {
          ledger_->Lend(stream, grant->block);
        }
      }
    } else if (!holds.empty()) {
      auto hold = holds.begin();
      std::advance(hold, random() % holds.size());
      if (ledger_->Release(hold->first, hold->second) == Fate::kGone) {
        pages.erase(hold->second);
      }
      holds.erase(hold);
    }
    ASSERT_LE(ledger_->in_use(), (kWhole + kStreams * kLargest) * kPage);
    std::vector<bool> taken(kWhole, false);
    for (const auto& [block, size] : pages) {
      const auto place = ledger_->GetPlace(block);
      if (!place) continue;
      for (uint64_t page = 0; page < size; ++page) {
        ASSERT_FALSE(taken.at(*place / kPage + page));
        taken[*place / kPage + page] = true;
      }
    }
  }
  for (const auto& [stream, block] : holds) ledger_->Release(stream, block);
  EXPECT_EQ(ledger_->in_use(), 0u);
}

}  // namespace
}  // namespace ballast
