#include "server/delivery/loader.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/net_address.h"
#include "common/status_macros.h"
#include "proto/block/data_end.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"
#include "server/delivery/worker_pool.h"

namespace ballast {
namespace {

// Streams that a rank may have open besides those of its peers: attempts whose
// end the server has not noticed yet, and a tool's stream.
constexpr uint64_t kSpareStreams = 3;
constexpr uint64_t kLeastStreamsOfRole = 8;
constexpr uint64_t kLeastStreams = 64;

// Schedules cached beyond those that prefetching spans.
constexpr size_t kSpareSchedules = 4;

// The path of the first Unix socket that the server listens at, if any.
std::string SocketOf(const v1::Serve& serve) {
  for (const std::string& text : serve.listen()) {
    const absl::string_view path = UnixPath(text);
    if (absl::StartsWith(path, "/")) return std::string(path);
  }
  return "";
}

absl::StatusOr<Loader::Settings> SettingsOf(const v1::Config& config,
                                            const v1::Job& job,
                                            uint32_t ranks) {
  Loader::Settings settings;
  for (const v1::Job::ModuleSize& module : job.modules()) {
    BALLAST_ASSIGN_OR_RETURN(settings.delivery[module.module()],
                             RuleOf(job, module.module()));
  }
  settings.geometry = GeometryOf(job);
  settings.memory = config.serve().memory();
  settings.prefetch_steps = config.serve().prefetch_steps();
  settings.ranks = std::max(ranks, 1u);
  for (const auto& [name, module] : config.topology().modules()) {
    settings.peers =
        std::max(settings.peers, module.tp() * module.pp() * module.cp());
  }
  settings.encoders_first = ChecksImages(config);
  return settings;
}

// The first generation of blocks in `arena`. Random, so that generations of two
// arenas differ and none occurs among the bytes of a block.
uint64_t FirstGeneration(const Arena& arena) {
  uint64_t first = 1;
  if (const ArenaIdentity* identity = arena.identity()) {
    std::memcpy(&first, identity->nonce.data(), sizeof(first));
  }
  return first;
}

absl::Status Drained() {
  return absl::UnavailableError(
      "the server drains; another server of the job can go on");
}

}  // namespace

absl::Status CheckRole(const v1::Job& job, const v1::Role& role) {
  BALLAST_RETURN_IF_ERROR(CheckSplit(job, role.split()));
  for (const v1::Job::ModuleSize& module : job.modules()) {
    if (module.module() != role.module()) continue;
    if (role.dp_rank() < module.dp()) return RuleOf(job, role).status();
    return absl::InvalidArgumentError(absl::StrCat(
        ModuleName(role.module()), " has ", module.dp(),
        " data-parallel ranks; rank ", role.dp_rank(),
        " was asked for. Ranks count from 0; set topology.modules.",
        ModuleName(role.module()), ".dp to the trainer's number of ranks"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "module ", ModuleName(role.module()),
      " is not in topology.modules; add it there, or ask for the job's modules "
      "alone, as Loader(modules=...)"));
}

// Keeps the loader, and with it the memory of its blocks, alive while it is
// open.
class Loader::Stream : public BlockStream {
 public:
  Stream(std::shared_ptr<Loader> loader, uint64_t id)
      : loader_(std::move(loader)), id_(id) {}
  ~Stream() override { loader_->Close(id_); }

  std::optional<BlockOr> TryNext() override { return loader_->TryNext(id_); }
  absl::Status status() const override { return loader_->StatusOf(id_); }
  void Close() override { loader_->Close(id_); }

 private:
  const std::shared_ptr<Loader> loader_;
  const uint64_t id_;
};

absl::StatusOr<std::shared_ptr<Loader>> Loader::Create(
    const v1::Config& config, uint32_t ranks, const Scheduler* scheduler,
    std::unique_ptr<SampleBuilder> builder, Clock* clock,
    ActiveSamples* active) {
  BALLAST_ASSIGN_OR_RETURN(const Settings settings,
                           SettingsOf(config, scheduler->job(), ranks));
  BALLAST_ASSIGN_OR_RETURN(
      std::unique_ptr<Arena> arena,
      MakeArena(config.serve().arena().empty() ? "off" : config.serve().arena(),
                SocketOf(config.serve()), settings.memory));
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<WorkerPool> workers,
                           WorkerPool::Create(config.serve().threads()));
  std::shared_ptr<Loader> loader =
      CreateOver(settings, scheduler, std::move(builder), std::move(arena),
                 std::move(workers), active);
  if (settings.encoders_first) {
    BALLAST_ASSIGN_OR_RETURN(
        loader->ticker_,
        Ticker::Start(
            "look for paused streams of encoders",
            [] { return EncoderGate::kLookInterval; },
            [l = loader.get()] { l->LookForPausedEncoders(); }, clock));
  }
  return loader;
}

std::shared_ptr<Loader> Loader::CreateOver(
    const Settings& settings, const Scheduler* scheduler,
    std::unique_ptr<SampleBuilder> builder, std::unique_ptr<Arena> arena,
    std::unique_ptr<Workers> workers, ActiveSamples* active) {
  const std::shared_ptr<Loader> loader(
      new Loader(settings, scheduler, std::move(builder), std::move(arena),
                 std::move(workers), active));
  // Streams and blocks share `loader`; the pointer returned to the caller stops
  // it.
  return std::shared_ptr<Loader>(loader.get(),
                                 [loader](Loader* l) { l->Stop(); });
}

Loader::Loader(const Settings& settings, const Scheduler* scheduler,
               std::unique_ptr<SampleBuilder> builder,
               std::unique_ptr<Arena> arena, std::unique_ptr<Workers> workers,
               ActiveSamples* active)
    : settings_(settings),
      splits_(PartsOf(settings, scheduler, active)),
      shares_(uint64_t{settings.ranks} *
              (splits_.size() -
               std::count(splits_.begin(), splits_.end(), nullptr))),
      max_streams_of_role_(
          std::max(kLeastStreamsOfRole, settings.peers + kSpareStreams)),
      max_streams_(
          std::max(kLeastStreams, (settings.peers + kSpareStreams) * shares_)),
      builder_(std::move(builder)),
      arena_(std::move(arena)),
      next_generation_(FirstGeneration(*arena_)),
      ledger_(settings.memory, shares_, arena_->begin(), arena_->end()),
      gates_(splits_.size(),
             EncoderGate(settings.encoders_first, settings.prefetch_steps)),
      workers_(std::move(workers)) {}

Loader::SplitParts Loader::PartsOf(const Settings& settings,
                                   const Scheduler* scheduler,
                                   ActiveSamples* active) {
  SplitParts parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto found = scheduler->OfSplit(static_cast<v1::Split>(i));
    if (!found.ok()) continue;
    parts[i] = std::make_unique<SplitPart>(
        *found, settings.prefetch_steps + kSpareSchedules, active);
  }
  return parts;
}

