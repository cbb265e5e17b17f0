#include "server/delivery/vision_gate.h"

#include <string>

#include "proto/schedule/module.h"

namespace ballast {

bool ChecksImages(const v1::Config& config) {
  const std::string vision(ModuleName(v1::MODULE_VISION));
  return config.serve().on_bad_sample() != v1::Serve::ON_BAD_SAMPLE_ERROR &&
         config.topology().modules().count(vision) != 0;
}

void VisionGate::OnBegun(const LoaderStream& stream, bool is_new) {
  streams_.at(stream.id).vision_begun_then = vision_begun_;
  vision_begun_ += is_new && stream.role.module() == v1::MODULE_VISION;
}

void VisionGate::OnTaken(const LoaderStream& stream) {
  streams_.at(stream.id).looks_still = 0;
}

void VisionGate::Look() {
  for (auto& [id, watched] : streams_) {
    const bool builds = watched.stream->FirstUnbuilt().has_value();
    watched.looks_still = builds ? 0 : watched.looks_still + 1;
  }
}

bool VisionGate::MayBegin(const LoaderStream& stream) const {
  if (!enabled_ || stream.role.module() != v1::MODULE_LANGUAGE) return true;
  return MayBegin(stream, Ranks());
}

bool VisionGate::MayBegin(const LoaderStream& stream,
                          const VisionRanks& ranks) const {
  if (!enabled_ || stream.role.module() != v1::MODULE_LANGUAGE) return true;
  const uint64_t begun =
      vision_begun_ - streams_.at(stream.id).vision_begun_then;
  for (const auto& [rank, vision] : ranks) {
    if (MustWait(stream.progress.to_begin(), vision, begun / ranks.size(),
                 prefetch_steps_)) {
      return false;
    }
  }
  return true;
}

VisionGate::VisionRanks VisionGate::Ranks() const {
  VisionRanks ranks;
  for (const auto& [id, watched] : streams_) {
    const LoaderStream& stream = *watched.stream;
    if (stream.role.module() != v1::MODULE_VISION || !stream.end.ok()) continue;
    VisionProgress vision;
    vision.to_begin = stream.progress.to_begin();
    vision.goes_on = stream.progress.goes_on();
    vision.looks_still = watched.looks_still;
    vision.first_unbuilt = stream.FirstUnbuilt().value_or(vision.to_begin);
    const auto [known, is_new] =
        ranks.try_emplace(stream.role.dp_rank(), vision);
    if (!is_new && known->second.to_begin < vision.to_begin) {
      known->second = vision;
    }
  }
  return ranks;
}

bool VisionGate::MustWait(const BlockId& block, const VisionProgress& vision,
                          uint64_t vision_begun, uint32_t prefetch_steps) {
  if (block < vision.first_unbuilt) return false;
  // A block that is being built ends by itself, built or failed.
  if (block < vision.to_begin) return true;
  if (!vision.goes_on || vision_begun >= kVisionBlocksPerBlock) return false;
  if (vision.looks_still >= kStalledLooks) return false;
  if (vision.looks_still < kPausedLooks) return true;
  return block.step - vision.to_begin.step > prefetch_steps;
}

}  // namespace ballast
