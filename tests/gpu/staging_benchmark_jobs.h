#ifndef BALLAST_TESTS_GPU_STAGING_BENCHMARK_JOBS_H_
#define BALLAST_TESTS_GPU_STAGING_BENCHMARK_JOBS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/schedule.pb.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/cuda/batch_stager.h"

namespace ballast {

// Sizes of the images of a benchmark's samples.
enum class Sizes { kReceipts, kLognormal };

// A job of `dp` vision ranks with 8 samples per rank and micro-batch, `images`
// images per sample, and its schedules of steps [0, steps), one micro-batch
// each.
struct BenchmarkJob {
  JobShape shape;
  std::vector<v1::StepSchedule> schedules;
};
BenchmarkJob MakeBenchmarkJob(Sizes sizes, uint32_t images, uint32_t dp,
                              uint32_t steps);

// Stages a batch as BatchStager does for rank `rank`, without a server: the
// block holds random pixels. `planning` receives the microseconds of everything
// except filling the block.
std::unique_ptr<StagedBatch> MakeBenchmarkBatch(const BenchmarkJob& job,
                                                uint32_t step, uint32_t rank,
                                                int device, double* planning);

}  // namespace ballast

#endif  // BALLAST_TESTS_GPU_STAGING_BENCHMARK_JOBS_H_
