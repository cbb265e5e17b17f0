#include "tests/fakes/fake_loader_client.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "client/buffer_pool.h"
#include "common/aligned_buffer.h"
#include "common/status_macros.h"
#include "proto/block/block_plan.h"
#include "proto/schedule/module.h"
#include "tests/fakes/formula_block.h"

namespace ballast {
namespace {

constexpr uint64_t kPage = 4096;

// Every split of a fake's job has the same samples.
v1::StepSchedule ScheduleOf(const SyntheticJob& job, uint64_t step,
                            v1::Split split) {
  v1::StepSchedule schedule = SyntheticSchedule(job, step);
  schedule.set_split(split);
  return schedule;
}

// The pages of one block.
class FakeRegion : public MemoryRegion {
 public:
  explicit FakeRegion(absl::Span<const uint8_t> block)
      : buffer_(*AlignedBuffer::Create(block.size() + 2 * kPage)) {
    uint8_t* const any = buffer_.bytes().data();
    const uint64_t before = -reinterpret_cast<uintptr_t>(any) % kPage;
    pages_ = {any + before, (block.size() + kPage - 1) / kPage * kPage};
    std::copy(block.begin(), block.end(), any + before);
  }
  absl::Span<const uint8_t> bytes() const override { return pages_; }
  bool read_only() const override { return false; }

 private:
  AlignedBuffer buffer_;
  absl::Span<const uint8_t> pages_;
};

class FakeBlock : public FetchedBlock {
 public:
  FakeBlock(const FakeLoader& loader, const BlockHeader& header,
            AlignedBuffer buffer)
      : loader_(loader), header_(header), buffer_(std::move(buffer)) {
    if (loader.on_block) {
      loader.on_block(header.step, header.micro_batch,
                      buffer_.bytes().subspan(sizeof(BlockHeader)));
    }
    if (loader.in_regions) {
      region_ = std::make_shared<FakeRegion>(buffer_.bytes());
    }
  }
  uint64_t step() const override { return header_.step; }
  uint32_t micro_batch() const override { return header_.micro_batch; }
  absl::Span<const uint8_t> bytes() const override {
    if (region_ == nullptr) return buffer_.bytes();
    return region_->bytes().first(buffer_.size());
  }
  bool intact() const override {
    return !loader_.stays_intact || !handed_out_.exchange(true) ||
           loader_.stays_intact(step(), micro_batch());
  }
  bool may_be_overwritten() const override {
    return loader_.stays_intact != nullptr;
  }
  std::shared_ptr<const MemoryRegion> region() const override {
    return region_;
  }

 private:
  const FakeLoader& loader_;
  const BlockHeader header_;
  AlignedBuffer buffer_;
  std::shared_ptr<const FakeRegion> region_;
  mutable std::atomic<bool> handed_out_ = false;
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
    const BlockGeometry geometry = GetGeometry(job);
    BALLAST_ASSIGN_OR_RETURN(const DeliveryRule delivery,
                             GetRule(job, request_.role.module()));
    BALLAST_ASSIGN_OR_RETURN(
        const BlockPlan plan,
        PlanBlock(ScheduleOf(loader_.job, step_, request_.role.split()),
                  micro_batch_, request_.role, delivery, geometry));
    if (++micro_batch_ == plan.header.micro_batches) {
      micro_batch_ = 0;
      ++step_;
    }
    return std::make_unique<FakeBlock>(loader_, plan.header,
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
      const v1::Role& role, const v1::Fingerprint& expected) override {
    if (!expected.hash().empty() && expected.hash() != loader_.fingerprint) {
      return absl::FailedPreconditionError("fingerprints differ");
    }
    if (loader_.on_attach) BALLAST_RETURN_IF_ERROR(loader_.on_attach());
    v1::AttachResponse response;
    response.mutable_fingerprint()->set_hash(loader_.fingerprint);
    *response.mutable_job() = SyntheticJobMessage(loader_.job);
    response.mutable_job()->set_split(role.split());
    response.set_server(loader_.address);
    for (const v1::Revision& revision : loader_.revisions) {
      *response.add_revisions() = revision;
    }
    return response;
  }

  absl::StatusOr<v1::StepSchedule> GetSchedule(uint64_t step, v1::Split split,
                                               Use use) override {
    v1::StepSchedule schedule = ScheduleOf(loader_.job, step, split);
    if (use == Use::kLooks && loader_.on_look) loader_.on_look(step);
    if (loader_.on_schedule) {
      BALLAST_RETURN_IF_ERROR(loader_.on_schedule(&schedule));
    }
    return schedule;
  }

  absl::StatusOr<std::unique_ptr<ScheduleWatcher>> WatchSchedule(
      uint64_t, uint64_t, v1::Split) override {
    return absl::UnimplementedError("the fake publishes no schedules");
  }

  absl::StatusOr<std::string> Rendezvous(const std::string& group,
                                         uint32_t rank, uint32_t size,
                                         const std::string& id,
                                         absl::Duration timeout,
                                         const std::string& run) override {
    if (!loader_.on_rendezvous) return id;
    return loader_.on_rendezvous(group, rank, size, id, timeout, run);
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

  absl::Status CheckHealth() override { return loader_.health; }

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
