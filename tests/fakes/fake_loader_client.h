#ifndef BALLAST_TESTS_FAKES_FAKE_LOADER_CLIENT_H_
#define BALLAST_TESTS_FAKES_FAKE_LOADER_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "client/loader_client.h"
#include "proto/schedule.pb.h"
#include "proto/timing.pb.h"
#include "tests/fakes/synthetic_schedule.h"

namespace ballast {

// A server of a synthetic job whose blocks hold formula values, in this
// process. Thread-safe as long as the hooks are.
struct FakeLoader {
  std::string address = "fake:1";
  SyntheticJob job;
  std::string fingerprint = kSyntheticFingerprint;
  // Called before each Fetch, with what is to be fetched; an error is what the
  // fetch answers.
  std::function<absl::Status(const v1::Role&, uint64_t step,
                             uint32_t micro_batch)>
      before_fetch;
  // May change a schedule, or fail instead.
  std::function<absl::Status(v1::StepSchedule*)> on_schedule;
  // Called with each timing that is reported; an error is the answer.
  std::function<absl::Status(const v1::StepTiming&)> on_report;
};

std::unique_ptr<LoaderClient> FakeLoaderClient(FakeLoader loader);

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_FAKE_LOADER_CLIENT_H_
