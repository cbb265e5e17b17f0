#include "server/delivery/loader.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/net_address.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"

// A Loader has two parts: streams, which begin, hand out and release blocks,
// and tasks of workers, which plan blocks, find memory for them and build them.

namespace ballast {

namespace {

// Streams that a rank may have open in addition to its peers' streams: attempts
// whose end the server has not noticed yet, and a tool's stream.
constexpr uint64_t kSpareStreams = 3;
constexpr uint64_t kMinStreamsOfRole = 8;
constexpr uint64_t kMinStreams = 64;

// Schedules cached in addition to the schedules of the prefetched steps.
constexpr size_t kSpareSchedules = 4;

// The path of the first Unix socket that the server listens at, if any.
std::string GetSocket(const v1::Serve& serve) {
  for (const std::string& text : serve.listen()) {
    const absl::string_view path = UnixPath(text);
    if (absl::StartsWith(path, "/")) return std::string(path);
  }
  return "";
}

absl::StatusOr<Loader::Settings> GetSettings(const v1::Config& config,
                                             const v1::Job& job,
                                             uint32_t ranks) {
  Loader::Settings settings;
  for (const v1::Job::ModuleSize& module : job.modules()) {
    BALLAST_ASSIGN_OR_RETURN(settings.delivery[module.module()],
                             GetRule(job, module.module()));
  }
  settings.geometry = GetGeometry(job);
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

RoleKey GetKey(const v1::Role& role) {
  return {role.split(), role.module(), role.dp_rank()};
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
    if (role.dp_rank() < module.dp()) return GetRule(job, role).status();
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
  absl::Status status() const override { return loader_->GetStatus(id_); }
  void Close() override { loader_->Close(id_); }

 private:
  const std::shared_ptr<Loader> loader_;
  const uint64_t id_;
};

absl::StatusOr<std::shared_ptr<Loader>> Loader::Create(
    const v1::Config& config, uint32_t ranks, const Scheduler* scheduler,
    std::unique_ptr<SampleBuilder> builder, Clock* clock, ActiveSamples* active,
    StepGate* gate) {
  BALLAST_ASSIGN_OR_RETURN(const Settings settings,
                           GetSettings(config, scheduler->job(), ranks));
  BALLAST_ASSIGN_OR_RETURN(
      std::unique_ptr<Arena> arena,
      MakeArena(config.serve().arena().empty() ? "off" : config.serve().arena(),
                GetSocket(config.serve()), settings.memory));
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<WorkerPool> workers,
                           WorkerPool::Create(config.serve().threads()));
  std::shared_ptr<Loader> loader =
      CreateOver(settings, scheduler, std::move(builder), std::move(arena),
                 std::move(workers), active, gate);
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
    std::unique_ptr<Workers> workers, ActiveSamples* active, StepGate* gate) {
  const std::shared_ptr<Loader> loader(
      new Loader(settings, scheduler, std::move(builder), std::move(arena),
                 std::move(workers), active, gate));
  // Streams and blocks share `loader`; the pointer returned to the caller stops
  // it.
  return std::shared_ptr<Loader>(loader.get(),
                                 [loader](Loader* l) { l->Stop(); });
}

Loader::Loader(const Settings& settings, const Scheduler* scheduler,
               std::unique_ptr<SampleBuilder> builder,
               std::unique_ptr<Arena> arena, std::unique_ptr<Workers> workers,
               ActiveSamples* active, StepGate* gate)
    : settings_(settings),
      splits_(GetParts(settings, scheduler, active, gate)),
      roles_(uint64_t{settings.ranks} *
             (splits_.size() -
              std::count(splits_.begin(), splits_.end(), nullptr))),
      max_streams_of_role_(
          std::max(kMinStreamsOfRole, settings.peers + kSpareStreams)),
      max_streams_(
          std::max(kMinStreams, (settings.peers + kSpareStreams) * roles_)),
      builder_(std::move(builder)),
      arena_(std::move(arena)),
      next_generation_(FirstGeneration(*arena_)),
      ledger_(settings.memory, roles_, arena_->begin(), arena_->end()),
      gates_(splits_.size(),
             EncoderGate(settings.encoders_first, settings.prefetch_steps)),
      workers_(std::move(workers)) {}

Loader::SplitParts Loader::GetParts(const Settings& settings,
                                    const Scheduler* scheduler,
                                    ActiveSamples* active, StepGate* gate) {
  SplitParts parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto found = scheduler->OfSplit(static_cast<v1::Split>(i));
    if (!found.ok()) continue;
    parts[i] = std::make_unique<SplitPart>(
        *found, settings.prefetch_steps + kSpareSchedules, active,
        i == v1::SPLIT_TRAIN ? gate : nullptr);
  }
  return parts;
}

absl::StatusOr<Loader::SplitPart*> Loader::GetPart(v1::Split split) const {
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
    std::function<void()> ready, std::optional<BlockShare> share) {
  BALLAST_ASSIGN_OR_RETURN(const SplitPart* const part, GetPart(role.split()));
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
      id, role, BlockRange{{step, micro_batch}, steps, std::move(share)},
      settings_.prefetch_steps, std::move(ready));
  stream->last_taken = ++taken_;
  GetGate(*stream).Add(stream.get());
  ledger_.OpenStream(GetKey(role));
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

std::vector<v1::Role> Loader::RolesAskingDirect() const {
  constexpr size_t kMost = 16;
  std::vector<v1::Role> roles;
  MutexLock lock(&mutex_);
  for (const auto& [id, stream] : streams_) {
    if (roles.size() == kMost) break;
    if (stream->end.ok() && AsksDirect(stream->role)) {
      roles.push_back(stream->role);
    }
  }
  return roles;
}

void Loader::GetSchedule(uint64_t step, ScheduleAnswer answer,
                         v1::Split split) {
  workers_->AddTask([this, step, split, answer = std::move(answer)] {
    const absl::StatusOr<SplitPart*> part = GetPart(split);
    answer(part.ok() ? (*part)->schedules.Get(step) : part.status());
  });
}

void Loader::PeekSchedule(uint64_t step, ScheduleAnswer answer,
                          v1::Split split) {
  workers_->AddWatchTask([this, step, split, answer = std::move(answer)] {
    const absl::StatusOr<SplitPart*> part = GetPart(split);
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
    for (const auto& block : stream->queue) {
      stats.blocks_ready += block->done;
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

std::vector<Loader::PlanRequest> Loader::TakePlanRequests(v1::Split split,
                                                          uint64_t step) {
  MutexLock lock(&mutex_);
  const auto found = to_plan_.find({split, step});
  // The schedule is not computed for streams that have ended meanwhile.
  std::vector<PlanRequest> requests;
  for (PlanRequest& request : std::exchange(found->second, {})) {
    const LoaderStream* stream = Find(request.stream);
    if (stream == nullptr || !stream->end.ok()) continue;
    requests.push_back(std::move(request));
  }
  if (requests.empty()) to_plan_.erase(found);
  return requests;
}

void Loader::PlanStep(v1::Split split, uint64_t step) {
  absl::StatusOr<std::shared_ptr<const v1::StepSchedule>> schedule;
  while (true) {
    const std::vector<PlanRequest> requests = TakePlanRequests(split, step);
    if (requests.empty()) return;
    if (!schedule.ok()) schedule = splits_[split]->schedules.Get(step);
    // Every rank is stuck here, and its trainer may be the last to know why.
    if (absl::IsDataLoss(schedule.status())) {
      LogError("no schedule of ", SplitWord(split), "step ", step, ": ",
               schedule.status().message());
    }
    for (const PlanRequest& request : requests) {
      OnPlanned(
          request.stream,
          schedule.ok()
              ? PlanForBuilding(**schedule, request.micro_batch, request.role,
                                AsksDirect(request.role)
                                    ? DeliveryRule(v1::DELIVERY_DIRECT)
                                    : settings_.delivery[request.role.module()],
                                settings_.geometry)
              : schedule.status());
    }
  }
}

void Loader::OnPlanned(uint64_t stream_id,
                       absl::StatusOr<PlannedBlock> planned) {
  Deferred deferred;
  MutexLock lock(&mutex_);
  LoaderStream* stream = Find(stream_id);
  if (stream == nullptr || !stream->end.ok()) return;
  if (stream->progress.DropsPlan()) {
    Advance(stream, &deferred);
    return;
  }
  if (planned.ok()) {
    if (stream->progress.OnPlanned(planned->plan.bytes(),
                                   planned->plan.header.micro_batches)) {
      stream->planned = *std::move(planned);
    } else if (stream->progress.AllTaken()) {
      Notify(stream, &deferred);  // the rest was other servers'
    }
    Advance(stream, &deferred);
    return;
  }
  stream->progress.Stop();
  // OUT_OF_RANGE would mean the normal end of a stream, but this step does not
  // exist.
  stream->plan_error =
      absl::IsOutOfRange(planned.status())
          ? absl::InvalidArgumentError(planned.status().message())
          : planned.status();
  if (HasNews(*stream)) Notify(stream, &deferred);
  AdvanceWaiting(&deferred);
}

void Loader::Build(const std::shared_ptr<LoaderBlock>& block,
                   PlannedBlock planned, uint64_t distance) {
  std::optional<uint64_t> place;
  {
    Deferred deferred;
    MutexLock lock(&mutex_);
    if (!ledger_.IsHeld(block->number)) {
      OnBuilt(block.get(), false, &deferred);
      AdvanceWaiting(&deferred);
      return;
    }
    place = ledger_.GetPlace(block->number);
  }
  const absl::Status taken =
      TakeMemory(block.get(), planned.plan.bytes(), place);
  if (!taken.ok()) {
    OnFinished(block, taken);
    return;
  }
  auto build = std::make_shared<BlockBuild>(
      std::move(planned), builder_.get(), block->memory, block->wants_checksum,
      [this, weak = std::weak_ptr<LoaderBlock>(block)](
          absl::StatusOr<std::optional<uint64_t>> checksum) {
        OnFinished(weak, std::move(checksum));
      });
  if (!build->Start()) return;

  Deferred deferred;
  MutexLock lock(&mutex_);
  if (!ledger_.IsHeld(block->number)) {
    OnBuilt(block.get(), false, &deferred);
    AdvanceWaiting(&deferred);
    deferred.builds.push_back(std::move(build));
    return;
  }
  block->build = build;
  // Added under the lock, so that End either prevents this or finds the build.
  workers_->AddItems(distance, std::move(build));
}

absl::Status Loader::TakeMemory(LoaderBlock* block, uint64_t bytes,
                                std::optional<uint64_t> place) {
  if (place.has_value()) {
    const absl::Status reserved =
        arena_->EnsureReserved(*place + BlockLedger::Footprint(bytes));
    if (reserved.ok()) {
      block->offset = *place + kArenaStampBytes;
      block->memory = {arena_->at(*block->offset), bytes};
      return absl::OkStatus();
    }
    MutexLock lock(&mutex_);
    if (!std::exchange(full_arena_logged_, true)) {
      LogWarning(reserved.message(), "; further blocks go over the stream");
    }
  }
  BALLAST_ASSIGN_OR_RETURN(block->buffer, AlignedBuffer::Create(bytes));
  block->memory = block->buffer.bytes();
  return absl::OkStatus();
}

void Loader::OnFinished(const std::weak_ptr<LoaderBlock>& weak,
                        absl::StatusOr<std::optional<uint64_t>> checksum) {
  const std::shared_ptr<LoaderBlock> block = weak.lock();
  if (block == nullptr) return;
  Deferred deferred;
  MutexLock lock(&mutex_);
  deferred.builds.push_back(std::move(block->build));
  block->done = true;
  block->status = checksum.status();
  if (checksum.ok()) {
    block->checksum = *checksum;
    if (block->offset.has_value()) {
      block->generation = next_generation_++;
      SetStamp(arena_->stamp(*block->offset), block->generation);
    }
  }
  OnBuilt(block.get(), checksum.ok(), &deferred);
  for (const auto& [id, stream] : streams_) {
    if (stream->queue.empty()) continue;
    if (stream->queue.front() == block) Notify(stream.get(), &deferred);
    if (checksum.ok()) continue;
    for (const auto& queued : stream->queue) {
      if (queued == block) stream->progress.Stop();
    }
  }
  AdvanceWaiting(&deferred);
}

namespace {

absl::Status Closed() { return absl::CancelledError("the stream is closed"); }

// "vision rank 3", "valid vision rank 3"
std::string Describe(const v1::Role& role) {
  return absl::StrCat(SplitWord(role.split()), ModuleName(role.module()),
                      " rank ", role.dp_rank());
}

// The streams that a role has open.
struct RoleStreams {
  uint64_t open = 0;
  LoaderStream* idlest = nullptr;  // null: each waits for a block
};

}  // namespace

absl::Status Loader::MakeRoomFor(const v1::Role& role, Deferred* deferred) {
  uint64_t open = 0;
  std::map<RoleKey, RoleStreams> roles;
  for (const auto& [id, stream] : streams_) {
    if (!stream->end.ok()) continue;  // about to be closed
    ++open;
    RoleStreams& of_role = roles[GetKey(stream->role)];
    ++of_role.open;
    if (stream->ready_is_owed) continue;
    if (of_role.idlest == nullptr ||
        stream->last_taken < of_role.idlest->last_taken) {
      of_role.idlest = stream.get();
    }
  }
  const uint64_t own = roles[GetKey(role)].open;
  const RoleStreams* gives_way = nullptr;
  if (own >= max_streams_of_role_) {
    gives_way = &roles[GetKey(role)];
  } else if (open >= max_streams_) {
    for (const auto& [key, other] : roles) {
      if (other.idlest == nullptr || other.open <= own) continue;
      if (gives_way == nullptr || other.open > gives_way->open) {
        gives_way = &other;
      }
    }
  } else {
    return absl::OkStatus();
  }
  if (gives_way == nullptr || gives_way->idlest == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        own, " streams of ", Describe(role), " are open and ", open,
        " in all, all of them in use; wanted at most ", max_streams_of_role_,
        " and ", max_streams_,
        "; do two jobs pull as the same rank, or do clients reconnect without "
        "closing their streams?"));
  }
  LoaderStream* const stream = gives_way->idlest;
  if (told_of_.insert(GetKey(stream->role)).second) {
    LogWarning(
        gives_way->open, " streams of ", Describe(stream->role),
        " are open; newer ones end those whose clients take no block. Do "
        "clients reconnect without closing their streams?");
  }
  // Runs `ready` on a worker: its Pull takes a lock, and so does the Pull that
  // opens the new stream.
  stream->ready_is_owed = false;
  deferred->calls.push_back(
      [this, ready = stream->ready] { workers_->AddTask(ready); });
  End(stream,
      absl::AbortedError(
          absl::StrCat("a newer stream has taken the place of this one of ",
                       Describe(stream->role), ", whose client took no block")),
      deferred);
  return absl::OkStatus();
}

std::optional<Loader::BlockOr> Loader::TryNext(uint64_t stream_id) {
  Deferred deferred;
  MutexLock lock(&mutex_);
  LoaderStream* stream = Find(stream_id);
  if (stream == nullptr) return Closed();
  if (!stream->end.ok()) return stream->end;
  if (stream->progress.AllTaken()) {
    End(stream, absl::OutOfRangeError("all requested steps are done"),
        &deferred);
    return stream->end;
  }
  if (!HasNews(*stream)) {
    stream->ready_is_owed = true;
    return std::nullopt;
  }
  const absl::Status status = stream->queue.empty()
                                  ? stream->plan_error
                                  : stream->queue.front()->status;
  if (!status.ok()) {
    End(stream, status, &deferred);
    return stream->end;
  }
  std::unique_ptr<Block> block = MakeHold(*stream, stream->queue.front());
  stream->queue.pop_front();
  stream->progress.OnTaken();
  stream->last_taken = ++taken_;
  GetGate(*stream).OnTaken(*stream);
  NoteStep(stream->role.split(), block->id().step, &deferred);
  Advance(stream, &deferred);
  return block;
}

absl::Status Loader::GetStatus(uint64_t stream_id) const {
  MutexLock lock(&mutex_);
  const LoaderStream* stream = Find(stream_id);
  return stream == nullptr ? Closed() : stream->end;
}

void Loader::Close(uint64_t stream_id) {
  Deferred deferred;
  MutexLock lock(&mutex_);
  LoaderStream* stream = Find(stream_id);
  if (stream == nullptr) return;
  stream->ready_is_owed = false;
  End(stream, Closed(), &deferred);
  // Destroying `ready` may free objects that must not be freed under the lock.
  deferred.calls.push_back([ready = std::move(stream->ready)] {});
  GetGate(*stream).Remove(*stream);
  streams_.erase(stream_id);
}

void Loader::Advance(LoaderStream* stream, Deferred* deferred) {
  stream->waits_for_memory = false;
  stream->waits_for_encoders = false;
  while (true) {
    const StreamProgress::Decision next = stream->progress.Next();
    switch (next.action) {
      case StreamProgress::Action::kNothing:
        return;
      case StreamProgress::Action::kPlan:
        AddPlanRequest(*stream, next.block, deferred);
        break;
      case StreamProgress::Action::kBegin:
        if (!GetGate(*stream).MayBegin(*stream)) {
          stream->waits_for_encoders = true;
          return;
        }
        if (!Begin(stream, next, deferred)) {
          stream->waits_for_memory = true;
          return;
        }
        break;
    }
  }
}

void Loader::AddPlanRequest(const LoaderStream& stream, const BlockId& block,
                            Deferred* deferred) {
  const v1::Split split = stream.role.split();
  const auto [requests, is_new] = to_plan_.try_emplace({split, block.step});
  requests->second.push_back({stream.id, stream.role, block.micro_batch});
  if (!is_new) return;
  deferred->calls.push_back([this, split, step = block.step] {
    workers_->AddTask([this, split, step] { PlanStep(split, step); });
  });
}

void Loader::AdvanceWaiting(Deferred* deferred) {
  // Computed once for all streams, since this runs after every block that is
  // built.
  std::array<std::optional<EncoderGate::Ranks>, v1::Split_ARRAYSIZE>
      ranks_of_split;
  for (const auto& [id, stream] : streams_) {
    if (stream->waits_for_encoders) {
      const EncoderGate& gate = GetGate(*stream);
      auto& ranks = ranks_of_split[stream->role.split()];
      if (!ranks.has_value()) ranks = gate.GetRanks();
      if (!gate.MayBegin(*stream, *ranks)) continue;
    } else if (!stream->waits_for_memory) {
      continue;
    }
    Advance(stream.get(), deferred);
  }
}

bool Loader::Begin(LoaderStream* stream, const StreamProgress::Decision& next,
                   Deferred* deferred) {
  const BlockKey key = {stream->role.module(), stream->role.dp_rank(),
                        next.block, AsksDirect(stream->role),
                        stream->role.split()};
  std::optional<BlockLedger::Grant> grant;
  while (!grant.has_value()) {
    if (!ledger_.HasRoom(next.bytes) && TakeBack(*stream, next, deferred)) {
      continue;
    }
    std::vector<uint64_t> gone;
    grant = ledger_.Acquire(stream->id, key, next.bytes, &gone);
    for (const uint64_t block : gone) Forget(block, deferred);
    if (!grant.has_value() && !TakeBack(*stream, next, deferred)) return false;
  }
  stream->progress.OnBegun();
  GetGate(*stream).OnBegun(*stream, grant->is_new);
  std::shared_ptr<LoaderBlock>& block = blocks_[grant->block];
  if (grant->is_new) {
    block = std::make_shared<LoaderBlock>();
    block->number = grant->block;
    block->id = next.block;
    block->wants_checksum = stream->asks_checksums;
    auto planned = std::make_shared<PlannedBlock>(*std::move(stream->planned));
    deferred->calls.push_back(
        [this, block = block, planned, distance = next.distance] {
          workers_->AddTask([this, block, planned, distance] {
            Build(block, std::move(*planned), distance);
          });
        });
  }
  if (!grant->is_new) ++blocks_reused_;
  stream->planned.reset();
  stream->queue.push_back(block);
  if (HasNews(*stream) && stream->ready_is_owed) {
    // Calls `ready` from a worker: this may run wherever a block is released,
    // where the consumer does not expect to be called.
    stream->ready_is_owed = false;
    deferred->calls.push_back(
        [this, ready = stream->ready] { workers_->AddTask(ready); });
  }
  return true;
}

bool Loader::HasNews(const LoaderStream& stream) {
  return stream.queue.empty() ? !stream.plan_error.ok()
                              : stream.queue.front()->done;
}

void Loader::LetGo(const LoaderStream& stream,
                   const std::shared_ptr<LoaderBlock>& block,
                   Deferred* deferred) {
  switch (ledger_.Release(stream.id, block->number)) {
    case BlockLedger::Fate::kStays:
      break;
    case BlockLedger::Fate::kUnwanted:
      Abandon(block, deferred);
      break;
    case BlockLedger::Fate::kGone:
      Forget(block->number, deferred);
      break;
  }
  deferred->forgotten.push_back(block);
}

bool Loader::TakeBack(const LoaderStream& wants,
                      const StreamProgress::Decision& next,
                      Deferred* deferred) {
  std::set<RoleKey> except;
  while (true) {
    const std::optional<RoleKey> role =
        ledger_.AboveShare(GetKey(wants.role), next.bytes, except);
    if (!role.has_value()) return false;
    LoaderStream* last = nullptr;
    for (const auto& [id, stream] : streams_) {
      if (GetKey(stream->role) != *role || !stream->progress.MayGiveBack()) {
        continue;
      }
      if (last == nullptr ||
          last->queue.back()->id < stream->queue.back()->id) {
        last = stream.get();
      }
    }
    if (last == nullptr) {
      except.insert(*role);
      continue;
    }
    LetGo(*last, last->queue.back(), deferred);
    last->queue.pop_back();
    last->progress.GiveBack();
    last->planned.reset();
    Advance(last, deferred);
    return true;
  }
}

void Loader::End(LoaderStream* stream, absl::Status end, Deferred* deferred) {
  const bool was_open = stream->end.ok();
  stream->end = std::move(end);
  stream->progress.Stop();
  stream->planned.reset();
  stream->waits_for_memory = false;
  stream->waits_for_encoders = false;
  for (const auto& block : stream->queue) LetGo(*stream, block, deferred);
  stream->queue.clear();
  if (was_open) ledger_.CloseStream(GetKey(stream->role));
  Notify(stream, deferred);
  AdvanceWaiting(deferred);
}

void Loader::Notify(LoaderStream* stream, Deferred* deferred) {
  if (!stream->ready_is_owed) return;
  stream->ready_is_owed = false;
  if (stream->ready) deferred->calls.push_back(stream->ready);
}

LoaderStream* Loader::Find(uint64_t stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second.get();
}

std::unique_ptr<Block> Loader::MakeHold(
    const LoaderStream& stream, const std::shared_ptr<LoaderBlock>& block) {
  Block::Content content;
  content.id = block->id;
  content.bytes = block->memory;
  content.checksum = [core = shared_from_this(), id = stream.id,
                      block = block] {
    return core->GetChecksum(id, block.get());
  };
  if (block->offset.has_value() && ledger_.Promise(stream.id, block->number)) {
    content.place = ArenaPlace{*block->offset, block->generation};
  }
  return std::make_unique<Block>(
      content,
      [core = shared_from_this(), id = stream.id, number = block->number] {
        core->Lend(id, number);
      },
      [core = shared_from_this(), id = stream.id, block = block] {
        core->Release(id, block->number);
      });
}

void Loader::Abandon(const std::shared_ptr<LoaderBlock>& block,
                     Deferred* deferred) {
  // If there is no build yet, the task that would create it checks for this.
  if (block->build == nullptr) return;
  if (workers_->RemoveIfUntouched(block->build.get())) {
    deferred->builds.push_back(std::move(block->build));
    OnBuilt(block.get(), false, deferred);
  } else if (draining_) {
    block->build->Cancel();
  }
}

void Loader::OnBuilt(LoaderBlock* block, bool ok, Deferred* deferred) {
  ++(ok ? blocks_built_ : blocks_failed_);
  if (ledger_.OnBuilt(block->number, ok) == BlockLedger::Fate::kGone) {
    Forget(block->number, deferred);
  }
}

void Loader::Forget(uint64_t number, Deferred* deferred) {
  const auto found = blocks_.find(number);
  if (found == blocks_.end()) return;
  const std::shared_ptr<LoaderBlock>& block = found->second;
  // Clears the stamp before anything else is written there.
  if (block->offset.has_value()) SetStamp(arena_->stamp(*block->offset), 0);
  deferred->forgotten.push_back(block);
  blocks_.erase(found);
}

void Loader::Lend(uint64_t stream_id, uint64_t block) {
  Deferred deferred;
  MutexLock lock(&mutex_);
  ledger_.Lend(stream_id, block);
  LoaderStream* stream = Find(stream_id);
  if (stream != nullptr && stream->waits_for_memory) Advance(stream, &deferred);
}

uint64_t Loader::GetChecksum(uint64_t stream_id, LoaderBlock* block) {
  {
    MutexLock lock(&mutex_);
    LoaderStream* stream = Find(stream_id);
    if (stream != nullptr) stream->asks_checksums = true;
    if (block->checksum.has_value()) return *block->checksum;
  }
  const uint64_t checksum = BlockChecksum(block->memory);
  MutexLock lock(&mutex_);
  block->checksum = checksum;
  return checksum;
}

void Loader::Release(uint64_t stream, uint64_t block) {
  Deferred deferred;
  MutexLock lock(&mutex_);
  if (ledger_.Release(stream, block) == BlockLedger::Fate::kGone) {
    Forget(block, &deferred);
  }
  AdvanceWaiting(&deferred);
}

}  // namespace ballast
