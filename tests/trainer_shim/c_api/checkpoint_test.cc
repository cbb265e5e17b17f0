#include "trainer_shim/c_api/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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

TEST(JobJsonTest, WritesEveryFieldUnderItsName) {
  v1::Job job;
  v1::Job::ModuleSize& module = *job.add_modules();
  module.set_module(v1::MODULE_VISION);
  module.set_dp(4);
  job.set_global_batch(64);
  job.set_delivery(v1::DELIVERY_EXCHANGE);
  job.set_end_step(uint64_t{1} << 60);
  job.mutable_model()->set_profile("qwen2_5_vl");
  job.mutable_model()->add_mean(0.5);
  job.mutable_model()->mutable_token_ids()->set_image(151655);
  job.mutable_model()->set_resample(v1::Model::RESAMPLE_FAST);
  v1::Fingerprint fingerprint;
  fingerprint.set_hash("01");
  fingerprint.set_data_hash("02");

  const std::string text = JobToJson(job, fingerprint);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["fingerprint"], "01");
  EXPECT_EQ(json["data_fingerprint"], "02");
  EXPECT_EQ(json["modules"][0]["module"], "vision");
  EXPECT_EQ(json["modules"][0]["dp"], 4);
  EXPECT_EQ(json["modules"][0]["align"], 0) << "unset fields are there, too";
  EXPECT_EQ(json["global_batch"], 64);
  EXPECT_EQ(json["delivery"], "exchange");
  EXPECT_EQ(json["end_step"], uint64_t{1} << 60) << "exact";
  EXPECT_EQ(json["model"]["profile"], "qwen2_5_vl");
  EXPECT_EQ(json["model"]["mean"], nlohmann::json({0.5}));
  EXPECT_EQ(json["model"]["token_ids"]["image"], 151655);
  EXPECT_EQ(json["model"]["resample"], "fast");
}

TEST(JobJsonTest, TextThatIsNotUtf8DoesNotFail) {
  v1::Job job;
  job.mutable_model()->set_profile("a\xff");
  EXPECT_FALSE(nlohmann::json::parse(JobToJson(job, {})).empty());
}

}  // namespace

}  // namespace ballast
