#include "trainer_shim/resample_plan.h"

#include <vector>

#include <gtest/gtest.h>

#include "proto/image/resample_weights.h"

namespace ballast {
namespace {

ResampleRequest Request(uint32_t width, uint32_t height, uint32_t out_width,
                        uint32_t out_height) {
  ResampleRequest request;
  request.form = {width, height, ChromaSampling::k420};
  request.out_width = out_width;
  request.out_height = out_height;
  return request;
}

// The weights of an axis as the plan has them, per output sample.
void ExpectWeights(const ResamplePlan& plan, uint32_t axis, uint32_t source,
                   uint32_t output, const Resampling& resampling = {}) {
  const ResampleWeights want = AllWeights(source, output, resampling);
  for (uint32_t i = 0; i < output; ++i) {
    const AxisTaps& got = plan.taps[axis + i];
    ASSERT_EQ(got.first, want.taps[i].first);
    ASSERT_EQ(got.count, want.taps[i].count);
    for (uint32_t t = 0; t < got.count; ++t) {
      ASSERT_EQ(plan.weights[got.weights + t * output],
                want.weights[want.taps[i].weights + t]);
    }
  }
}

TEST(ResamplePlanTest, LaysImagesOneAfterTheOther) {
  ResamplePlanner planner;
  std::vector<ResampleRequest> requests = {Request(101, 50, 30, 20),
                                           Request(60, 80, 31, 40)};
  requests[1].planes = 4096;
  requests[1].out = 2048;
  ASSERT_TRUE(planner.Plan(requests).ok());
  const ResamplePlan& plan = planner.plan();
  ASSERT_EQ(plan.images.size(), 2u);
  const ResampleImage& second = plan.images[1];
  const PlaneLayout layout = LayOutPlanes(requests[1].form);
  for (int plane = 0; plane < 3; ++plane) {
    EXPECT_EQ(second.planes[plane], 4096 + layout.offset[plane]);
    EXPECT_EQ(second.pitch[plane], layout.pitch[plane]);
  }
  EXPECT_EQ(second.out, 2048u);
  EXPECT_EQ(second.first_row, 50u);
  EXPECT_EQ(second.first_out_row, 20u);
  EXPECT_EQ(second.narrow_pitch, 96u);  // 31 * 3, to a multiple of 4
  EXPECT_EQ(second.narrow, 50u * 92);   // 30 * 3 likewise
  EXPECT_EQ(second.chroma_width, 30u);
  EXPECT_EQ(plan.rows, 130u);
  EXPECT_EQ(plan.out_rows, 60u);
  EXPECT_EQ(plan.most_width, 101u);
  EXPECT_EQ(plan.narrow_bytes, 50u * 92 + 80u * 96);
  EXPECT_EQ(DecodeMemory(requests[1]), layout.bytes + 80 * 96);
  ExpectWeights(plan, plan.images[0].columns, 101, 30);
  ExpectWeights(plan, plan.images[0].rows, 50, 20);
  ExpectWeights(plan, second.columns, 60, 31);
  ExpectWeights(plan, second.rows, 80, 40);
}

TEST(ResamplePlanTest, SharesTheAxesOfABatch) {
  ResamplePlanner planner;
  const std::vector<ResampleRequest> requests = {Request(90, 45, 30, 15),
                                                 Request(45, 90, 15, 30)};
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(planner.Plan(requests).ok());
    const ResamplePlan& plan = planner.plan();
    EXPECT_EQ(plan.taps.size(), 45u);
    EXPECT_EQ(plan.images[0].columns, plan.images[1].rows);
    EXPECT_EQ(plan.images[0].rows, plan.images[1].columns);
    ExpectWeights(plan, plan.images[1].columns, 45, 15);
  }
}

TEST(ResamplePlanTest, KeepsWeightsWithinItsBound) {
  ResamplePlanner planner;
  // Taps of 16 weights and 12 bytes for each output sample, at most.
  constexpr size_t kOfImage = (16 * 4 + 12) * (1148 + 868);
  const auto expect = [&](uint32_t number) {
    const ResampleRequest request =
        Request(4000 + number, 3000 + number, 1148, 868);
    ASSERT_TRUE(planner.Plan({&request, 1}).ok());
    EXPECT_LE(planner.kept(), ResamplePlanner::kMaxKept + kOfImage);
    const ResampleImage& image = planner.plan().images[0];
    ExpectWeights(planner.plan(), image.columns, 4000 + number, 1148);
    ExpectWeights(planner.plan(), image.rows, 3000 + number, 868);
  };
  for (uint32_t number = 0; number < 200; ++number) expect(number);
  EXPECT_GT(planner.kept(), ResamplePlanner::kMaxKept - kOfImage);
  // Forgotten long ago, and kept.
  expect(0);
  const size_t kept = planner.kept();
  expect(199);
  EXPECT_EQ(planner.kept(), kept);
}

TEST(ResamplePlanTest, APlanMayNeedMoreThanIsKept) {
  ResamplePlanner planner;
  std::vector<ResampleRequest> requests;
  for (uint32_t i = 0; i < 150; ++i) {
    requests.push_back(Request(4000 + i, 3000 + i, 1148, 868));
  }
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(planner.Plan(requests).ok());
    EXPECT_GT(planner.kept(), ResamplePlanner::kMaxKept);
    for (uint32_t i = 0; i < 150; i += 149) {
      const ResampleImage& image = planner.plan().images[i];
      ExpectWeights(planner.plan(), image.columns, 4000 + i, 1148);
      ExpectWeights(planner.plan(), image.rows, 3000 + i, 868);
    }
  }
  const ResampleRequest other = Request(2000, 1000, 100, 50);
  ASSERT_TRUE(planner.Plan({&other, 1}).ok());
  EXPECT_LE(planner.kept(), ResamplePlanner::kMaxKept + (2 << 16));
}

