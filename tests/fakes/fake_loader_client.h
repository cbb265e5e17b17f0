#ifndef BALLAST_TESTS_FAKES_FAKE_LOADER_CLIENT_H_
#define BALLAST_TESTS_FAKES_FAKE_LOADER_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/loader_client.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "tests/fakes/synthetic_schedule.h"

namespace ballast {

// An in-process server of a synthetic job whose blocks hold formula values.
// Thread-safe if the hooks are.
struct FakeLoader {
  std::string address = "fake:1";
  SyntheticJob job;
  std::string fingerprint = kSyntheticFingerprint;
  // The changes of the running job that Attach tells.
  std::vector<v1::Revision> revisions;
  // An error becomes Attach's result.
  std::function<absl::Status()> on_attach;
  // Called before each Fetch with its arguments; an error becomes its result.
  std::function<absl::Status(const v1::Role&, uint64_t step,
                             uint32_t micro_batch)>
      before_fetch;
  // Called with the bytes behind the header of each block; may change them.
  std::function<void(uint64_t step, uint32_t micro_batch,
                     absl::Span<uint8_t> bytes)>
      on_block;
  // Answers each block's intact() but the first, which is true: BatchStream
  // asks it before it hands the block out. Null: all are true.
  std::function<bool(uint64_t step, uint32_t micro_batch)> stays_intact;
  // Whether each block lies in a MemoryRegion, as blocks in shared memory do,
  // so that devices read it where it lies.
  bool in_regions = false;
  // May change a schedule or return an error instead.
  std::function<absl::Status(v1::StepSchedule*)> on_schedule;
  // Called with each step that a caller looks at and does not train on.
  std::function<void(uint64_t step)> on_look;
  // Called with each reported timing; an error becomes Report's result.
  std::function<absl::Status(const v1::StepTiming&)> on_report;
  absl::Status health;  // CheckHealth's result
  // Answers Rendezvous: group, rank, size, id, timeout, run
  // (tests/fakes/meeting_place.h). Null: the caller's own id.
  std::function<absl::StatusOr<std::string>(const std::string&, uint32_t,
                                            uint32_t, const std::string&,
                                            absl::Duration, const std::string&)>
      on_rendezvous;
};

std::unique_ptr<LoaderClient> FakeLoaderClient(FakeLoader loader);

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_FAKE_LOADER_CLIENT_H_
