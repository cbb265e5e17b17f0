#include "trainer_shim/c_api/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

v1::Checkpoint Example() {
  v1::Checkpoint checkpoint;
  checkpoint.set_next_step(uint64_t{1} << 40);
  checkpoint.mutable_fingerprint()->set_hash("0123");
  checkpoint.mutable_fingerprint()->set_data_hash("4567");
  v1::Fingerprint::Entry* entry =
      checkpoint.mutable_fingerprint()->add_entries();
  entry->set_key("batch.global");
  entry->set_value("64");
  return checkpoint;
}

TEST(CheckpointTest, RoundTrips) {
  const auto read = ParseCheckpoint(CheckpointBytes(Example()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), Example().SerializeAsString());
  EXPECT_EQ(CheckpointBytes(*read), CheckpointBytes(Example()));
}

TEST(CheckpointTest, BytesThatAreNotACheckpointAreInvalid) {
  for (const char* bytes : {"", "BALLAST", "something else of some length"}) {
    EXPECT_EQ(ParseCheckpoint(bytes).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(CheckpointTest, EveryTruncationAndChangedByteIsDetected) {
  const std::string bytes = CheckpointBytes(Example());
  for (size_t size = 8; size < bytes.size(); ++size) {
    EXPECT_EQ(ParseCheckpoint(bytes.substr(0, size)).status().code(),
              absl::StatusCode::kDataLoss)
        << size;
  }
  for (size_t i = 16; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] ^= 0x20;
    EXPECT_EQ(ParseCheckpoint(damaged).status().code(),
              absl::StatusCode::kDataLoss)
        << i;
  }
}

TEST(CheckpointTest, AnotherVersionIsRefusedNamingBoth) {
  std::string bytes = CheckpointBytes(Example());
  bytes[8] = 7;
  const absl::Status status = ParseCheckpoint(bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 7, wanted 1"));
}

}  // namespace
}  // namespace ballast
