#ifndef BALLAST_TESTS_GPU_SAME_AS_ON_HOST_H_
#define BALLAST_TESTS_GPU_SAME_AS_ON_HOST_H_

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/config_loader.h"
#include "tests/fakes/edit_batch.h"
#include "tests/fakes/test_cluster.h"
#include "tests/gpu/cuda_world.h"
#include "tests/gpu/device_testing.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/patchify.h"

namespace ballast {

// Batches from GPUs in `pixel_type` are equal to the byte to those of the host
// in float32.
inline void ExpectSameBatches(const TestCluster::Batches& device,
                              const TestCluster::Batches& host,
                              PixelType pixel_type) {
  ASSERT_EQ(device.size(), host.size());
  for (const auto& [key, want] : host) {
    const PackedBatch& got = device.at(key);
    SCOPED_TRACE(absl::StrCat("step ", want.step, " micro-batch ",
                              want.micro_batch, " module ", want.role.module(),
                              " rank ", want.role.dp_rank()));
    ASSERT_EQ(got.samples.size(), want.samples.size());
    for (size_t i = 0; i < want.samples.size(); ++i) {
      EXPECT_EQ(got.samples[i].name, want.samples[i].name);
      EXPECT_EQ(got.samples[i].placeholder, want.samples[i].placeholder);
    }
    EXPECT_EQ(got.totals, want.totals);
    EXPECT_EQ(got.step_totals, want.step_totals);
    if (pixel_type == PixelType::kFloat32) {
      EXPECT_EQ(ComputeDigest(got), ComputeDigest(want));
      continue;
    }
    // A bfloat16 is the rounded float32.
    EXPECT_EQ(ComputeDigest(got), ComputeDigest(RoundedPixels(want)));
  }
}

// Runs the job of `config` on GPUs and on the host, over two servers: all
// batches are equal to the byte.
inline void ExpectSameAsOnHost(const LoadedConfig& config,
                               const CudaWorldOptions& options) {
  const auto cluster = OrDie(TestCluster::Start(config, 2));
  const TestCluster::Batches host =
      OrDie(cluster->RunRanks(options.step, options.steps));
  const auto device = RunCudaRanks(cluster->addresses(), options);
  ASSERT_TRUE(device.ok()) << device.status();
  ExpectSameBatches(*device, host, options.pixel_type);
  for (const auto& [key, want] : host) {
    EXPECT_EQ(device->at(key).bytes_moved, want.bytes_moved);
  }
}

}  // namespace ballast

#endif  // BALLAST_TESTS_GPU_SAME_AS_ON_HOST_H_
