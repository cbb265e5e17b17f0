#include "server/delivery/loader_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// Streams that a rank may have open: one that feeds it, those of attempts whose
// end the server has not noticed yet, and a tool's.
constexpr uint64_t kStreamsPerRank = 4;
constexpr uint64_t kLeastStreams = 64;

// Schedules kept beyond those that prefetching spans.
constexpr size_t kSpareSchedules = 4;

absl::Status Drained() {
  return absl::UnavailableError(
      "the server drains; another server of the job can go on");
}

absl::Status Closed() { return absl::CancelledError("the stream is closed"); }

}  // namespace

LoaderCore::Later::~Later() {
  for (const std::function<void()>& call : calls) call();
  for (const std::shared_ptr<Entry>& entry : dropped) {
    if (entry->build == nullptr) continue;
    entry->build->Cancel();
    workers->RemoveRun(entry->build.get());
  }
}

LoaderCore::LoaderCore(const Settings& settings, const Scheduler* scheduler,
                       std::unique_ptr<SampleBuilder> builder,
                       std::unique_ptr<WorkerPool> workers)
    : settings_(settings),
      max_streams_(std::max(kLeastStreams, kStreamsPerRank * settings.ranks)),
      builder_(std::move(builder)),
      pool_(std::make_shared<BlockPool>(settings.memory)),
      schedules_(scheduler, settings.prefetch_steps + kSpareSchedules),
      workers_(std::move(workers)),
      budget_(settings.memory, settings.ranks) {}

absl::StatusOr<uint64_t> LoaderCore::Open(const v1::Role& role,
                                          const BlockId& first, uint64_t steps,
                                          std::function<void()> ready) {
  Later later(workers_.get());
  MutexLock lock(&mutex_);
  if (draining_) return Drained();
  if (streams_.size() >= max_streams_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(streams_.size(),
                     " streams are open, which is the most; "
                     "do clients reconnect without closing theirs?"));
  }
  const uint64_t id = next_stream_++;
  auto stream = std::make_unique<Stream>(id, role, BlockRange{first, steps},
                                         settings_.prefetch_steps, &budget_,
                                         std::move(ready));
  Advance(stream.get(), &later);
  streams_[id] = std::move(stream);
  return id;
}

std::optional<LoaderCore::BlockOr> LoaderCore::TryNext(uint64_t stream_id) {
  Later later(workers_.get());
  MutexLock lock(&mutex_);
  Stream* stream = Find(stream_id);
  if (stream == nullptr) return Closed();
  if (!stream->end.ok()) return stream->end;
  if (stream->progress.AllTaken()) {
    End(stream, absl::OutOfRangeError("all steps that were asked for are done"),
        &later);
    return stream->end;
  }
  if (stream->entries.empty() || !stream->entries.front()->result) {
    stream->ready_is_owed = true;
    return std::nullopt;
  }
  const std::shared_ptr<Entry> next = stream->entries.front();
  if (!next->result->ok()) {
    End(stream, next->result->status(), &later);
    return stream->end;
  }
  stream->entries.pop_front();
  stream->progress.OnTaken();
  Advance(stream, &later);
  return std::move(next->result);
}

absl::Status LoaderCore::StatusOf(uint64_t stream_id) const {
  MutexLock lock(&mutex_);
  const Stream* stream = Find(stream_id);
  return stream == nullptr ? Closed() : stream->end;
}

