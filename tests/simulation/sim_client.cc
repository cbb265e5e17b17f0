#include "tests/simulation/sim_client.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/arena_mapping.h"
#include "client/buffer_pool.h"
#include "client/grpc_batch_fetcher.h"
#include "common/status_macros.h"
#include "tests/simulation/sim_call.h"
#include "tests/simulation/sim_pull.h"
#include "tests/simulation/sim_server.h"

namespace ballast {
namespace {

// A fetched block that counts among its rank's.
class CountedBlock final : public FetchedBlock {
 public:
  CountedBlock(std::unique_ptr<FetchedBlock> block,
               std::shared_ptr<SimHeld> held, bool skip_generation_check)
      : block_(std::move(block)),
        held_(std::move(held)),
        skip_generation_check_(skip_generation_check) {
    const uint64_t bytes = block_->bytes().size();
    held_->bytes += bytes;
    held_->most = std::max(held_->most, held_->bytes);
    held_->largest_block = std::max(held_->largest_block, bytes);
  }
  ~CountedBlock() override { held_->bytes -= block_->bytes().size(); }

  uint64_t step() const override { return block_->step(); }
  uint32_t micro_batch() const override { return block_->micro_batch(); }
  absl::Span<const uint8_t> bytes() const override { return block_->bytes(); }
  bool intact() const override {
    return skip_generation_check_ || block_->intact();
  }
  bool may_be_overwritten() const override {
    return block_->may_be_overwritten();
  }
  std::shared_ptr<const MemoryRegion> region() const override {
    return block_->region();
  }

 private:
  const std::unique_ptr<FetchedBlock> block_;
  const std::shared_ptr<SimHeld> held_;
  const bool skip_generation_check_;
};

class CountingFetcher final : public BatchFetcher {
 public:
  CountingFetcher(std::unique_ptr<BatchFetcher> fetcher,
                  std::shared_ptr<SimHeld> held, bool skip_generation_check)
      : fetcher_(std::move(fetcher)),
        held_(std::move(held)),
        skip_generation_check_(skip_generation_check) {}
  absl::StatusOr<std::unique_ptr<FetchedBlock>> Fetch() override {
    BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<FetchedBlock> block,
                             fetcher_->Fetch());
    return std::make_unique<CountedBlock>(std::move(block), held_,
                                          skip_generation_check_);
  }
  void Cancel() override { fetcher_->Cancel(); }
  uint64_t bytes_received() const override {
    return fetcher_->bytes_received();
  }

 private:
  const std::unique_ptr<BatchFetcher> fetcher_;
  const std::shared_ptr<SimHeld> held_;
  const bool skip_generation_check_;
};

class SimClient final : public LoaderClient {
 public:
  SimClient(const SimClientOptions& options, SimNetwork* network,
            std::shared_ptr<SimHeld> held)
      : options_(options), network_(network), held_(std::move(held)) {}

  absl::StatusOr<v1::AttachResponse> Attach(
      const v1::Role& role, const v1::Fingerprint& expected) override {
    v1::AttachRequest request;
    *request.mutable_role() = role;
    *request.mutable_fingerprint() = expected;
    return Named(Call<v1::AttachResponse>()->Run(
        [request](SimServer* server, auto answer) {
          answer(server->Attach(request));
        }));
  }
  absl::StatusOr<v1::StepSchedule> GetSchedule(uint64_t step,
                                               v1::Split) override {
    return Named(
        Call<v1::StepSchedule>()->Run([step](SimServer* server, auto answer) {
          server->GetSchedule(step, [answer](auto schedule) {
            if (schedule.ok()) {
              answer(**schedule);
            } else {
              answer(schedule.status());
            }
          });
        }));
  }
  absl::StatusOr<std::unique_ptr<BatchFetcher>> OpenPull(
      const FetchRequest& request) override {
    FetchRequest asked = request;
    asked.accept_shared_memory = options_.accept_shared_memory;
    return std::make_unique<CountingFetcher>(
        MakeGrpcBatchFetcher(
            MakeSimPullChannel(network_, options_.node, options_.address,
                               options_.streams),
            asked, options_.address, arenas_, &pools_),
        held_, options_.skip_generation_check);
  }
  const std::string& address() const override { return options_.address; }

  absl::StatusOr<std::unique_ptr<ScheduleWatcher>> WatchSchedule(
      uint64_t, uint64_t, v1::Split) override {
    return Absent();
  }
  absl::StatusOr<std::string> Rendezvous(const std::string&, uint32_t, uint32_t,
                                         const std::string&, absl::Duration,
                                         const std::string&) override {
    return Absent();
  }
  absl::Status Report(absl::Span<const v1::StepTiming>,
                      const std::string&) override {
    return Absent();
  }
  absl::StatusOr<std::vector<v1::StepTiming>> GetTimings(uint64_t,
                                                         v1::Module) override {
    return Absent();
  }
  absl::Status CheckHealth() override { return Absent(); }

 private:
  static absl::Status Absent() {
    return absl::UnimplementedError("not simulated");
  }
  template <typename Response>
  std::shared_ptr<SimCall<Response>> Call() {
    return std::make_shared<SimCall<Response>>(network_, options_.node,
                                               options_.address);
  }
  template <typename Response>
  absl::StatusOr<Response> Named(absl::StatusOr<Response> answer) const {
    if (answer.ok()) return answer;
    return Annotate(answer.status(), absl::StrCat("server ", options_.address));
  }

  const SimClientOptions options_;
  SimNetwork* const network_;
  const std::shared_ptr<SimHeld> held_;
  const std::shared_ptr<ArenaCache> arenas_ = std::make_shared<ArenaCache>();
  BufferPools pools_;
};

}  // namespace

std::unique_ptr<LoaderClient> MakeSimClient(const SimClientOptions& options,
                                            SimNetwork* network,
                                            std::shared_ptr<SimHeld> held) {
  return std::make_unique<SimClient>(options, network, std::move(held));
}

}  // namespace ballast
