// Which of LoaderCore's streams wait, for memory or for vision, and when they
// go on.
#include <optional>

#include "server/delivery/loader_core.h"

namespace ballast {

void LoaderCore::AdvanceWaiting(Later* later) {
  // Looked at once for all of them: this comes with every block that is built.
  std::optional<VisionLanes> lanes;
  for (const auto& [id, stream] : streams_) {
    if (stream->waits_for_vision) {
      if (!lanes.has_value()) lanes = LanesOfVision();
      if (AwaitsAny(*stream, *lanes)) continue;
    } else if (!stream->waits_for_memory) {
      continue;
    }
    Advance(stream.get(), later);
  }
}

bool LoaderCore::WaitsForVision(const Stream& stream) const {
  if (!settings_.vision_first) return false;
  if (stream.role.module() != v1::MODULE_LANGUAGE) return false;
  return AwaitsAny(stream, LanesOfVision());
}

bool LoaderCore::AwaitsAny(const Stream& stream,
                           const VisionLanes& lanes) const {
  const uint64_t begun = vision_begun_ - stream.vision_begun_then;
  for (const auto& [rank, lane] : lanes) {
    if (AwaitsVision(stream.progress.to_begin(), lane, begun / lanes.size(),
                     settings_.prefetch_steps)) {
      return true;
    }
  }
  return false;
}

LoaderCore::VisionLanes LoaderCore::LanesOfVision() const {
  VisionLanes lanes;
  for (const auto& [id, stream] : streams_) {
    if (stream->role.module() != v1::MODULE_VISION || !stream->end.ok()) {
      continue;
    }
    VisionLane lane;
    lane.to_begin = stream->progress.to_begin();
    lane.goes_on = stream->progress.goes_on();
    lane.looks_still = stream->looks_still;
    const auto missing = FirstInWork(*stream);
    lane.missing = missing.has_value() ? *missing : lane.to_begin;
    const auto [known, is_new] =
        lanes.try_emplace(stream->role.dp_rank(), lane);
    if (!is_new && known->second.to_begin < lane.to_begin) known->second = lane;
  }
  return lanes;
}

std::optional<BlockId> LoaderCore::FirstInWork(const Stream& stream) {
  for (const Queued& queued : stream.queue) {
    if (!queued.entry->done) return queued.entry->id;
  }
  return std::nullopt;
}

void LoaderCore::LookForStillVision() {
  Later later;
  MutexLock lock(&mutex_);
  for (const auto& [id, stream] : streams_) {
    stream->looks_still =
        FirstInWork(*stream).has_value() ? 0 : stream->looks_still + 1;
  }
  AdvanceWaiting(&later);
}

}  // namespace ballast
