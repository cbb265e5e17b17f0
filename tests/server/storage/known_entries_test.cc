#include "server/storage/known_entries.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(KnownEntriesTest, KnowsWhatWasAddedUntilItIsDropped) {
  KnownEntries known(10);
  EXPECT_FALSE(known.Has(1, 0));
  known.Add(1, 0);
  known.Add(2, 0);
  EXPECT_TRUE(known.Has(1, 0));
  known.Drop(1);
  EXPECT_FALSE(known.Has(1, 0));
  EXPECT_TRUE(known.Has(2, 0));
}

TEST(KnownEntriesTest, ForgetsAllOnceSomethingWasRemoved) {
  KnownEntries known(10);
  known.Add(1, 7);
  EXPECT_TRUE(known.Has(1, 7));
  EXPECT_FALSE(known.Has(1, 8));
  // Seen before something was removed: it may be what was.
  known.Add(1, 7);
  EXPECT_FALSE(known.Has(1, 8));
  known.Add(1, 8);
  EXPECT_TRUE(known.Has(1, 8));
}

TEST(KnownEntriesTest, StaysWithinItsBound) {
  KnownEntries known(10);
  for (uint64_t entry = 0; entry < 95; ++entry) {
    known.Add(entry, 0);
    EXPECT_TRUE(known.Has(entry, 0));
    uint64_t count = 0;
    for (uint64_t other = 0; other < 95; ++other) count += known.Has(other, 0);
    EXPECT_LE(count, 10u);
  }
}

}  // namespace
}  // namespace ballast
