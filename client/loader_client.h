#ifndef BALLAST_CLIENT_LOADER_CLIENT_H_
#define BALLAST_CLIENT_LOADER_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/batch_fetcher.h"
#include "client/schedule_watcher.h"
#include "common/channel_security.h"
#include "proto/job.pb.h"
#include "proto/loader_service.pb.h"
#include "proto/schedule.pb.h"
#include "proto/timing.pb.h"

namespace ballast {

// One server, over gRPC, for a rank. Thread-safe. Every call has a deadline, of
// 10 s unless it says otherwise; messages name the server's address.
class LoaderClient {
 public:
  // `address`: `unix:/path` or `host:port`. Does not connect yet; where it is
  // neither, every call answers INVALID_ARGUMENT.
  static std::unique_ptr<LoaderClient> Create(const std::string& address);
  // The same over connections that `security` secures. A token for a server on
  // TCP without TLS: every call answers INVALID_ARGUMENT. A call that fails
  // because of TLS answers UNAUTHENTICATED with the reason, one whose token is
  // refused UNAUTHENTICATED or PERMISSION_DENIED.
  // `streams`: the number of connections, 1 to 8, that carry the chunks of a
  // block that is not in shared memory; others count as the nearest of these.
  // One connection moves what one of gRPC's threads can, some 2 to 4 GB/s, or
  // less over a long distance; docs/flow_control.md says how to choose.
  static std::unique_ptr<LoaderClient> CreateSecure(
      const std::string& address, const ChannelSecurity& security,
      uint32_t streams = 1);
  virtual ~LoaderClient() = default;

  // See proto/loader_service.proto. `expected` may be empty. Where the
  // fingerprints differ the error is FAILED_PRECONDITION, naming both and the
  // first differing key. Attach and GetSchedule check the answer, so that
  // callers may index and divide by what it says: INTERNAL, naming the fault.
  virtual absl::StatusOr<v1::AttachResponse> Attach(
      const v1::Role& role, const v1::Fingerprint& expected) = 0;

  // See proto/schedule_service.proto.
  virtual absl::StatusOr<v1::StepSchedule> GetSchedule(uint64_t step) = 0;

  // The schedules of `steps` steps (0: without end) from `from_step` on. The
  // client must outlive the watcher. A server that is away is an error of the
  // first Next.
  virtual absl::StatusOr<std::unique_ptr<ScheduleWatcher>> WatchSchedule(
      uint64_t from_step, uint64_t steps) = 0;

  // Blocks until all `size` ranks of `group` wait at once and returns rank 0's
  // id. `id` is read from rank 0 only. `run` names this start of the job
  // (proto/loader_service.proto); empty: none is named. Asks again, for up to
  // `timeout`, while the server or the one where groups meet is not there, or
  // is busy. Errors beside those of the RPC: DEADLINE_EXCEEDED after `timeout`,
  // with what the server said last, if anything.
  virtual absl::StatusOr<std::string> Rendezvous(const std::string& group,
                                                 uint32_t rank, uint32_t size,
                                                 const std::string& id,
                                                 absl::Duration timeout,
                                                 const std::string& run) = 0;
  absl::StatusOr<std::string> Rendezvous(const std::string& group,
                                         uint32_t rank, uint32_t size,
                                         const std::string& id,
                                         absl::Duration timeout) {
    return Rendezvous(group, rank, size, id, timeout, /*run=*/"");
  }

  // Tells the server how long ranks took for micro-batches, 1 to 4096 timings.
  // Waits a second at most. Errors: see proto/loader_service.proto.
  virtual absl::Status Report(absl::Span<const v1::StepTiming> timings,
                              const std::string& fingerprint) = 0;

  // The timings that the server keeps of steps from `from_step` on and of
  // `module` (unspecified: of every module).
  virtual absl::StatusOr<std::vector<v1::StepTiming>> GetTimings(
      uint64_t from_step, v1::Module module) = 0;

  // gRPC health checking: OK when the server serves; UNAVAILABLE when it says
  // that it does not, or is away.
  virtual absl::Status CheckHealth() = 0;

  // Opens a Pull. The client must outlive the fetcher. A server that is away is
  // an error of the first Fetch.
  virtual absl::StatusOr<std::unique_ptr<BatchFetcher>> OpenPull(
      const FetchRequest& request) = 0;

  virtual const std::string& address() const = 0;
};

// Whether `status`, of CheckHealth, is that of a server that answers and does
// not serve.
bool AnswersWithoutServing(const absl::Status& status);

// "server ADDRESS" of each, for messages.
std::vector<std::string> ServerNames(absl::Span<LoaderClient* const> servers);

}  // namespace ballast

#endif  // BALLAST_CLIENT_LOADER_CLIENT_H_