void LoaderCore::Close(uint64_t stream_id) {
  Later later(workers_.get());
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

void LoaderCore::Drain() {
  Later later(workers_.get());
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
  return budget_.total();
}

uint64_t LoaderCore::open_streams() const {
  MutexLock lock(&mutex_);
  return streams_.size();
}

void LoaderCore::Advance(Stream* stream, Later* later) {
  while (true) {
    const StreamProgress::Decision next = stream->progress.Next();
    switch (next.action) {
      case StreamProgress::Action::kNothing:
        return;
      case StreamProgress::Action::kPlan:
        later->calls.push_back([this, id = stream->progress.id(),
                                role = stream->role, block = next.block] {
          workers_->AddErrand(
              [this, id, role, block] { Plan(id, role, block); });
        });
        break;
      case StreamProgress::Action::kBuild: {
        auto entry = std::make_shared<Entry>();
        entry->id = next.block;
        entry->stream = stream->progress.id();
        stream->entries.push_back(entry);
        auto planned =
            std::make_shared<PlannedBlock>(*std::move(stream->planned));
        stream->planned.reset();
        later->calls.push_back(
            [this, entry, planned, distance = next.distance] {
              workers_->AddErrand([this, entry, planned, distance] {
                Build(entry, std::move(*planned), distance);
              });
            });
        break;
      }
    }
  }
}

void LoaderCore::End(Stream* stream, absl::Status end, Later* later) {
  stream->end = std::move(end);
  stream->progress.Stop();
  stream->planned.reset();
  later->dropped.insert(later->dropped.end(), stream->entries.begin(),
                        stream->entries.end());
  stream->entries.clear();
  Notify(stream, later);
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

void LoaderCore::Plan(uint64_t stream_id, const v1::Role& role,
                      const BlockId& block) {
  absl::StatusOr<PlannedBlock> planned = [&]() -> absl::StatusOr<PlannedBlock> {
    BALLAST_ASSIGN_OR_RETURN(
        const std::shared_ptr<const v1::StepSchedule> schedule,
        schedules_.Get(block.step));
    return PlanForBuilding(*schedule, block.micro_batch, role,
                           settings_.delivery, settings_.geometry);
  }();

  Later later(workers_.get());
  MutexLock lock(&mutex_);
  Stream* stream = Find(stream_id);
  if (stream == nullptr || !stream->end.ok()) return;
  if (planned.ok()) {
    stream->progress.OnPlanned(BlockPool::Capacity(planned->plan.bytes()),
                               planned->plan.header.micro_batches);
    stream->planned = *std::move(planned);
    Advance(stream, &later);
    return;
  }
  stream->progress.Stop();
  auto entry = std::make_shared<Entry>();
  entry->id = block;
  entry->stream = stream_id;
  // OUT_OF_RANGE is the end of a stream; a step that does not exist is not.
  entry->result = absl::IsOutOfRange(planned.status())
                      ? absl::InvalidArgumentError(planned.status().message())
                      : planned.status();
  stream->entries.push_back(std::move(entry));
  if (stream->entries.size() == 1) Notify(stream, &later);
}

void LoaderCore::Build(std::shared_ptr<Entry> entry, PlannedBlock planned,
                       uint64_t distance) {
  const uint64_t bytes = planned.plan.bytes();
  auto release = [core = shared_from_this(), stream = entry->stream,
                  capacity = BlockPool::Capacity(bytes)] {
    core->Release(stream, capacity);
  };
  absl::StatusOr<AlignedBuffer> buffer = pool_->Take(bytes);
  if (!buffer.ok()) {
    release();
    OnFinished(entry, buffer.status());
    return;
  }
  auto build = std::make_shared<BlockBuild>(
      std::move(planned), builder_.get(),
      std::make_unique<Block>(entry->id, pool_, *std::move(buffer), bytes,
                              std::move(release)),
      [this, weak = std::weak_ptr<Entry>(entry)](BlockOr result) {
        OnFinished(weak, std::move(result));
      });
  if (!build->Start()) return;

  // A build that is not wanted any more is freed after the lock.
  MutexLock lock(&mutex_);
  const Stream* stream = Find(entry->stream);
  if (stream == nullptr || !stream->end.ok()) return;
  entry->build = build;
  // Under the lock, so that End either prevents this or finds the run.
  workers_->AddRun(distance, std::move(build));
}

void LoaderCore::OnFinished(const std::weak_ptr<Entry>& weak, BlockOr result) {
  const std::shared_ptr<Entry> entry = weak.lock();
  if (entry == nullptr) return;
  Later later(workers_.get());
  MutexLock lock(&mutex_);
  Stream* stream = Find(entry->stream);
  if (stream == nullptr || !stream->end.ok()) return;
  if (!result.ok()) stream->progress.Stop();
  entry->build.reset();
  entry->result = std::move(result);
  if (stream->entries.front() == entry) Notify(stream, &later);
}

void LoaderCore::Release(uint64_t stream_id, uint64_t bytes) {
  Later later(workers_.get());
  MutexLock lock(&mutex_);
  budget_.Release(stream_id, bytes);
  for (const auto& [id, stream] : streams_) {
    if (stream->progress.WaitsForMemory()) Advance(stream.get(), &later);
  }
}

}  // namespace ballast