absl::StatusOr<Loader::SplitPart*> Loader::PartOf(v1::Split split) const {
  BALLAST_RETURN_IF_ERROR(CheckSplit(splits_[v1::SPLIT_TRAIN]->job, split));
  return splits_[split].get();
}

bool Loader::Trains() const {
  return std::any_of(streams_.begin(), streams_.end(), [](const auto& entry) {
    return entry.second->role.split() == v1::SPLIT_TRAIN;
  });
}

void Loader::Stop() {
  ticker_.reset();
  Drain();
  workers_->Stop();
}

absl::StatusOr<std::unique_ptr<BlockStream>> Loader::OpenStream(
    const v1::Role& role, uint64_t step, uint32_t micro_batch, uint64_t steps,
    std::function<void()> ready) {
  BALLAST_ASSIGN_OR_RETURN(const SplitPart* const part, PartOf(role.split()));
  BALLAST_RETURN_IF_ERROR(CheckRole(part->job, role));
  BALLAST_ASSIGN_OR_RETURN(steps, StepsWithData(part->job, step, steps));
  Deferred deferred;
  MutexLock lock(&mutex_);
  if (draining_) return Drained();
  BALLAST_RETURN_IF_ERROR(CheckAskAlikeLocked(role));
  BALLAST_RETURN_IF_ERROR(MakeRoomFor(role, &deferred));
  // Restarted ranks may begin at an earlier step.
  if (!Trains()) current_step_.reset();
  const uint64_t id = next_stream_++;
  auto stream = std::make_unique<LoaderStream>(
      id, role, BlockRange{{step, micro_batch}, steps},
      settings_.prefetch_steps, std::move(ready));
  stream->last_taken = ++taken_;
  GateOf(*stream).Add(stream.get());
  Advance(stream.get(), &deferred);
  streams_[id] = std::move(stream);
  return std::make_unique<Stream>(shared_from_this(), id);
}

bool Loader::AsksDirect(const v1::Role& role) const {
  return role.delivery() == v1::DELIVERY_DIRECT &&
         settings_.delivery[role.module()].moves();
}

