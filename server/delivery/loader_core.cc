#include "server/delivery/loader_core.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

// Streams that a rank may have open beside those of its peers: attempts whose
// end the server has not noticed yet, and a tool's.
constexpr uint64_t kSpareStreams = 3;
constexpr uint64_t kLeastStreams = 64;

// Schedules kept beyond those that prefetching spans.
constexpr size_t kSpareSchedules = 4;

absl::Status Drained() {
  return absl::UnavailableError(
      "the server drains; another server of the job can go on");
}

absl::Status Closed() { return absl::CancelledError("the stream is closed"); }

// Where generations begin: of two arenas no generation is the same, nor is one
// likely to be found among the bytes of a block.
uint64_t FirstGeneration(const Arena& arena) {
  uint64_t first = 1;
  if (const ArenaIdentity* identity = arena.identity()) {
    std::memcpy(&first, identity->nonce.data(), sizeof(first));
  }
  return first;
}

}  // namespace

LoaderCore::LoaderCore(const Settings& settings, const Scheduler* scheduler,
                       std::unique_ptr<SampleBuilder> builder,
                       std::unique_ptr<Arena> arena,
                       std::unique_ptr<Workers> workers)
    : settings_(settings),
      max_streams_(std::max(kLeastStreams,
                            (settings.peers + kSpareStreams) * settings.ranks)),
      builder_(std::move(builder)),
      arena_(std::move(arena)),
      schedules_(scheduler, settings.prefetch_steps + kSpareSchedules),
      next_generation_(FirstGeneration(*arena_)),
      ledger_(settings.memory, settings.ranks, arena_->begin(), arena_->end()),
      workers_(std::move(workers)) {}

absl::StatusOr<uint64_t> LoaderCore::Open(const v1::Role& role,
                                          const BlockId& first, uint64_t steps,
                                          std::function<void()> ready) {
  Later later;
  MutexLock lock(&mutex_);
  if (draining_) return Drained();
  if (streams_.size() >= max_streams_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(streams_.size(),
                     " streams are open, which is the most; "
                     "do clients reconnect without closing theirs?"));
  }
  // Where ranks begin anew they may do so further back.
  if (streams_.empty()) current_step_.reset();
  const uint64_t id = next_stream_++;
  auto stream =
      std::make_unique<Stream>(id, role, BlockRange{first, steps},
                               settings_.prefetch_steps, std::move(ready));
  Advance(stream.get(), &later);
  streams_[id] = std::move(stream);
  return id;
}

std::optional<LoaderCore::BlockOr> LoaderCore::TryNext(uint64_t stream_id) {
  Later later;
  MutexLock lock(&mutex_);
  Stream* stream = Find(stream_id);
  if (stream == nullptr) return Closed();
  if (!stream->end.ok()) return stream->end;
  if (stream->progress.AllTaken()) {
    End(stream, absl::OutOfRangeError("all steps that were asked for are done"),
        &later);
    return stream->end;
  }
  if (!HasNews(*stream)) {
    stream->ready_is_owed = true;
    return std::nullopt;
  }
  const absl::Status status = stream->queue.empty()
                                  ? stream->plan_error
                                  : stream->queue.front().entry->status;
  if (!status.ok()) {
    End(stream, status, &later);
    return stream->end;
  }
  std::unique_ptr<Block> block = MakeHold(*stream, stream->queue.front());
  stream->queue.pop_front();
  stream->progress.OnTaken();
  stream->looks_still = 0;
  NoteStep(block->id().step, &later);
  Advance(stream, &later);
  return block;
}

absl::Status LoaderCore::StatusOf(uint64_t stream_id) const {
  MutexLock lock(&mutex_);
  const Stream* stream = Find(stream_id);
  return stream == nullptr ? Closed() : stream->end;
}

void LoaderCore::Close(uint64_t stream_id) {
  Later later;
  MutexLock lock(&mutex_);
  Stream* stream = Find(stream_id);
  if (stream == nullptr) return;
  stream->ready_is_owed = false;
  End(stream, Closed(), &later);
  // `ready` may hold what must not be freed under the lock.
  later.calls.push_back([ready = std::move(stream->ready)] {});
  streams_.erase(stream_id);
}

void LoaderCore::GetSchedule(
    uint64_t step,
    std::function<void(absl::StatusOr<std::shared_ptr<const v1::StepSchedule>>)>
        answer) {
  workers_->AddErrand([this, step, answer = std::move(answer)] {
    answer(schedules_.Get(step));
  });
}

