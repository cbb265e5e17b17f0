// Batches of families whose images have several crops, and of videos: in GPU
// memory they are the host's, to the byte, in each form.

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/fake_loader_client.h"
#include "tests/gpu/device_testing.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/cuda_trainer_shim.h"
#include "trainer_shim/cuda/device_batch.h"
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
};

std::vector<std::unique_ptr<LoaderClient>> Clients(const Contents& contents) {
  FakeLoader loader;
  loader.job.delivery = v1::DELIVERY_DIRECT;
  loader.job.form = contents.form;
  loader.job.videos = contents.videos;
  loader.job.frames_are_crops = contents.frames_are_crops;
  loader.job.samples_per_group = 9;
  loader.on_schedule = [](v1::StepSchedule* schedule) {
    // Every other micro-batch has a dummy image.
    for (int m = 0; m < schedule->micro_batches_size(); m += 2) {
      v1::MicroBatchSchedule* columns = schedule->mutable_micro_batches(m);
      columns->mutable_modules(0)->add_dummy_rank(0);
    }
    return absl::OkStatus();
  };
  std::vector<std::unique_ptr<LoaderClient>> clients;
  clients.push_back(FakeLoaderClient(std::move(loader)));
  return clients;
}

std::vector<PackedBatch> OnHost(const Contents& contents, PixelType type) {
  TrainerShim::Options options;
  options.source.role.set_module(v1::MODULE_VISION);
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

std::vector<PackedBatch> OnDevice(const Contents& contents, PixelType type) {
  CudaTrainerShim::Options options;
  options.source.role.set_module(v1::MODULE_VISION);
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
