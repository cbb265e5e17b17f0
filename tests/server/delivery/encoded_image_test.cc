#include "server/delivery/sample_reader.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/corpus/index/digest.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

TEST(EncodedImageTest, ComparesLengthAndHash) {
  const std::string file = "a file of some bytes";
  const auto fault = [](absl::string_view bytes, uint32_t length,
                        std::optional<uint64_t> hash) {
    const auto found = FindEncodedImageFault(bytes, length, hash);
    return found.has_value() ? found->reason() : "";
  };
  EXPECT_EQ(fault(file, 20, Checksum(file)), "");
  EXPECT_EQ(fault(file, 20, std::nullopt), "");
  EXPECT_THAT(fault(file, 21, std::nullopt),
              HasSubstr("file of 20 bytes, the index has 21"));
  std::string changed = file;
  changed[7] ^= 1;
  EXPECT_EQ(fault(changed, 20, std::nullopt), "");
  EXPECT_THAT(fault(changed, 20, Checksum(file)),
              HasSubstr("when `index` read it"));
}

}  // namespace
}  // namespace ballast
