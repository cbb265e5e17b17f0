#include "server/storage/span_checksum.h"

#include <random>
#include <string>

#include <gtest/gtest.h>
#include <xxhash.h>

namespace ballast {
namespace {

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