TEST(ResamplePlanTest, AnUnchangedAxisTakesEachSampleItself) {
  ResamplePlanner planner;
  const ResampleRequest request = Request(7, 9, 7, 4);
  ASSERT_TRUE(planner.Plan({&request, 1}).ok());
  const ResamplePlan& plan = planner.plan();
  for (uint32_t i = 0; i < 7; ++i) {
    const AxisTaps& taps = plan.taps[plan.images[0].columns + i];
    EXPECT_EQ(taps.first, i);
    EXPECT_EQ(taps.count, 1u);
    EXPECT_EQ(plan.weights[taps.weights], 1 << kWeightBits);
  }
}

TEST(ResamplePlanTest, HasTheWeightsOfItsFilterAndLibrary) {
  for (const ResampleFilter filter :
       {ResampleFilter::kBox, ResampleFilter::kBilinear,
        ResampleFilter::kBicubic, ResampleFilter::kLanczos}) {
    for (const ResampleLibrary library :
         {ResampleLibrary::kPillow12, ResampleLibrary::kTorchvision}) {
      const Resampling resampling = {filter, library};
      ResamplePlanner planner(resampling);
      const ResampleRequest request = Request(101, 50, 30, 70);
      ASSERT_TRUE(planner.Plan({&request, 1}).ok());
      const ResamplePlan& plan = planner.plan();
      ExpectWeights(plan, plan.images[0].columns, 101, 30, resampling);
      ExpectWeights(plan, plan.images[0].rows, 50, 70, resampling);
    }
  }
}

// Pillow 13 does so where the height shrinks by more than twice the pixels by
// which the width shrinks, Pillow 12 over a hundred times as high as wide.
TEST(ResamplePlanTest, RefusesImagesThatBeginWithTheHeight) {
  const auto code = [](ResampleLibrary library,
                       const ResampleRequest& request) {
    ResamplePlanner planner(Resampling{ResampleFilter::kBicubic, library});
    return planner.Plan({&request, 1}).code();
  };
  constexpr auto kRefused = absl::StatusCode::kInvalidArgument;
  const ResampleRequest twice = Request(50, 60, 30, 20);
  const ResampleRequest more = Request(50, 61, 30, 20);
  const ResampleRequest wider = Request(50, 61, 51, 60);
  const ResampleRequest tall = Request(3, 301, 2, 300);
  EXPECT_EQ(code(ResampleLibrary::kPillow13, twice), absl::StatusCode::kOk);
  EXPECT_EQ(code(ResampleLibrary::kPillow13, more), kRefused);
  EXPECT_EQ(code(ResampleLibrary::kPillow13, wider), kRefused);
  EXPECT_EQ(code(ResampleLibrary::kPillow13, tall), absl::StatusCode::kOk);
  EXPECT_EQ(code(ResampleLibrary::kPillow12, more), absl::StatusCode::kOk);
  EXPECT_EQ(code(ResampleLibrary::kPillow12, tall), kRefused);
  EXPECT_EQ(code(ResampleLibrary::kTorchvision, more), absl::StatusCode::kOk);
  EXPECT_EQ(code(ResampleLibrary::kTorchvision, tall), absl::StatusCode::kOk);
}

TEST(ResamplePlanTest, ForgetsWeightsBeyondItsBound) {
  ResamplePlanner planner;
  // Each axis has over 20,000 weights of 4 bytes: 120 pass the bound.
  for (uint32_t i = 0; i < 120; ++i) {
    const ResampleRequest request = Request(6000 + i, 100, 1000, 100);
    ASSERT_TRUE(planner.Plan({&request, 1}).ok());
    ExpectWeights(planner.plan(), planner.plan().images[0].columns, 6000 + i,
                  1000);
  }
}

TEST(ResamplePlanTest, RefusesSidesOfZero) {
  ResamplePlanner planner;
  for (const ResampleRequest& bad :
       {Request(0, 1, 1, 1), Request(1, 0, 1, 1), Request(1, 1, 0, 1),
        Request(1, 1, 1, 0)}) {
    EXPECT_EQ(planner.Plan({&bad, 1}).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(planner.Plan({}).ok());
}

}  // namespace
}  // namespace ballast
