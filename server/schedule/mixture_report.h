#ifndef BALLAST_SERVER_SCHEDULE_MIXTURE_REPORT_H_
#define BALLAST_SERVER_SCHEDULE_MIXTURE_REPORT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/order_service.pb.h"
#include "server/schedule/sample_order.h"

namespace ballast {

// Counts what the steps before `step` of a split draw from each source. Pure.
// Errors: OUT_OF_RANGE (the step's positions do not fit 64 bits).
absl::StatusOr<v1::GetMixtureResponse> ReportMixture(const SampleOrder& order,
                                                     const v1::Job& job,
                                                     uint64_t step);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_MIXTURE_REPORT_H_
