#include "server/delivery/loader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/net_address.h"
#include "common/status_macros.h"
#include "common/ticker.h"
#include "proto/block/data_end.h"
#include "proto/schedule/delivery_rule.h"
#include "proto/schedule/module.h"
#include "server/delivery/loader_core.h"
#include "server/delivery/vision_first.h"
#include "server/delivery/worker_pool.h"

namespace ballast {
namespace {

// The path of the first Unix socket that the server listens at, if any.
std::string SocketOf(const v1::Serve& serve) {
  for (const std::string& text : serve.listen()) {
    const absl::string_view path = UnixPath(text);
    if (absl::StartsWith(path, "/")) return std::string(path);
  }
  return "";
}

class CoreStream : public BlockStream {
 public:
  CoreStream(std::shared_ptr<LoaderCore> core, uint64_t id)
      : core_(std::move(core)), id_(id) {}
  ~CoreStream() override { core_->Close(id_); }

  std::optional<absl::StatusOr<std::unique_ptr<Block>>> TryNext() override {
    return core_->TryNext(id_);
  }
  absl::Status status() const override { return core_->StatusOf(id_); }
  void Close() override { core_->Close(id_); }

 private:
  const std::shared_ptr<LoaderCore> core_;
  const uint64_t id_;
};

class CoreLoader : public Loader {
 public:
  CoreLoader(std::shared_ptr<LoaderCore> core, v1::Job job,
             std::unique_ptr<Ticker> ticker)
      : core_(std::move(core)),
        job_(std::move(job)),
        ticker_(std::move(ticker)) {}
  ~CoreLoader() override {
    ticker_.reset();
    core_->Stop();
  }

  absl::StatusOr<std::unique_ptr<BlockStream>> OpenStream(
      const v1::Role& role, uint64_t step, uint32_t micro_batch, uint64_t steps,
      std::function<void()> ready) override {
    BALLAST_RETURN_IF_ERROR(CheckRole(job_, role));
    BALLAST_ASSIGN_OR_RETURN(steps, StepsWithData(job_, step, steps));
    BALLAST_ASSIGN_OR_RETURN(
        const uint64_t id,
        core_->Open(role, {step, micro_batch}, steps, std::move(ready)));
    return std::make_unique<CoreStream>(core_, id);
  }

  void GetSchedule(uint64_t step, ScheduleAnswer answer) override {
    core_->GetSchedule(step, std::move(answer));
  }
  void PeekSchedule(uint64_t step, ScheduleAnswer answer) override {
    core_->PeekSchedule(step, std::move(answer));
  }
  void WatchSteps(std::function<void(uint64_t)> on_step) override {
    core_->WatchSteps(std::move(on_step));
  }
  void Drain() override { core_->Drain(); }
  const ArenaIdentity* arena() const override { return core_->arena(); }
  uint64_t memory_in_use() const override { return core_->memory_in_use(); }
  uint64_t open_streams() const override { return core_->open_streams(); }
  LoaderStats stats() const override { return core_->stats(); }

 private:
  const std::shared_ptr<LoaderCore> core_;
  const v1::Job job_;
  std::unique_ptr<Ticker> ticker_;  // may be null
};

}  // namespace

absl::Status CheckRole(const v1::Job& job, const v1::Role& role) {
  for (const v1::Job::ModuleSize& module : job.modules()) {
    if (module.module() != role.module()) continue;
    if (role.dp_rank() < module.dp()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        ModuleName(role.module()), " has ", module.dp(),
        " data-parallel ranks; rank ", role.dp_rank(), " was asked for"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "module ", ModuleName(role.module()), " is not in topology.modules"));
}

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create(
    const v1::Config& config, uint32_t ranks, const Scheduler* scheduler,
    std::unique_ptr<SampleBuilder> builder, Clock* clock) {
  const v1::Job& job = scheduler->job();
  LoaderCore::Settings settings;
  for (const v1::Job::ModuleSize& module : job.modules()) {
    BALLAST_ASSIGN_OR_RETURN(settings.delivery[module.module()],
                             RuleOf(job, module.module()));
  }
  settings.geometry.patch = job.model().patch();
  settings.geometry.position_axes = job.model().position_axes();
  settings.memory = config.serve().memory();
  settings.prefetch_steps = config.serve().prefetch_steps();
  settings.ranks = std::max(ranks, 1u);
  for (const auto& [name, module] : config.topology().modules()) {
    settings.peers =
        std::max(settings.peers, module.tp() * module.pp() * module.cp());
  }
  settings.vision_first = ChecksImages(config);
  BALLAST_ASSIGN_OR_RETURN(
      std::unique_ptr<Arena> arena,
      MakeArena(config.serve().arena().empty() ? "off" : config.serve().arena(),
                SocketOf(config.serve()), settings.memory));
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<WorkerPool> workers,
                           WorkerPool::Create(config.serve().threads()));
  auto core =
      std::make_shared<LoaderCore>(settings, scheduler, std::move(builder),
                                   std::move(arena), std::move(workers));
  std::unique_ptr<Ticker> ticker;
  if (settings.vision_first) {
    BALLAST_ASSIGN_OR_RETURN(
        ticker, Ticker::Start(
                    "look for streams that stand still", [] { return kLook; },
                    [core] { core->LookForStillVision(); }, clock));
  }
  return std::make_unique<CoreLoader>(std::move(core), job, std::move(ticker));
}

}  // namespace ballast
