// The videos of samples as texts and frames, from files that `ffmpeg` makes.
#include "server/delivery/sample_video_reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/files/file.h"
#include "server/model/model_profile.h"
#include "server/model/model_videos.h"
#include "tests/fakes/read_file.h"
#include "tests/server/media/video/made_videos.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

v1::Model ModelOf(const std::string& profile) {
  v1::Model model;
  model.set_profile(profile);
  EXPECT_TRUE(ApplyModelProfile(&model).ok());
  model.mutable_video()->set_max_frames(4);
  model.mutable_video()->set_min_pixels(28 * 28);
  model.mutable_video()->set_max_pixels(16 * 28 * 28);
  return model;
}

RawMedium Open(const std::string& path) {
  RawMedium raw;
  raw.fd = std::make_shared<OwnedFd>(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat stat = {};
  EXPECT_EQ(fstat(raw.fd->get(), &stat), 0) << path;
  raw.size = static_cast<uint64_t>(stat.st_size);
  return raw;
}

class SampleVideoReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "SKIPPED: no program `ffmpeg`";
    path_ = MakeVideo("sample.mp4", "96x64", "2",
                      "-c:v libx264 -g 60 -pix_fmt yuv420p");
    raw_ = Open(path_);
    VideoReader reader(1);
    const auto facts = reader.ReadFacts({raw_.fd->get(), 0, raw_.size});
    ASSERT_TRUE(facts.ok()) << facts.status();
    indexed_ = GetIndexedVideo(*facts);
  }

  // The frames of `plan`, decoded by `reader`.
  absl::Status Read(const SampleVideoReader& reader, const RawMedium& raw,
                    const StreamFacts& indexed, const VideoPlan& plan) {
    const size_t bytes = size_t{3} * plan.height * plan.width;
    frames_.assign(plan.frames.size(), std::vector<uint8_t>(bytes));
    return reader.Read(raw, indexed, plan, /*pictures=*/nullptr,
                       [&](size_t i) { return absl::MakeSpan(frames_[i]); });
  }

  DecodeBudget budget_{uint64_t{1} << 30};
  std::string path_;
  RawMedium raw_;
  StreamFacts indexed_;
  std::vector<std::vector<uint8_t>> frames_;
};

// What `ffmpeg` decodes, resized as an image is.
TEST_F(SampleVideoReaderTest, FramesAreThoseOfTheFileResized) {
  for (const char* profile : {"qwen2_5_vl", "internvl3"}) {
    const v1::Model model = ModelOf(profile);
    const Resampling resampling = GetImageOptions(model).resampling;
    HelperCounters counters;
    const SampleVideoReader reader(model, resampling, 1, &budget_, &counters);
    const auto plan = reader.Plan(indexed_);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_GE(plan->frames.size(), 4u);
    const absl::Status status = Read(reader, raw_, indexed_, *plan);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(counters.starts.value(), 1u);
    const std::vector<std::string> all = DecodeAll(path_, 96, 64);
    for (size_t i = 0; i < frames_.size(); ++i) {
      const std::string& frame = all[plan->frames[i]];
      const RgbImage whole = {96, 64, {frame.begin(), frame.end()}};
      std::vector<uint8_t> resized(frames_[i].size());
      ASSERT_TRUE(Resize(whole, resampling, plan->width, plan->height,
                         absl::MakeSpan(resized))
                      .ok());
      EXPECT_EQ(frames_[i], resized) << profile << " frame " << i;
    }
  }
}

// The index knows a video by its facts; another one is a fault of the data.
TEST_F(SampleVideoReaderTest, AnotherVideoThanWasIndexedIsADataFault) {
  const SampleVideoReader reader(ModelOf("qwen2_vl"), {}, 1, &budget_);
  for (const auto change : {+[](StreamFacts* v) { ++v->frames; },
                            +[](StreamFacts* v) { v->width += 2; },
                            +[](StreamFacts* v) { v->rotation = 180; },
                            +[](StreamFacts* v) { v->fps = 29; }}) {
    StreamFacts other = indexed_;
    change(&other);
    const auto plan = reader.Plan(other);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const absl::Status status = Read(reader, raw_, other, *plan);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("index the source"));
  }
  // Its frames are the same where only the number of key frames is not.
  StreamFacts same = indexed_;
  ++same.key_frames;
  const auto plan = reader.Plan(same);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(Read(reader, raw_, same, *plan).ok());
}

TEST_F(SampleVideoReaderTest, DamageIsADataFaultWithItsReason) {
  std::string bytes = ReadFile(path_);
  const size_t data = bytes.find("mdat"), header = bytes.find("moov");
  ASSERT_LT(data + 1000, header);
  std::fill(bytes.begin() + data + 900, bytes.begin() + header - 4, '\x55');
  const std::string torn = VideoPath("torn.mp4");
  std::ofstream(torn, std::ios::binary) << bytes;
  const SampleVideoReader reader(ModelOf("qwen2_vl"), {}, 1, &budget_);
  const auto plan = reader.Plan(indexed_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const absl::Status status = Read(reader, Open(torn), indexed_, *plan);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(status.message().empty());
}

// A video whose bytes are others by the time that its frames are decoded, with
// the same facts: its sample was checked before.
TEST_F(SampleVideoReaderTest, AFileThatChangesBeforeItIsDecodedIsNotTrainedOn) {
  const std::string path =
      MakeVideo("before.avi", "96x64", "1", "-c:v rawvideo -pix_fmt yuv420p");
  const std::string other = MakeVideo(
      "after.avi", "96x64", "1", "-vf negate -c:v rawvideo -pix_fmt yuv420p");
  const auto file = File::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto raw =
      OpenMedium(MediumKind::kVideo, FileView(&*file), 0, file->stamp().size);
  ASSERT_TRUE(raw.ok()) << raw.status();
  VideoReader facts_reader(1);
  const auto facts = facts_reader.ReadFacts({raw->fd->get(), 0, raw->size});
  ASSERT_TRUE(facts.ok()) << facts.status();
  const StreamFacts indexed = GetIndexedVideo(*facts);
  const SampleVideoReader reader(ModelOf("qwen2_vl"), {}, 1, &budget_);
  const auto plan = reader.Plan(indexed);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(Read(reader, *raw, indexed, *plan).ok());
  const auto time = std::filesystem::last_write_time(path);
  {
    // In place, as `rsync --inplace` writes.
    std::ifstream from(other, std::ios::binary);
    std::fstream(path, std::ios::binary | std::ios::in | std::ios::out)
        << from.rdbuf();
  }
  ASSERT_EQ(std::filesystem::file_size(path), raw->size);
  std::filesystem::last_write_time(path, time + std::chrono::seconds(1));
  const absl::Status status = Read(reader, *raw, indexed, *plan);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("changed while"));
}

TEST(SampleVideoReaderPlanTest, AVideoThatTheScheduleRefusedIsInternal) {
  DecodeBudget budget(1);
  v1::Model none;
  EXPECT_EQ(SampleVideoReader(none, {}, 1, &budget).Plan({}).status().code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(SampleVideoReader(ModelOf("qwen2_vl"), {}, 1, &budget)
                .Plan({})
                .status()
                .code(),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace ballast
