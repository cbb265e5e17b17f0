#ifndef BALLAST_TESTS_FAKES_FAKE_LOADER_SERVICE_H_
#define BALLAST_TESTS_FAKES_FAKE_LOADER_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/loader_service.pb.h"
#include "proto/metrics_service.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The server's side of one Pull, played by a test. For one thread.
class FakePull {
 public:
  virtual ~FakePull() = default;
  virtual const v1::PullRequest::Open& open() const = 0;

  // Returns false if the client has disconnected.
  virtual bool Send(const v1::PullResponse& message) = 0;
  bool SendBegin(uint64_t step, uint32_t micro_batch, uint64_t bytes,
                 uint64_t checksum);
  bool SendChunk(absl::Span<const uint8_t> data);
  // Sends Begin and chunks with the right checksum.
  bool SendBlock(uint64_t step, uint32_t micro_batch,
                 absl::Span<const uint8_t> bytes,
                 size_t chunk_bytes = size_t{1} << 20);

  // Waits for the client's next message; nullopt if it has disconnected. Must
  // not be mixed with AwaitCredit, which also reads messages.
  virtual std::optional<v1::PullRequest> Receive() = 0;

  // Waits until the client has granted at least `bytes` since the start,
  // besides the Open's credit. Returns the bytes granted: fewer if it has
  // disconnected.
  virtual uint64_t AwaitCredit(uint64_t bytes) = 0;
  // Waits until the client disconnects.
  virtual void AwaitGone() = 0;
};

// A scripted gRPC server in this process, on a port chosen by the system:
// LoaderService, ScheduleService and health. Thread-safe. Destroying it aborts
// all calls.
class FakeLoaderServer {
 public:
  static std::unique_ptr<FakeLoaderServer> Start();
  virtual ~FakeLoaderServer() = default;
  virtual const std::string& address() const = 0;

  // Each Pull plays the next script and ends with the status it returns;
  // without one, it fails with INTERNAL.
  using PullScript = std::function<absl::Status(FakePull* pull)>;
  virtual void AddPull(PullScript script) = 0;

  // The answers of the other calls; UNIMPLEMENTED until set.
  virtual void SetAttach(absl::StatusOr<v1::AttachResponse> answer) = 0;
  using ScheduleScript =
      std::function<absl::StatusOr<v1::StepSchedule>(uint64_t step)>;
  // Used by GetSchedule and WatchSchedule.
  virtual void SetSchedule(ScheduleScript script) = 0;
  // With an empty id, Rendezvous blocks until its deadline.
  virtual void SetRendezvous(const std::string& id) = 0;
  // Answers Rendezvous that ask who waits.
  virtual void SetWaiting(v1::RendezvousResponse waiting) = 0;
  // Makes the next Rendezvous calls end with these errors, one after the other.
  virtual void FailRendezvous(std::vector<absl::Status> errors) = 0;
  virtual void SetStatus(v1::GetStatusResponse status) = 0;
  virtual void SetStats(v1::GetStatsResponse stats) = 0;
  // The answer of GetBalance for all steps.
  virtual void SetBalance(v1::GetBalanceResponse balance) = 0;
  virtual void SetServing(bool serving) = 0;
  // The answers of GetTimings and Report.
  virtual void SetTimings(v1::GetTimingsResponse timings) = 0;
  virtual void SetReport(absl::Status answer) = 0;

  // The requests received so far.
  virtual std::vector<v1::AttachRequest> attach_requests() const = 0;
  virtual std::vector<v1::RendezvousRequest> rendezvous_requests() const = 0;
  virtual std::vector<v1::ReportRequest> report_requests() const = 0;
  virtual std::vector<v1::GetTimingsRequest> timings_requests() const = 0;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_FAKE_LOADER_SERVICE_H_