absl::Status Loader::CheckAskAlike(const v1::Role& role) const {
  MutexLock lock(&mutex_);
  return CheckAskAlikeLocked(role);
}

absl::Status Loader::CheckAskAlikeLocked(const v1::Role& role) const {
  const bool direct = AsksDirect(role);
  for (const auto& [id, stream] : streams_) {
    const v1::Role& other = stream->role;
    if (other.module() != role.module() || other.split() != role.split() ||
        other.dp_rank() == role.dp_rank() || !stream->end.ok() ||
        AsksDirect(other) == direct) {
      continue;
    }
    const v1::Role& asks = direct ? role : other;
    const v1::Role& asks_not = direct ? other : role;
    return absl::FailedPreconditionError(absl::StrCat(
        ModuleName(role.module()), " rank ", asks.dp_rank(),
        " has no communicator and asks for direct delivery, while rank ",
        asks_not.dp_rank(),
        " exchanges samples; wanted the same of all ranks of the module: give "
        "each rank a communicator, or none"));
  }
  return absl::OkStatus();
}

void Loader::GetSchedule(uint64_t step, ScheduleAnswer answer,
                         v1::Split split) {
  workers_->AddTask([this, step, split, answer = std::move(answer)] {
    const absl::StatusOr<SplitPart*> part = PartOf(split);
    answer(part.ok() ? (*part)->schedules.Get(step) : part.status());
  });
}

void Loader::PeekSchedule(uint64_t step, ScheduleAnswer answer,
                          v1::Split split) {
  workers_->AddWatchTask([this, step, split, answer = std::move(answer)] {
    const absl::StatusOr<SplitPart*> part = PartOf(split);
    answer(part.ok() ? (*part)->schedules.Peek(step) : part.status());
  });
}

void Loader::WatchSteps(std::function<void(uint64_t step)> on_step) {
  MutexLock lock(&mutex_);
  on_step_ = std::move(on_step);
}

void Loader::NoteStep(v1::Split split, uint64_t step, Deferred* deferred) {
  if (split != v1::SPLIT_TRAIN) return;
  if (current_step_.has_value() && step <= *current_step_) return;
  if (on_step_ == nullptr) return;
  current_step_ = step;
  deferred->calls.push_back([this, step, on_step = on_step_] {
    workers_->AddTask([step, on_step] { on_step(step); });
  });
}

void Loader::LookForPausedEncoders() {
  Deferred deferred;
  MutexLock lock(&mutex_);
  for (EncoderGate& gate : gates_) gate.Look();
  AdvanceWaiting(&deferred);
}

void Loader::Drain() {
  Deferred deferred;
  MutexLock lock(&mutex_);
  draining_ = true;
  for (const auto& [id, stream] : streams_) {
    if (!stream->end.ok()) continue;
    // Also notifies a consumer that is busy with a block.
    stream->ready_is_owed = true;
    End(stream.get(), Drained(), &deferred);
  }
}

bool Loader::draining() const {
  MutexLock lock(&mutex_);
  return draining_;
}

uint64_t Loader::memory_in_use() const {
  MutexLock lock(&mutex_);
  return ledger_.in_use();
}

uint64_t Loader::open_streams() const {
  MutexLock lock(&mutex_);
  return streams_.size();
}

LoaderStats Loader::stats() const {
  LoaderStats stats;
  const Workers::Load load = workers_->load();
  stats.tasks_waiting = load.tasks;
  stats.samples_waiting = load.items;
  stats.workers = load.threads;
  stats.workers_busy = load.busy;
  for (const auto& part : splits_) {
    if (part == nullptr) continue;
    const ScheduleCache::Uses schedules = part->schedules.uses();
    stats.schedules_found += schedules.found;
    stats.schedules_computed += schedules.computed;
  }
  MutexLock lock(&mutex_);
  stats.memory_in_use = ledger_.in_use();
  stats.memory_idle = ledger_.idle();
  stats.streams = streams_.size();
  for (const auto& [id, stream] : streams_) {
    stats.streams_short_of_memory += stream->waits_for_memory;
    stats.streams_awaiting_encoders += stream->waits_for_encoders;
    for (const QueuedBlock& queued : stream->queue) {
      stats.blocks_ready += queued.block->done;
    }
  }
  for (const auto& [number, block] : blocks_) {
    stats.blocks_in_work += !block->done;
  }
  stats.blocks_built = blocks_built_;
  stats.blocks_failed = blocks_failed_;
  stats.blocks_reused = blocks_reused_;
  stats.current_step = current_step_;
  return stats;
}

}  // namespace ballast