void LoaderCore::PeekSchedule(
    uint64_t step,
    std::function<void(absl::StatusOr<std::shared_ptr<const v1::StepSchedule>>)>
        answer) {
  workers_->AddErrand([this, step, answer = std::move(answer)] {
    answer(schedules_.Peek(step));
  });
}

void LoaderCore::WatchSteps(std::function<void(uint64_t step)> on_step) {
  MutexLock lock(&mutex_);
  on_step_ = std::move(on_step);
}

void LoaderCore::NoteStep(uint64_t step, Later* later) {
  if (current_step_.has_value() && step <= *current_step_) return;
  if (on_step_ == nullptr) return;
  current_step_ = step;
  later->calls.push_back([this, step, on_step = on_step_] {
    workers_->AddErrand([step, on_step] { on_step(step); });
  });
}

void LoaderCore::Drain() {
  Later later;
  MutexLock lock(&mutex_);
  draining_ = true;
  for (const auto& [id, stream] : streams_) {
    if (!stream->end.ok()) continue;
    // Also where the consumer is busy with a block: it should learn of this.
    stream->ready_is_owed = true;
    End(stream.get(), Drained(), &later);
  }
}

void LoaderCore::Stop() {
  Drain();
  workers_->Stop();
}

uint64_t LoaderCore::memory_in_use() const {
  MutexLock lock(&mutex_);
  return ledger_.in_use();
}

uint64_t LoaderCore::open_streams() const {
  MutexLock lock(&mutex_);
  return streams_.size();
}

LoaderStats LoaderCore::stats() const {
  LoaderStats stats;
  const Workers::Load load = workers_->load();
  stats.errands_waiting = load.errands;
  stats.samples_waiting = load.items;
  stats.workers = load.threads;
  stats.workers_busy = load.busy;
  const ScheduleCache::Uses schedules = schedules_.uses();
  stats.schedules_found = schedules.found;
  stats.schedules_computed = schedules.computed;
  MutexLock lock(&mutex_);
  stats.memory_in_use = ledger_.in_use();
  stats.memory_idle = ledger_.idle();
  stats.streams = streams_.size();
  for (const auto& [id, stream] : streams_) {
    stats.streams_short_of_memory += stream->waits_for_memory;
    stats.streams_awaiting_vision += stream->waits_for_vision;
    for (const Queued& queued : stream->queue) {
      stats.blocks_ready += queued.entry->done;
    }
  }
  for (const auto& [number, entry] : blocks_) {
    stats.blocks_in_work += !entry->done;
  }
  stats.blocks_built = blocks_built_;
  stats.blocks_failed = blocks_failed_;
  stats.blocks_reused = blocks_reused_;
  stats.current_step = current_step_;
  return stats;
}

void LoaderCore::Advance(Stream* stream, Later* later) {
  stream->waits_for_memory = false;
  stream->waits_for_vision = false;
  while (true) {
    const StreamProgress::Decision next = stream->progress.Next();
    switch (next.action) {
      case StreamProgress::Action::kNothing:
        return;
      case StreamProgress::Action::kPlan:
        later->calls.push_back(
            [this, id = stream->id, role = stream->role, block = next.block] {
              workers_->AddErrand(
                  [this, id, role, block] { Plan(id, role, block); });
            });
        break;
      case StreamProgress::Action::kBegin:
        if (WaitsForVision(*stream)) {
          stream->waits_for_vision = true;
          return;
        }
        if (!Begin(stream, next, later)) {
          stream->waits_for_memory = true;
          return;
        }
        break;
    }
  }
}

bool LoaderCore::Begin(Stream* stream, const StreamProgress::Decision& next,
                       Later* later) {
  std::vector<uint64_t> gone;
  const std::optional<BlockLedger::Grant> grant = ledger_.Acquire(
      stream->id, {stream->role.module(), stream->role.dp_rank(), next.block},
      next.bytes, &gone);
  for (const uint64_t block : gone) Forget(block, later);
  if (!grant.has_value()) return false;
  stream->progress.OnBegun();
  stream->vision_begun_then = vision_begun_;
  std::shared_ptr<Entry>& entry = blocks_[grant->block];
  if (grant->is_new) {
    vision_begun_ += stream->role.module() == v1::MODULE_VISION;
    entry = std::make_shared<Entry>();
    entry->number = grant->block;
    entry->id = next.block;
    auto planned = std::make_shared<PlannedBlock>(*std::move(stream->planned));
    later->calls.push_back(
        [this, entry = entry, planned, distance = next.distance] {
          workers_->AddErrand([this, entry, planned, distance] {
            Build(entry, std::move(*planned), distance);
          });
        });
  }
  if (!grant->is_new) ++blocks_reused_;
  stream->planned.reset();
  stream->queue.push_back({entry, grant->lendable});
  if (HasNews(*stream) && stream->ready_is_owed) {
    // By a worker: this may run wherever a block is let go of, where the
    // consumer does not expect to be called.
    stream->ready_is_owed = false;
    later->calls.push_back(
        [this, ready = stream->ready] { workers_->AddErrand(ready); });
  }
  return true;
}

