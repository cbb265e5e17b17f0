#ifndef BALLAST_TESTS_TRAINER_SHIM_HOST_DP_SIZES_TEST_BASE_H_
#define BALLAST_TESTS_TRAINER_SHIM_HOST_DP_SIZES_TEST_BASE_H_

#include <cstdint>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/fakes/synthetic_schedule.h"

namespace ballast {

// Parameters: dp of vision, dp of language.
class DpSizesTest
    : public ::testing::TestWithParam<std::tuple<uint32_t, uint32_t>> {
 protected:
  static SyntheticJob Job(v1::Delivery delivery) {
    SyntheticJob job;
    std::tie(job.vision_dp, job.language_dp) = GetParam();
    job.delivery = delivery;
    return job;
  }
};

}  // namespace ballast

#endif  // BALLAST_TESTS_TRAINER_SHIM_HOST_DP_SIZES_TEST_BASE_H_
