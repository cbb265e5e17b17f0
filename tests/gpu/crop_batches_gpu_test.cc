// Batches of families whose images have several crops, of videos, and of clips
// of audio: in GPU memory they are the host's, to the byte, in each form.

#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/fake_loader_client.h"
#include "tests/gpu/cuda_world.h"
#include "tests/gpu/device_testing.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/cuda_trainer_shim.h"
#include "trainer_shim/cuda/device_batch.h"
#include "trainer_shim/host/in_process_communicator.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/host/trainer_shim.h"

namespace ballast {
namespace {

using Form = v1::Model::ImageForm;

constexpr uint64_t kSteps = 4;

// What a batch holds: crops in a form and, in merge order or as tiles, videos.
struct Contents {
  Form form = v1::Model::IMAGE_FORM_MERGE_ORDER;
  bool videos = false;
  bool frames_are_crops = false;
  v1::Module module = v1::MODULE_VISION;
  uint32_t clip_width = 10;
  uint32_t audio_ranks = 1;  // several: they exchange samples
};

std::vector<std::unique_ptr<LoaderClient>> Clients(const Contents& contents) {
  FakeLoader loader;
  const bool exchanges = contents.audio_ranks > 1;
  loader.job.delivery = exchanges ? v1::DELIVERY_EXCHANGE : v1::DELIVERY_DIRECT;
  loader.job.form = contents.form;
  loader.job.videos = contents.videos;
  loader.job.frames_are_crops = contents.frames_are_crops;
  const bool audio = contents.module == v1::MODULE_AUDIO;
  loader.job.audio_dp = audio ? contents.audio_ranks : 0;
  loader.job.clip_width = contents.clip_width;
  loader.job.samples_per_group = exchanges ? 3 : 9;
  loader.on_schedule = [audio](v1::StepSchedule* schedule) {
    // Every other micro-batch has a dummy image.
    for (int m = 0; m < schedule->micro_batches_size(); m += 2) {
      v1::MicroBatchSchedule* columns = schedule->mutable_micro_batches(m);
      columns->mutable_modules(audio ? 1 : 0)->add_dummy_rank(0);
    }
    return absl::OkStatus();
  };
  std::vector<std::unique_ptr<LoaderClient>> clients;
  clients.push_back(FakeLoaderClient(std::move(loader)));
  return clients;
}

std::vector<PackedBatch> OnHost(const Contents& contents, PixelType type,
                                uint32_t rank = 0,
                                std::unique_ptr<Communicator> peers = nullptr) {
  TrainerShim::Options options;
  options.source.role.set_module(contents.module);
  options.source.role.set_dp_rank(rank);
  options.communicator = std::move(peers);
  options.source.steps = kSteps;
  options.pixel_type = type;
  const auto shim =
      OrDie(TrainerShim::Create(std::move(options), Clients(contents)));
  std::vector<PackedBatch> batches;
  while (true) {
    const auto batch = shim->Next();
    if (absl::IsOutOfRange(batch.status())) return batches;
    OrDie(batch.status());
    batches.push_back(**batch);
  }
}

std::vector<PackedBatch> OnDevice(
    const Contents& contents, PixelType type, uint32_t rank = 0,
    std::unique_ptr<Communicator> peers = nullptr) {
  CudaTrainerShim::Options options;
  options.source.role.set_module(contents.module);
  options.source.role.set_dp_rank(rank);
  options.communicator = std::move(peers);
  options.source.steps = kSteps;
  options.pixel_type = type;
  const CudaStream stream = OrDie(CudaStream::Create());
  const auto shim =
      OrDie(CudaTrainerShim::Create(std::move(options), Clients(contents)));
  std::vector<PackedBatch> batches;
  while (true) {
    const auto batch = shim->Next(stream.get());
    if (absl::IsOutOfRange(batch.status())) return batches;
    OrDie(batch.status());
    batches.push_back(OrDie(CopyToHost(**batch, stream.get())));
  }
}

class CropBatchesGpuTest
    : public ::testing::TestWithParam<std::tuple<Form, PixelType>> {};

TEST_P(CropBatchesGpuTest, AreTheHosts) {
  const auto& [form, type] = GetParam();
  const std::vector<PackedBatch> host = OnHost({form}, type);
  const std::vector<PackedBatch> device = OnDevice({form}, type);
  ASSERT_EQ(host.size(), 2 * kSteps);
  ASSERT_EQ(device.size(), host.size());
  for (size_t i = 0; i < host.size(); ++i) {
    EXPECT_GT(host[i].crops.num_crops(), 0);
    EXPECT_EQ(host[i].dummy_image, i % 2 == 0);
    EXPECT_EQ(ComputeDigest(device[i]), ComputeDigest(host[i]))
        << "batch " << i;
    EXPECT_EQ(SampleDigests(device[i]), SampleDigests(host[i]));
  }
}

TEST(VideoBatchesGpuTest, AreTheHosts) {
  for (const PixelType type : {PixelType::kFloat32, PixelType::kBfloat16}) {
    for (const Contents& contents :
         {Contents{v1::Model::IMAGE_FORM_MERGE_ORDER, true},
          Contents{v1::Model::IMAGE_FORM_TILES, true},
          Contents{v1::Model::IMAGE_FORM_TILES, true, true}}) {
      const std::vector<PackedBatch> host = OnHost(contents, type);
      const std::vector<PackedBatch> device = OnDevice(contents, type);
      ASSERT_EQ(host.size(), 2 * kSteps);
      ASSERT_EQ(device.size(), host.size());
      for (size_t i = 0; i < host.size(); ++i) {
        EXPECT_EQ(host[i].videos.num_videos() > 0, !contents.frames_are_crops);
        EXPECT_GT(host[i].crops.num_crops(), 0);
        EXPECT_EQ(ComputeDigest(device[i]), ComputeDigest(host[i]))
            << "batch " << i;
        EXPECT_EQ(SampleDigests(device[i]), SampleDigests(host[i]));
      }
    }
  }
}

// Rows of 40 bytes have padding between clips, those of 512 have none.
TEST(ClipBatchesGpuTest, AreTheHosts) {
  for (const uint32_t width : {10, 128}) {
    Contents contents;
    contents.module = v1::MODULE_AUDIO;
    contents.clip_width = width;
    const std::vector<PackedBatch> host = OnHost(contents, PixelType::kFloat32);
    // Features stay float32.
    const std::vector<PackedBatch> device =
        OnDevice(contents, PixelType::kBfloat16);
    ASSERT_EQ(host.size(), 2 * kSteps);
    ASSERT_EQ(device.size(), host.size());
    for (size_t i = 0; i < host.size(); ++i) {
      EXPECT_GT(host[i].totals.clips, 0);
      EXPECT_EQ(host[i].dummy_image, i % 2 == 0);
      EXPECT_EQ(ComputeDigest(device[i]), ComputeDigest(host[i]))
          << "batch " << i;
      EXPECT_EQ(SampleDigests(device[i]), SampleDigests(host[i]));
    }
  }
}

TEST(ClipBatchesGpuTest, AreTheHostsAfterAnExchange) {
  Contents contents;
  contents.module = v1::MODULE_AUDIO;
  contents.audio_ranks = 3;
  for (const uint32_t width : {10, 64}) {
    contents.clip_width = width;
    auto of_host = InProcessGroup(contents.audio_ranks);
    auto of_device = MakeGroup(Exchange::kInProcess, contents.audio_ranks);
    std::vector<std::vector<PackedBatch>> host(contents.audio_ranks);
    std::vector<std::vector<PackedBatch>> device(contents.audio_ranks);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < contents.audio_ranks; ++rank) {
      threads.emplace_back([&, rank] {
        host[rank] = OnHost(contents, PixelType::kFloat32, rank,
                            std::move(of_host[rank]));
        device[rank] = OnDevice(contents, PixelType::kFloat32, rank,
                                std::move(of_device[rank]));
      });
    }
    for (std::thread& thread : threads) thread.join();
    uint64_t moved = 0;
    for (uint32_t rank = 0; rank < contents.audio_ranks; ++rank) {
      ASSERT_EQ(host[rank].size(), 2 * kSteps);
      ASSERT_EQ(device[rank].size(), host[rank].size());
      for (size_t i = 0; i < host[rank].size(); ++i) {
        moved += device[rank][i].bytes_moved;
        EXPECT_EQ(device[rank][i].bytes_moved, host[rank][i].bytes_moved);
        EXPECT_EQ(ComputeDigest(device[rank][i]), ComputeDigest(host[rank][i]))
            << "rank " << rank << " batch " << i;
      }
    }
    EXPECT_GT(moved, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, CropBatchesGpuTest,
    ::testing::Combine(::testing::Values(v1::Model::IMAGE_FORM_MERGE_ORDER,
                                         v1::Model::IMAGE_FORM_TILES,
                                         v1::Model::IMAGE_FORM_RASTER,
                                         v1::Model::IMAGE_FORM_PADDED),
                       ::testing::Values(PixelType::kFloat32,
                                         PixelType::kBfloat16)));

}  // namespace
}  // namespace ballast
