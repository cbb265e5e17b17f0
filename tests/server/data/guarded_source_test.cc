#include "server/data/guarded_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/fake_sample_source.h"
#include "tests/fakes/job_config.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/read_sample.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RetryReadAfterTest, RetriesTransientErrorsWithinTheTimeout) {
  ReadPolicy policy;
  policy.attempts = 4;
  policy.timeout = absl::Seconds(1);
  policy.backoff = absl::Milliseconds(100);
  const absl::Status eio = absl::UnavailableError("disk error");
  const absl::Duration none;
  EXPECT_EQ(RetryReadAfter(policy, 1, none, eio), absl::Milliseconds(100));
  EXPECT_EQ(RetryReadAfter(policy, 2, none, eio), absl::Milliseconds(200));
  EXPECT_EQ(RetryReadAfter(policy, 3, none, eio), absl::Milliseconds(400));
  EXPECT_EQ(RetryReadAfter(policy, 4, none, eio), std::nullopt);
  EXPECT_EQ(RetryReadAfter(policy, 3, absl::Milliseconds(599), eio),
            absl::Milliseconds(400));
  EXPECT_EQ(RetryReadAfter(policy, 3, absl::Milliseconds(600), eio),
            std::nullopt);
  for (const absl::Status& stands :
       {absl::NotFoundError("gone"), absl::DataLossError("shorter"),
        absl::DeadlineExceededError("hangs"),
        absl::PermissionDeniedError("mode 0"),
        absl::ResourceExhaustedError("all hang")}) {
    EXPECT_EQ(RetryReadAfter(policy, 1, none, stands), std::nullopt);
  }
}

class GuardedSourceTest : public ::testing::Test {
 protected:
  GuardedSourceTest() {
    ReadPolicy policy;
    policy.timeout = absl::Seconds(30);
    policy_->Set(policy);
    source_ = GuardSource(inner_, policy_,
                          std::make_shared<BlockingCalls>(2, &clock_), &clock_);
  }

  ManualClock clock_;
  const std::shared_ptr<LiveValue<ReadPolicy>> policy_ =
      std::make_shared<LiveValue<ReadPolicy>>(ReadPolicy());
  const std::shared_ptr<FakeSampleSource> inner_ =
      std::make_shared<FakeSampleSource>(JobConfig(1, 1, 4, 4), 8);
  std::unique_ptr<SampleSource> source_;
};

TEST_F(GuardedSourceTest, ReturnsTheSourcesSamples) {
  const auto sample = ReadSample(*source_, 5, {});
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->name, ReadSample(*inner_, 5, {})->name);
  EXPECT_EQ(Images(*sample), Images(*ReadSample(*inner_, 5, {})));
  EXPECT_EQ(&source_->index(), &inner_->index());
  EXPECT_EQ(source_->Locate(5).file, "fake.jsonl");
  EXPECT_EQ(source_->Locate(5).offset, 500u);
}

TEST_F(GuardedSourceTest, ReadsFromMemoryWithoutAThread) {
  // A pool of no threads.
  const auto none = std::make_shared<BlockingCalls>(0, &clock_);
  const auto source = GuardSource(inner_, policy_, none, &clock_);
  inner_->KeepInMemory(5);
  const auto sample = ReadSample(*source, 5, {.text = true, .images = false});
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->text, ReadSample(*inner_, 5, {})->text);
  EXPECT_TRUE(Images(*sample).empty());
  EXPECT_EQ(ReadSample(*source, 6, {}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// A read of the disk may hang and end after its caller has gone on.
TEST_F(GuardedSourceTest, OnlyFilesInMemoryGoToTheirPlaces) {
  std::string memory;
  const auto place = [&](size_t image, size_t images, uint64_t size) -> char* {
    EXPECT_EQ(images, 1u);
    EXPECT_EQ(image, 0u);
    memory.assign(size, 0);
    return memory.data();
  };
  const ImagePlaces places = place;
  const ReadParts parts = {.text = false, .images = true, .places = &places};
  const auto file = Images(*ReadSample(*inner_, 5, {}))[0];
  const auto from_disk = ReadSample(*source_, 5, parts);
  ASSERT_TRUE(from_disk.ok()) << from_disk.status();
  EXPECT_EQ(from_disk->media[0].bytes, file);
  EXPECT_EQ(from_disk->media[0].file(), file);
  EXPECT_EQ(memory, "");
  inner_->KeepInMemory(5);
  const auto in_memory = ReadSample(*source_, 5, parts);
  ASSERT_TRUE(in_memory.ok()) << in_memory.status();
  EXPECT_EQ(in_memory->media[0].bytes, "");
  EXPECT_EQ(in_memory->media[0].file(), file);
  EXPECT_EQ(memory, file);
}

TEST_F(GuardedSourceTest, ReadsFromTheDiskIfMemoryFails) {
  inner_->KeepInMemory(5);
  inner_->Fail(5, DataFaultError("seen in memory only"), 1);
  EXPECT_TRUE(ReadSample(*source_, 5, {}).ok());
}

TEST_F(GuardedSourceTest, HidesAPassingDiskError) {
  inner_->Fail(3, absl::UnavailableError("x: cannot read: disk error"), 2);
  absl::Status status;
  std::thread reader([&] { status = ReadSample(*source_, 3, {}).status(); });
  for (const int wait : {100, 200}) {
    clock_.AwaitSleepers(1);
    // Waits until the reader sleeps before a retry, and not for the read.
    while (clock_.sleeps().back() != absl::Milliseconds(wait)) {
      std::this_thread::yield();
    }
    clock_.Advance(absl::Milliseconds(wait));
  }
  reader.join();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(GuardedSourceTest, ReturnsOtherErrorsAtOnce) {
  inner_->Fail(3, absl::NotFoundError("x: cannot open"));
  EXPECT_EQ(ReadSample(*source_, 3, {}).status(),
            absl::NotFoundError("x: cannot open"));
}

TEST_F(GuardedSourceTest, GivesUpAHangingRead) {
  inner_->Hang(3);
  absl::Status status;
  std::thread reader([&] { status = ReadSample(*source_, 3, {}).status(); });
  inner_->AwaitHanging(1);
  clock_.AwaitSleepers(1);
  clock_.Advance(absl::Seconds(30));
  reader.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("fake.jsonl: sample 3 at byte 300"),
                    HasSubstr("not read within 30s (serve.read_timeout)")));
  // Others are read meanwhile, and a hanging read may outlive its guard.
  EXPECT_TRUE(ReadSample(*source_, 4, {}).ok());
  source_.reset();
  inner_->Release();
}

}  // namespace
}  // namespace ballast
