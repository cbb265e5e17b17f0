// Streams of a Loader: the blocks that each begins, hands out and releases.
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"
#include "server/delivery/loader.h"

namespace ballast {
namespace {

absl::Status Closed() { return absl::CancelledError("the stream is closed"); }

// "vision rank 3", "valid vision rank 3"
std::string Describe(const v1::Role& role) {
  return absl::StrCat(SplitWord(role.split()), ModuleName(role.module()),
                      " rank ", role.dp_rank());
}

RoleKey KeyOf(const v1::Role& role) {
  return {role.split(), role.module(), role.dp_rank()};
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
    RoleStreams& of_role = roles[KeyOf(stream->role)];
    ++of_role.open;
    if (stream->ready_is_owed) continue;
    if (of_role.idlest == nullptr ||
        stream->last_taken < of_role.idlest->last_taken) {
      of_role.idlest = stream.get();
    }
  }
  const uint64_t own = roles[KeyOf(role)].open;
  const RoleStreams* gives_way = nullptr;
  if (own >= max_streams_of_role_) {
    gives_way = &roles[KeyOf(role)];
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
  if (told_of_.insert(KeyOf(stream->role)).second) {
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
    End(stream, absl::OutOfRangeError("all steps that were asked for are done"),
        &deferred);
    return stream->end;
  }
  if (!HasNews(*stream)) {
    stream->ready_is_owed = true;
    return std::nullopt;
  }
  const absl::Status status = stream->queue.empty()
                                  ? stream->plan_error
                                  : stream->queue.front().block->status;
  if (!status.ok()) {
    End(stream, status, &deferred);
    return stream->end;
  }
  std::unique_ptr<Block> block = MakeHold(*stream, stream->queue.front());
  stream->queue.pop_front();
  stream->progress.OnTaken();
  stream->last_taken = ++taken_;
  GateOf(*stream).OnTaken(*stream);
  NoteStep(stream->role.split(), block->id().step, &deferred);
  Advance(stream, &deferred);
  return block;
}

absl::Status Loader::StatusOf(uint64_t stream_id) const {
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
  GateOf(*stream).Remove(*stream);
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
        deferred->calls.push_back([this, id = stream->id, role = stream->role,
                                   block = next.block] {
          workers_->AddTask([this, id, role, block] { Plan(id, role, block); });
        });
        break;
      case StreamProgress::Action::kBegin:
        if (!GateOf(*stream).MayBegin(*stream)) {
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

void Loader::AdvanceWaiting(Deferred* deferred) {
  // Computed once for all streams, since this runs after every block that is
  // built.
  std::array<std::optional<EncoderGate::Ranks>, v1::Split_ARRAYSIZE>
      ranks_of_split;
  for (const auto& [id, stream] : streams_) {
    if (stream->waits_for_encoders) {
      const EncoderGate& gate = GateOf(*stream);
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
  std::vector<uint64_t> gone;
  const std::optional<BlockLedger::Grant> grant = ledger_.Acquire(
      stream->id,
      {stream->role.module(), stream->role.dp_rank(), next.block,
       AsksDirect(stream->role), stream->role.split()},
      next.bytes, &gone);
  for (const uint64_t block : gone) Forget(block, deferred);
  if (!grant.has_value()) return false;
  stream->progress.OnBegun();
  GateOf(*stream).OnBegun(*stream, grant->is_new);
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
  stream->queue.push_back({block, grant->lendable});
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
                              : stream.queue.front().block->done;
}

void Loader::End(LoaderStream* stream, absl::Status end, Deferred* deferred) {
  stream->end = std::move(end);
  stream->progress.Stop();
  stream->planned.reset();
  stream->waits_for_memory = false;
  stream->waits_for_encoders = false;
  for (const QueuedBlock& queued : stream->queue) {
    switch (ledger_.Release(stream->id, queued.block->number)) {
      case BlockLedger::Fate::kStays:
        break;
      case BlockLedger::Fate::kUnwanted:
        Abandon(queued.block, deferred);
        break;
      case BlockLedger::Fate::kGone:
        Forget(queued.block->number, deferred);
        break;
    }
    deferred->forgotten.push_back(queued.block);
  }
  stream->queue.clear();
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

std::unique_ptr<Block> Loader::MakeHold(const LoaderStream& stream,
                                        const QueuedBlock& queued) {
  const std::shared_ptr<LoaderBlock>& block = queued.block;
  Block::Content content;
  content.id = block->id;
  content.bytes = block->memory;
  content.checksum = [core = shared_from_this(), id = stream.id,
                      block = block] {
    return core->ChecksumOf(id, block.get());
  };
  if (queued.lendable && block->offset.has_value()) {
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
  // Without a build yet, the task that is to create it finds out by itself.
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

uint64_t Loader::ChecksumOf(uint64_t stream_id, LoaderBlock* block) {
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
