#include "server/storage/span.h"

#include <xxhash.h>

#include <memory>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "server/storage/span_checksum.h"

namespace ballast {
namespace {

constexpr SpanKey Key(uint64_t number) { return {1, number}; }

SpanMemory::SpanPtr Make(uint64_t size) {
  return std::make_shared<Span>(ByteRange{0, size});
}

TEST(SpanMemoryTest, KeepsWhatWasReadElsewhereWithinItsBound) {
  SpanMemory memory(100);
  const auto first = Make(60);
  memory.Put(Key(1), first);
  EXPECT_EQ(memory.Find(Key(1)), first);
  // The one that is here stays.
  memory.Put(Key(1), Make(60));
  EXPECT_EQ(memory.Find(Key(1)), first);
  EXPECT_EQ(memory.bytes(), 60u);
  memory.Put(Key(2), Make(41));
  EXPECT_EQ(memory.Find(Key(1)), nullptr);
  EXPECT_EQ(memory.bytes(), 41u);
  // One span, even if it alone is larger.
  memory.Put(Key(3), Make(500));
  EXPECT_NE(memory.Find(Key(3)), nullptr);
  EXPECT_EQ(memory.bytes(), 500u);
}

TEST(SpanMemoryTest, LeavesASpanToWhoLoadsIt) {
  SpanMemory memory(100);
  const auto loaded = Make(10);
  const auto got = memory.Get(Key(1), [&] {
    memory.Put(Key(1), Make(10));
    EXPECT_EQ(memory.Find(Key(1)), nullptr);
    return loaded;
  });
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got, loaded);
  EXPECT_EQ(memory.Find(Key(1)), loaded);
  EXPECT_EQ(memory.bytes(), 10u);
  const auto failed =
      memory.Get(Key(2), [&]() -> absl::StatusOr<SpanMemory::SpanPtr> {
        return absl::UnavailableError("no store");
      });
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kUnavailable);
  memory.Put(Key(2), loaded);
  EXPECT_EQ(memory.Find(Key(2)), loaded);
}

// Of all lengths that the algorithm treats apart, and at all alignments.
TEST(SpanChecksumTest, IsThatOfTheLibrary) {
  std::mt19937_64 random(1);
  std::string bytes(300000, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (size_t size = 0; size <= bytes.size() - 64;
       size += size < 3000 ? 1 : 9973) {
    const absl::string_view part(bytes.data() + size % 64, size);
    ASSERT_EQ(SpanChecksum(part), XXH3_64bits(part.data(), part.size()))
        << size << " bytes";
    if (!HasSpanChecksumAvx2()) continue;
    ASSERT_EQ(SpanChecksumAvx2(part.data(), part.size()), SpanChecksum(part));
  }
}

}  // namespace
}  // namespace ballast
