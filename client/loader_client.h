#ifndef BALLAST_CLIENT_LOADER_CLIENT_H_
#define BALLAST_CLIENT_LOADER_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/batch_fetcher.h"
#include "common/channel_security.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/job.pb.h"
#include "proto/loader_service.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The schedules of consecutive steps, as a server publishes them. The server
// computes ahead while the client reads, as far as the connection's window
// holds. Destroying a watcher cancels it.
class ScheduleWatcher {
 public:
  virtual ~ScheduleWatcher() = default;

  // Returns the next step's schedule; blocks until it has arrived; nothing
  // after the last requested step. Must be called from one thread. Errors are
  // final: CANCELLED (by Cancel), UNAVAILABLE (the server went away or drains;
  // another may continue), INTERNAL (a schedule that is malformed or of another
  // step), and the errors of the server's WatchSchedule. Messages name the
  // server's address.
  virtual absl::StatusOr<std::optional<v1::StepSchedule>> Next() = 0;

  // Ends a blocked Next, and every later one. From any thread.
  virtual void Cancel() = 0;
};

// OK if `schedule` is of `step` of `split` and well-formed, so that callers may
// index with its values; otherwise INTERNAL.
absl::Status CheckReceivedSchedule(const v1::StepSchedule& schedule,
                                   uint64_t step, v1::Split split);

// A rank's gRPC client of one server. Thread-safe. Every call has a deadline,
// 10 s unless stated otherwise; messages name the server's address.
class LoaderClient {
 public:
  // `address`: `unix:/path` or `host:port`. Does not connect yet. With any
  // other address every call returns INVALID_ARGUMENT.
  static std::unique_ptr<LoaderClient> Create(const std::string& address);
  // The same over connections secured by `security`. With a token for a server
  // on TCP without TLS every call returns INVALID_ARGUMENT. A call that fails
  // because of TLS returns UNAUTHENTICATED with the reason; one whose token is
  // refused returns UNAUTHENTICATED or PERMISSION_DENIED. `streams`: number of
  // connections, 1 to 8, that carry the chunks of blocks outside shared memory;
  // other numbers are clamped to this range. One connection moves as much as
  // one of gRPC's threads can, some 2 to 4 GB/s, or less over a long distance;
  // docs/flow_control.md says how to choose.
  static std::unique_ptr<LoaderClient> CreateSecure(
      const std::string& address, const ChannelSecurity& security,
      uint32_t streams = 1);
  virtual ~LoaderClient() = default;

  // See proto/loader_service.proto. `expected` may be empty. If the
  // fingerprints differ, the error is FAILED_PRECONDITION, naming both and the
  // first differing key. Attach and GetSchedule check the answer, so that
  // callers may index and divide by its values: INTERNAL, naming the fault.
  virtual absl::StatusOr<v1::AttachResponse> Attach(
      const v1::Role& role, const v1::Fingerprint& expected) = 0;

  // See proto/schedule_service.proto. kLooks: the caller trains on nothing of
  // it, so the step does not count as reached.
  enum class Use { kTrains, kLooks };
  virtual absl::StatusOr<v1::StepSchedule> GetSchedule(uint64_t step,
                                                       v1::Split split,
                                                       Use use) = 0;
  absl::StatusOr<v1::StepSchedule> GetSchedule(
      uint64_t step, v1::Split split = v1::SPLIT_TRAIN) {
    return GetSchedule(step, split, Use::kTrains);
  }

  // Watches the schedules of `steps` steps (0: without end) from `from_step`
  // on. The client must outlive the watcher. If the server is away, the first
  // Next fails.
  virtual absl::StatusOr<std::unique_ptr<ScheduleWatcher>> WatchSchedule(
      uint64_t from_step, uint64_t steps, v1::Split split) = 0;
  absl::StatusOr<std::unique_ptr<ScheduleWatcher>> WatchSchedule(
      uint64_t from_step, uint64_t steps) {
    return WatchSchedule(from_step, steps, v1::SPLIT_TRAIN);
  }

  // Blocks until all `size` ranks of `group` wait at the same time, and returns
  // rank 0's id. `id` is read from rank 0 only. `run` names this start of the
  // job (proto/loader_service.proto); empty: no name. Retries for up to
  // `timeout` while the server, or the server that holds the rendezvous, is
  // away or busy. Logs after 10 s, and from then on every 10 s (less often in
  // groups of more than 1024 ranks), which ranks have not come. Errors: as the
  // RPC; DEADLINE_EXCEEDED after `timeout`, with these ranks and the server's
  // last error, if any.
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

  // Reports to the server how long ranks took for micro-batches, 1 to 4096
  // timings. Waits at most a second. Errors: see proto/loader_service.proto.
  virtual absl::Status Report(absl::Span<const v1::StepTiming> timings,
                              const std::string& fingerprint) = 0;

  // Returns the timings that the server keeps for steps from `from_step` on and
  // for `module` (unspecified: every module).
  virtual absl::StatusOr<std::vector<v1::StepTiming>> GetTimings(
      uint64_t from_step, v1::Module module) = 0;

  // gRPC health checking: OK if the server serves; UNAVAILABLE if it answers
  // that it does not, or is away.
  virtual absl::Status CheckHealth() = 0;

  // Opens a Pull. The client must outlive the fetcher. If the server is away,
  // the first Fetch fails.
  virtual absl::StatusOr<std::unique_ptr<BatchFetcher>> OpenPull(
      const FetchRequest& request) = 0;

  virtual const std::string& address() const = 0;

  // A client of the server at `address`, secured as this one; certificates must
  // have this one's name. Null: not supported.
  virtual std::unique_ptr<LoaderClient> CreateAt(
      const std::string& /*address*/) const {
    return nullptr;
  }
};

// Whether `status`, from CheckHealth, means that the server answers but does
// not serve.
bool AnswersWithoutServing(const absl::Status& status);

// "server ADDRESS" for each, for messages.
std::vector<std::string> ServerNames(absl::Span<LoaderClient* const> servers);

// Reports a rank's timings to the first of its servers that takes them, and
// keeps to that server. A server that has not answered kTolerated times in a
// row is skipped for 10 s, doubled with each further failure up to 5 minutes: a
// trainer's step waits for reports, and hung servers must not cost it a second
// each time. Thread-safe.
class TimingReporter {
 public:
  static constexpr int kTolerated = 3;

  // `servers`: at least one, in order of preference. Nothing is owned.
  TimingReporter(std::vector<LoaderClient*> servers, Clock* clock)
      : servers_(std::move(servers)),
        clock_(clock),
        failures_(servers_.size()) {}

  // Blocks for at most a second per server. Errors: as LoaderClient::Report;
  // UNAVAILABLE or DEADLINE_EXCEEDED if no server took the timing, which is
  // lost; UNAVAILABLE at once while all servers are skipped.
  absl::Status Report(const v1::StepTiming& timing,
                      const std::string& fingerprint);

 private:
  struct Failures {
    int in_a_row = 0;
    absl::Time not_before = absl::InfinitePast();
  };

  // The `i`th server to ask, unless it is skipped now.
  std::optional<size_t> Choose(size_t i) const;
  // Notes that `server` answered `status`.
  void Note(size_t server, const absl::Status& status);

  const std::vector<LoaderClient*> servers_;
  Clock* const clock_;
  mutable Mutex mutex_;
  std::vector<Failures> failures_ ABSL_GUARDED_BY(mutex_);  // by server
  size_t first_ ABSL_GUARDED_BY(mutex_) = 0;  // the server to ask first
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_LOADER_CLIENT_H_
