#include "trainer_shim/jpeg_feed.h"

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/mutex.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/stepped_jpeg_engine.h"
#include "trainer_shim/host/host_image_decoder.h"

namespace ballast {
namespace {

// Slots of chunks that were decoded, in order.
class Decoded {
 public:
  absl::Status Add(size_t slot) {
    MutexLock lock(&mutex_);
    slots_.push_back(slot);
    return slot == bad_ ? absl::InternalError("kernels") : absl::OkStatus();
  }
  std::vector<size_t> slots() const {
    MutexLock lock(&mutex_);
    return slots_;
  }
  size_t bad_ = 99;

 private:
  mutable Mutex mutex_;
  std::vector<size_t> slots_ ABSL_GUARDED_BY(mutex_);
};

class JpegChunksTest : public ::testing::Test {
 protected:
  std::unique_ptr<JpegChunks> Chunks(int engines) {
    return std::make_unique<JpegChunks>(
        SteppedEngines(engines, &gate_),
        [this](size_t slot) { return decoded_.Add(slot); });
  }
  // Begins a chunk in the slot that is expected.
  void Begin(JpegChunks* chunks, uint32_t name, size_t slot,
             absl::string_view bytes = "good") {
    const absl::StatusOr<size_t> reserved = chunks->Reserve();
    ASSERT_TRUE(reserved.ok()) << reserved.status();
    EXPECT_EQ(*reserved, slot);
    const absl::Status begun = chunks->Begin(SteppedBatch(name, 2, bytes));
    ASSERT_TRUE(begun.ok()) << begun;
  }

