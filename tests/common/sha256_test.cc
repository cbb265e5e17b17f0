#include "common/sha256.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

// The examples of FIPS 180-4.
TEST(Sha256Test, MatchesThePublishedExamples) {
  EXPECT_EQ(Sha256Hex({}),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex(std::vector<uint8_t>{'a', 'b', 'c'}),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace ballast