bool LoaderCore::HasNews(const Stream& stream) {
  return stream.queue.empty() ? !stream.plan_error.ok()
                              : stream.queue.front().entry->done;
}

void LoaderCore::End(Stream* stream, absl::Status end, Later* later) {
  stream->end = std::move(end);
  stream->progress.Stop();
  stream->planned.reset();
  stream->waits_for_memory = false;
  stream->waits_for_vision = false;
  for (const Queued& queued : stream->queue) {
    switch (ledger_.Release(stream->id, queued.entry->number)) {
      case BlockLedger::Fate::kStays:
        break;
      case BlockLedger::Fate::kUnwanted:
        Abandon(queued.entry, later);
        break;
      case BlockLedger::Fate::kGone:
        Forget(queued.entry->number, later);
        break;
    }
    later->forgotten.push_back(queued.entry);
  }
  stream->queue.clear();
  Notify(stream, later);
  AdvanceWaiting(later);
}

void LoaderCore::Notify(Stream* stream, Later* later) {
  if (!stream->ready_is_owed) return;
  stream->ready_is_owed = false;
  if (stream->ready) later->calls.push_back(stream->ready);
}

LoaderCore::Stream* LoaderCore::Find(uint64_t stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second.get();
}

std::unique_ptr<Block> LoaderCore::MakeHold(const Stream& stream,
                                            const Queued& queued) {
  const std::shared_ptr<Entry>& entry = queued.entry;
  Block::Content content;
  content.id = entry->id;
  content.bytes = entry->memory;
  content.checksum = entry->checksum;
  if (queued.lendable && entry->offset.has_value()) {
    content.place = ArenaPlace{*entry->offset, entry->generation};
  }
  return std::make_unique<Block>(
      content,
      [core = shared_from_this(), id = stream.id, number = entry->number] {
        core->Lend(id, number);
      },
      [core = shared_from_this(), id = stream.id, entry = entry] {
        core->Release(id, entry->number);
      });
}

void LoaderCore::Abandon(const std::shared_ptr<Entry>& entry, Later* later) {
  // Before it has a build, the errand that is to make one finds out by itself.
  if (entry->build == nullptr) return;
  if (workers_->RemoveIfUntouched(entry->build.get())) {
    later->builds.push_back(std::move(entry->build));
    OnBuilt(entry.get(), false, later);
  } else if (draining_) {
    entry->build->Cancel();
  }
}

void LoaderCore::OnBuilt(Entry* entry, bool ok, Later* later) {
  ++(ok ? blocks_built_ : blocks_failed_);
  if (ledger_.OnBuilt(entry->number, ok) == BlockLedger::Fate::kGone) {
    Forget(entry->number, later);
  }
}

void LoaderCore::Forget(uint64_t block, Later* later) {
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return;
  const std::shared_ptr<Entry>& entry = found->second;
  // Before anything else is written there.
  if (entry->offset.has_value()) SetStamp(arena_->stamp(*entry->offset), 0);
  later->forgotten.push_back(entry);
  blocks_.erase(found);
}

void LoaderCore::Lend(uint64_t stream_id, uint64_t block) {
  Later later;
  MutexLock lock(&mutex_);
  ledger_.Lend(stream_id, block);
  Stream* stream = Find(stream_id);
  if (stream != nullptr && stream->waits_for_memory) Advance(stream, &later);
}

void LoaderCore::Release(uint64_t stream, uint64_t block) {
  Later later;
  MutexLock lock(&mutex_);
  if (ledger_.Release(stream, block) == BlockLedger::Fate::kGone) {
    Forget(block, &later);
  }
  AdvanceWaiting(&later);
}

}  // namespace ballast