  EngineGate gate_;
  Decoded decoded_;
};

TEST_F(JpegChunksTest, SlotsAreTakenInTurnAndEndInOrder) {
  const auto chunks = Chunks(2);
  EXPECT_EQ(chunks->slots(), 4u);
  gate_.Permit(100);
  for (uint32_t chunk = 0; chunk < 10; ++chunk) {
    Begin(chunks.get(), chunk + 1, chunk % 4);
    EXPECT_EQ(chunks->begun(), chunk + 1);
  }
  EXPECT_TRUE(chunks->Finish(10).ok());
  EXPECT_EQ(decoded_.slots(),
            (std::vector<size_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(chunks->counts().by_hardware, 20u);
  // Again, and what was not begun: nothing to wait for.
  EXPECT_TRUE(chunks->Finish(4).ok());
}

TEST_F(JpegChunksTest, ReserveEndsTheOldestChunkOnly) {
  const auto chunks = Chunks(1);
  Begin(chunks.get(), 1, 0);
  Begin(chunks.get(), 2, 1);
  gate_.Permit(1);
  Begin(chunks.get(), 3, 0);
  EXPECT_EQ(decoded_.slots(), std::vector<size_t>{0});
  gate_.Permit(2);
  EXPECT_TRUE(chunks->Finish(3).ok());
}

// The engines get the next batch while the last one's chunks are waited for.
TEST_F(JpegChunksTest, BeginsWhileAnotherThreadFinishes) {
  const auto chunks = Chunks(2);
  Begin(chunks.get(), 1, 0);
  gate_.Taken(1);
  std::thread finisher([&] { EXPECT_TRUE(chunks->Finish(1).ok()); });
  // No permit so far: the first chunk cannot have ended.
  Begin(chunks.get(), 2, 1);
  EXPECT_EQ(gate_.Taken(2), (std::vector<uint32_t>{1, 2}));
  gate_.Permit(2);
  finisher.join();
  EXPECT_TRUE(chunks->Finish(2).ok());
  EXPECT_EQ(decoded_.slots(), (std::vector<size_t>{0, 1}));
}

// An engine takes the next chunk while the last one is resampled.
TEST_F(JpegChunksTest, EnginesWorkWhileAChunkIsCompleted) {
  JpegChunks chunks(SteppedEngines(1, &gate_), [this](size_t slot) {
    if (slot == 0) {
      EXPECT_EQ(gate_.Taken(2), (std::vector<uint32_t>{1, 2}));
    }
    return absl::OkStatus();
  });
  Begin(&chunks, 1, 0);
  Begin(&chunks, 2, 1);
  gate_.Permit(1);
  EXPECT_TRUE(chunks.Finish(1).ok());
  gate_.Permit(1);
  EXPECT_TRUE(chunks.Finish(2).ok());
}

TEST_F(JpegChunksTest, AFailureIsThatOfItsBatchAndFinal) {
  const auto chunks = Chunks(1);
  gate_.Permit(100);
  Begin(chunks.get(), 1, 0);
  Begin(chunks.get(), 2, 1, "bad");
  EXPECT_TRUE(chunks->Finish(1).ok());
  EXPECT_EQ(chunks->Finish(2).message(), "bad");
  EXPECT_EQ(decoded_.slots(), std::vector<size_t>{0});
  EXPECT_EQ(chunks->Reserve().status().message(), "bad");
  EXPECT_EQ(chunks->Finish(1).message(), "bad");
  EXPECT_EQ(chunks->Fail(absl::InternalError("later")).message(), "bad");
}

TEST_F(JpegChunksTest, NoEngineWorksAfterAFailure) {
  const auto chunks = Chunks(2);
  Begin(chunks.get(), 1, 0, "bad");
  Begin(chunks.get(), 2, 1);
  Begin(chunks.get(), 3, 2);
  gate_.Permit(3);
  EXPECT_FALSE(chunks->Finish(1).ok());
  EXPECT_EQ(chunks->counts().by_hardware, 6u);
}

TEST_F(JpegChunksTest, WhatFollowsDecodingMayFail) {
  decoded_.bad_ = 1;
  const auto chunks = Chunks(1);
  gate_.Permit(100);
  Begin(chunks.get(), 1, 0);
  Begin(chunks.get(), 2, 1);
  EXPECT_EQ(chunks->Finish(2).message(), "kernels");
  EXPECT_EQ(decoded_.slots(), (std::vector<size_t>{0, 1}));
}

TEST_F(JpegChunksTest, AFailureOfTheThreadThatBeginsEndsTheOthersWait) {
  const auto chunks = Chunks(1);
  Begin(chunks.get(), 1, 0);
  Begin(chunks.get(), 2, 1);
  absl::Status finished;
  std::thread finisher([&] { finished = chunks->Finish(2); });
  gate_.Permit(2);
  const absl::Status failed = chunks->Fail(absl::InternalError("no memory"));
  finisher.join();
  EXPECT_EQ(failed.message(), "no memory");
  // Either both chunks had ended before, or the failure came first.
  if (!finished.ok()) {
    EXPECT_EQ(finished.message(), "no memory");
  }
  EXPECT_EQ(chunks->Finish(2).message(), "no memory");
}

// With the CPU's engines, one thread beginning and one finishing: the planes
// are those of one engine alone.
TEST_F(JpegChunksTest, DecodesOnTheCpuInTwoThreads) {
  const std::vector<MadeJpeg> all = HardJpegs();
  const std::vector<MadeJpeg> made(all.begin(), all.begin() + 40);
  std::vector<std::string> files;
  std::vector<std::vector<uint8_t>> want;
  CpuJpegEngine alone;
  for (const MadeJpeg& picture : made) {
    files.push_back(MakeJpeg(picture));
    const PlaneForm form = {picture.width, picture.height, picture.sampling};
    want.emplace_back(LayOutPlanes(form).bytes);
    ASSERT_TRUE(alone.DecodeOne({files.back(), form, want.back().data()}).ok());
  }
  std::vector<std::unique_ptr<JpegEngine>> engines;
  engines.push_back(std::make_unique<CpuJpegEngine>());
  engines.push_back(std::make_unique<CpuJpegEngine>());
  std::vector<std::vector<uint8_t>> slots(4);
  std::vector<size_t> file_of(4);
  size_t equal = 0;
  JpegChunks chunks(std::move(engines), [&](size_t slot) {
    equal += slots[slot] == want[file_of[slot]];
    return absl::OkStatus();
  });
  for (size_t i = 0; i < made.size(); ++i) {
    std::thread finisher;
    const absl::StatusOr<size_t> slot = chunks.Reserve();
    ASSERT_TRUE(slot.ok());
    if (i > 0) {
      finisher = std::thread([&] { EXPECT_TRUE(chunks.Finish(i).ok()); });
    }
    const PlaneForm form = {made[i].width, made[i].height, made[i].sampling};
    slots[*slot].assign(LayOutPlanes(form).bytes, 0);
    file_of[*slot] = i;
    const EncodedJpeg jpeg = {files[i], form, slots[*slot].data()};
    EXPECT_TRUE(chunks.Begin({&jpeg, 1}).ok());
    if (finisher.joinable()) finisher.join();
  }
  ASSERT_TRUE(chunks.Finish(made.size()).ok());
  EXPECT_EQ(equal, made.size());
  EXPECT_EQ(chunks.counts().by_host, made.size());
}

}  // namespace
}  // namespace ballast
