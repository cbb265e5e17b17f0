// The kernels against their twins on the CPU.
#include "trainer_shim/cuda/plane_kernels.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "proto/image/engine_jpeg.h"
#include "tests/gpu/device_testing.h"
#include "trainer_shim/host/host_image_decoder.h"

namespace ballast {
namespace {

constexpr int kFill = 0xA5;

struct Size {
  uint32_t width, height, out_width, out_height;
  ChromaSampling sampling = ChromaSampling::k420;
};

void ExpectTheTwinsPixels(const std::vector<Size>& sizes,
                          const PlaneKernels& kernels, uint64_t shift = 0,
                          const Resampling& resampling = {}) {
  std::vector<ResampleRequest> requests;
  uint64_t planes_bytes = 0;
  uint64_t out_bytes = shift;
  for (const Size& size : sizes) {
    const PlaneForm form = {size.width, size.height, size.sampling};
    requests.push_back(
        {form, size.out_width, size.out_height, planes_bytes, out_bytes});
    planes_bytes += LayOutPlanes(form).bytes;
    out_bytes += uint64_t{3} * size.out_width * size.out_height;
  }
  ResamplePlanner planner(resampling);
  OrDie(planner.Plan(requests));
  const ResamplePlan& plan = planner.plan();
  std::mt19937 random(static_cast<uint32_t>(planes_bytes));
  std::vector<uint8_t> planes(planes_bytes);
  for (uint8_t& sample : planes) sample = static_cast<uint8_t>(random());

  std::vector<uint8_t> want(out_bytes, kFill);
  std::vector<uint8_t> narrow(plan.narrow_bytes);
  std::vector<uint8_t> row(3 * plan.most_width);
  NarrowRows(plan, planes.data(), absl::MakeSpan(row), narrow.data());
  ShortenColumns(plan, narrow.data(), want.data());

  const DeviceBuffer images = ToDevice(plan.images);
  const DeviceBuffer taps = ToDevice(plan.taps);
  const DeviceBuffer weights = ToDevice(plan.weights);
  const DeviceBuffer device_planes = ToDevice(planes);
  const DeviceBuffer device_narrow = Filled<uint8_t>(plan.narrow_bytes, kFill);
  const DeviceBuffer out = Filled<uint8_t>(out_bytes, kFill);
  PlaneBatch batch;
  batch.plan = &plan;
  batch.images = reinterpret_cast<const ResampleImage*>(images.data());
  batch.taps = reinterpret_cast<const AxisTaps*>(taps.data());
  batch.weights = reinterpret_cast<const int32_t*>(weights.data());
  batch.planes = device_planes.data();
  batch.narrow = device_narrow.data();
  batch.out = out.data();
  const absl::Status status = kernels.Launch(batch, nullptr);
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<uint8_t> got = ToHost<uint8_t>(out, 0, out_bytes);
  const auto at = std::mismatch(got.begin(), got.end(), want.begin());
  EXPECT_TRUE(at.first == got.end())
      << "byte " << at.first - got.begin() << " of " << got.size();
}

TEST(PlaneKernelsGpuTest, EverySmallSize) {
  const PlaneKernels kernels = OrDie(PlaneKernels::Create());
  std::vector<Size> sizes;
  for (const ChromaSampling sampling :
       {ChromaSampling::kGrey, ChromaSampling::k444, ChromaSampling::k422,
        ChromaSampling::k420}) {
    for (uint32_t width = 1; width <= 12; ++width) {
      for (uint32_t height = 1; height <= 12; ++height) {
        sizes.push_back({width, height, 1 + (width * 7 + height) % 17,
                         1 + (width + height * 5) % 19, sampling});
        sizes.push_back({width, height, width, height, sampling});
      }
    }
  }
  for (const uint64_t shift : {0, 1, 2, 256}) {
    ExpectTheTwinsPixels(sizes, kernels, shift);
  }
}

TEST(PlaneKernelsGpuTest, ManySizes) {
  const PlaneKernels kernels = OrDie(PlaneKernels::Create());
  std::mt19937 random(7);
  for (int round = 0; round < 4; ++round) {
    std::vector<Size> sizes;
    for (int i = 0; i < 24; ++i) {
      const auto side = [&](uint32_t most) { return 1 + random() % most; };
      sizes.push_back({static_cast<uint32_t>(side(700)),
                       static_cast<uint32_t>(side(700)),
                       static_cast<uint32_t>(28 * side(12)),
                       static_cast<uint32_t>(28 * side(12)),
                       static_cast<ChromaSampling>(random() % 4)});
    }
    ExpectTheTwinsPixels(sizes, kernels);
  }
}

TEST(PlaneKernelsGpuTest, EveryFilterOfEachLibrary) {
  const PlaneKernels kernels = OrDie(PlaneKernels::Create());
  std::mt19937 random(11);
  for (const ResampleFilter filter :
       {ResampleFilter::kBox, ResampleFilter::kBilinear,
        ResampleFilter::kBicubic, ResampleFilter::kLanczos}) {
    for (const ResampleLibrary library :
         {ResampleLibrary::kPillow12, ResampleLibrary::kTorchvision}) {
      std::vector<Size> sizes = {{1, 1, 5, 7},
                                 {kMaxEngineSide, 90, 28, 28},
                                 {3000, 2000, 896, 896},
                                 {28, 28, 1400, 1400, ChromaSampling::k422}};
      for (int i = 0; i < 24; ++i) {
        const auto side = [&] {
          return static_cast<uint32_t>(1 + random() % 500);
        };
        sizes.push_back({side(), side(), side(), side(),
                         static_cast<ChromaSampling>(random() % 4)});
      }
      ExpectTheTwinsPixels(sizes, kernels, 0, {filter, library});
    }
  }
}

TEST(PlaneKernelsGpuTest, LongAndTallPictures) {
  const PlaneKernels kernels = OrDie(PlaneKernels::Create());
  ExpectTheTwinsPixels({{kMaxEngineSide, 90, 28, 28},
                        {170, kMaxEngineSide, 28, 2800},
                        {kMaxEngineSide, 3, 5600, 28},
                        {28, 28, 1400, 1400, ChromaSampling::k422},
                        {3000, 2000, 1148, 868},
                        {3000, 2000, 1148, 868, ChromaSampling::k444}},
                       kernels);
}

TEST(PlaneKernelsGpuTest, RefusesArgumentsThatWouldCrashAKernel) {
  const PlaneKernels kernels = OrDie(PlaneKernels::Create());
  ResamplePlanner planner;
  ASSERT_TRUE(planner.Plan({}).ok());
  PlaneBatch batch;
  batch.plan = &planner.plan();
  EXPECT_TRUE(kernels.Launch(batch, nullptr).ok());
  ResampleRequest request;
  request.form = {kMaxEngineSide + 1, 1, ChromaSampling::kGrey};
  request.out_width = request.out_height = 28;
  ASSERT_TRUE(planner.Plan({&request, 1}).ok());
  EXPECT_EQ(kernels.Launch(batch, nullptr).code(),
            absl::StatusCode::kInvalidArgument);
  const DeviceBuffer memory = Filled<uint8_t>(1 << 20, 0);
  batch.images = reinterpret_cast<const ResampleImage*>(memory.data());
  batch.taps = reinterpret_cast<const AxisTaps*>(memory.data());
  batch.weights = reinterpret_cast<const int32_t*>(memory.data());
  batch.planes = batch.narrow = batch.out = memory.data();
  EXPECT_EQ(kernels.Launch(batch, nullptr).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ballast
