// Which of LoaderCore's streams wait, for memory or for vision, and when they
// go on.
#include <algorithm>
#include <utility>

#include "server/delivery/loader_core.h"
#include "server/delivery/vision_first.h"

namespace ballast {

void LoaderCore::AdvanceWaiting(Later* later) {
  // Looked at once for all of them: this comes with every block that is built.
  std::optional<MissingOfRanks> missing;
  for (const auto& [id, stream] : streams_) {
    if (stream->waits_for_vision) {
      if (!missing.has_value()) missing = MissingOfVision();
      if (AwaitsAny(*stream, *missing)) continue;
    } else if (!stream->waits_for_memory) {
      continue;
    }
    Advance(stream.get(), later);
  }
}

bool LoaderCore::WaitsForVision(const Stream& stream) const {
  return settings_.vision_first &&
         stream.role.module() == v1::MODULE_LANGUAGE &&
         AwaitsAny(stream, MissingOfVision());
}

bool LoaderCore::AwaitsAny(const Stream& stream,
                           const MissingOfRanks& missing) {
  const std::optional<BlockId> block = stream.progress.to_begin();
  return block.has_value() &&
         std::any_of(missing.begin(), missing.end(), [&](const auto& of_rank) {
           return AwaitsVision(*block, of_rank.second);
         });
}

LoaderCore::MissingOfRanks LoaderCore::MissingOfVision() const {
  MissingOfRanks missing;
  for (const auto& [id, stream] : streams_) {
    if (stream->role.module() != v1::MODULE_VISION) continue;
    const std::optional<BlockId> lacks = MissingOf(*stream);
    if (!lacks.has_value()) continue;
    BlockId& of_rank = missing[stream->role.dp_rank()];
    of_rank = std::max(of_rank, *lacks);
  }
  return missing;
}

std::optional<BlockId> LoaderCore::MissingOf(const Stream& stream) {
  for (const Queued& queued : stream.queue) {
    if (!queued.entry->done) return queued.entry->id;
  }
  return stream.stands_still ? std::nullopt : stream.progress.to_begin();
}

void LoaderCore::LookForStillVision() {
  Later later;
  MutexLock lock(&mutex_);
  for (const auto& [id, stream] : streams_) {
    const bool in_work =
        std::any_of(stream->queue.begin(), stream->queue.end(),
                    [](const Queued& queued) { return !queued.entry->done; });
    stream->stands_still = !std::exchange(stream->has_moved, false) && !in_work;
  }
  AdvanceWaiting(&later);
}

}  // namespace ballast
