#include "trainer_shim/c_api/host_feed.h"

#include <string>
#include <utility>

#include "common/status_macros.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/host/in_process_communicator.h"
#include "trainer_shim/host/trainer_shim.h"

namespace ballast {
namespace {

struct HostEnd : public GroupEnd {
  explicit HostEnd(std::unique_ptr<Communicator> end)
      : communicator(std::move(end)) {}
  ballast_backend backend() const override { return BALLAST_BACKEND_HOST; }

  std::unique_ptr<Communicator> communicator;
};

std::unique_ptr<Communicator> CommunicatorOf(std::unique_ptr<GroupEnd> end) {
  if (end == nullptr) return nullptr;
  return std::move(static_cast<HostEnd*>(end.get())->communicator);
}

class HostFeed : public RankFeed {
 public:
  explicit HostFeed(std::unique_ptr<TrainerShim> shim)
      : shim_(std::move(shim)), patch_values_(PatchValues(shim_->job())) {}

  bool has_streams() const override { return false; }
  absl::StatusOr<const BatchView*> Next(void*) override {
    return Show(shim_->Next());
  }
  absl::Status SendToTensorPeers(void*) override {
    return shim_->SendToTensorPeers();
  }
  absl::StatusOr<const BatchView*> ReceiveFromTensorPeer(void*) override {
    return Show(shim_->ReceiveFromTensorPeer());
  }
  void Cancel() override { shim_->Cancel(); }
  absl::Status ReportTiming(uint64_t step, uint32_t micro_batch,
                            double milliseconds) override {
    return shim_->ReportTiming(step, micro_batch, milliseconds);
  }
  absl::StatusOr<std::string> Digest(void*) override {
    return DigestOf(*batch_);
  }
  const v1::Job& job() const override { return shim_->job(); }
  const v1::Fingerprint& fingerprint() const override {
    return shim_->fingerprint();
  }
  const v1::StepSchedule* schedule() const override {
    return batch_ == nullptr ? nullptr : shim_->schedule();
  }

 private:
  absl::StatusOr<const BatchView*> Show(
      const absl::StatusOr<const PackedBatch*>& batch) {
    batch_ = batch.ok() ? *batch : nullptr;
    BALLAST_RETURN_IF_ERROR(batch.status());
    view_ =
        ViewOf(*batch_, patch_values_, shim_->schedule()->micro_batches_size());
    return &view_;
  }

  const std::unique_ptr<TrainerShim> shim_;
  const uint64_t patch_values_;
  const PackedBatch* batch_ = nullptr;
  BatchView view_;
};

}  // namespace

std::vector<std::unique_ptr<GroupEnd>> HostGroup(uint32_t size) {
  std::vector<std::unique_ptr<GroupEnd>> ends;
  for (std::unique_ptr<Communicator>& end : InProcessGroup(size)) {
    ends.push_back(std::make_unique<HostEnd>(std::move(end)));
  }
  return ends;
}

absl::StatusOr<std::unique_ptr<RankFeed>> MakeHostFeed(
    const FeedOptions& options, GroupEnds ends) {
  TrainerShim::Options shim;
  shim.servers = options.servers.servers;
  shim.security = options.servers.security;
  shim.streams = options.servers.streams;
  shim.failover = options.servers.failover;
  shim.role = options.role;
  shim.place = options.place;
  shim.start_step = options.start_step;
  shim.steps = options.steps;
  shim.checkpoint = options.checkpoint;
  shim.fingerprint = options.fingerprint;
  shim.pixel_type = options.pixel_type;
  shim.normalisation = options.normalisation;
  shim.max_bytes = options.max_bytes;
  shim.communicator = CommunicatorOf(std::move(ends.data));
  shim.tensor_communicator = CommunicatorOf(std::move(ends.tensor));
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<TrainerShim> made,
                           TrainerShim::Create(std::move(shim)));
  return std::make_unique<HostFeed>(std::move(made));
}

}  // namespace ballast
