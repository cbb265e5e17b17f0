#include "tests/fakes/fake_loader_client.h"

#include <atomic>
#include <utility>

#include "common/aligned_buffer.h"
#include "common/status_macros.h"
#include "proto/block/block_plan.h"
#include "proto/schedule/delivery_rule.h"
#include "tests/fakes/formula_block.h"

namespace ballast {
namespace {

class FakeBlock : public FetchedBlock {
 public:
  FakeBlock(const BlockHeader& header, AlignedBuffer buffer)
      : header_(header), buffer_(std::move(buffer)) {}
  uint64_t step() const override { return header_.step; }
  uint32_t micro_batch() const override { return header_.micro_batch; }
  absl::Span<const uint8_t> bytes() const override { return buffer_.bytes(); }

 private:
  const BlockHeader header_;
  const AlignedBuffer buffer_;
};

class FakeFetcher : public BatchFetcher {
 public:
  FakeFetcher(const FakeLoader& loader, const FetchRequest& request)
      : loader_(loader),
        request_(request),
        step_(request.step),
        micro_batch_(request.micro_batch) {}

  absl::StatusOr<std::unique_ptr<FetchedBlock>> Fetch() override {
    if (cancelled_) return absl::CancelledError("cancelled");
    if (request_.steps > 0 && step_ == request_.step + request_.steps) {
      return absl::OutOfRangeError("no more steps");
    }
    if (loader_.before_fetch) {
      BALLAST_RETURN_IF_ERROR(
          loader_.before_fetch(request_.role, step_, micro_batch_));
    }
    const v1::Job job = SyntheticJobMessage(loader_.job);
    const BlockGeometry geometry = {job.model().patch(),
                                    job.model().position_axes()};
    BALLAST_ASSIGN_OR_RETURN(const DeliveryRule delivery,
                             RuleOf(job, request_.role.module()));
    BALLAST_ASSIGN_OR_RETURN(
        const BlockPlan plan,
        PlanBlock(SyntheticSchedule(loader_.job, step_), micro_batch_,
                  request_.role, delivery, geometry));
    if (++micro_batch_ == plan.header.micro_batches) {
      micro_batch_ = 0;
      ++step_;
    }
    return std::make_unique<FakeBlock>(plan.header,
                                       FormulaBlock(plan, geometry));
  }

  void Cancel() override { cancelled_ = true; }

 private:
  const FakeLoader& loader_;
  const FetchRequest request_;
  uint64_t step_;
  uint32_t micro_batch_;
  std::atomic<bool> cancelled_ = false;
};

class FakeClient : public LoaderClient {
 public:
  explicit FakeClient(FakeLoader loader) : loader_(std::move(loader)) {}

  absl::StatusOr<v1::AttachResponse> Attach(
      const v1::Role&, const v1::Fingerprint& expected) override {
    if (!expected.hash().empty() && expected.hash() != loader_.fingerprint) {
      return absl::FailedPreconditionError("fingerprints differ");
    }
    v1::AttachResponse response;
    response.mutable_fingerprint()->set_hash(loader_.fingerprint);
    *response.mutable_job() = SyntheticJobMessage(loader_.job);
    response.set_server(loader_.address);
    return response;
  }

  absl::StatusOr<v1::StepSchedule> GetSchedule(uint64_t step) override {
    v1::StepSchedule schedule = SyntheticSchedule(loader_.job, step);
    if (loader_.on_schedule) {
      BALLAST_RETURN_IF_ERROR(loader_.on_schedule(&schedule));
    }
    return schedule;
  }

  absl::StatusOr<std::unique_ptr<ScheduleWatcher>> WatchSchedule(
      uint64_t, uint64_t) override {
    return absl::UnimplementedError("the fake publishes no schedules");
  }

  absl::StatusOr<std::string> Rendezvous(const std::string&, uint32_t, uint32_t,
                                         const std::string& id, absl::Duration,
                                         const std::string&) override {
    return id;
  }

  absl::Status Report(absl::Span<const v1::StepTiming> timings,
                      const std::string& fingerprint) override {
    if (fingerprint != loader_.fingerprint) {
      return absl::FailedPreconditionError("fingerprints differ");
    }
    for (const v1::StepTiming& timing : timings) {
      if (loader_.on_report) BALLAST_RETURN_IF_ERROR(loader_.on_report(timing));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<v1::StepTiming>> GetTimings(uint64_t,
                                                         v1::Module) override {
    return absl::UnimplementedError("the fake keeps no timings");
  }

  absl::Status CheckHealth() override { return absl::OkStatus(); }

  absl::StatusOr<std::unique_ptr<BatchFetcher>> OpenPull(
      const FetchRequest& request) override {
    return std::make_unique<FakeFetcher>(loader_, request);
  }

  const std::string& address() const override { return loader_.address; }

 private:
  const FakeLoader loader_;
};

}  // namespace

std::unique_ptr<LoaderClient> FakeLoaderClient(FakeLoader loader) {
  return std::make_unique<FakeClient>(std::move(loader));
}

}  // namespace ballast
