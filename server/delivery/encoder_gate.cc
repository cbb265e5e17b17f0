#include "server/delivery/encoder_gate.h"

#include "proto/schedule/module.h"
#include "server/config/topology.h"

namespace ballast {

bool ChecksImages(const v1::Config& config) {
  if (config.serve().on_bad_sample() == v1::Serve::ON_BAD_SAMPLE_ERROR) {
    return false;
  }
  for (const v1::Module module : Modules(config)) {
    if (IsEncoder(module)) return true;
  }
  return false;
}

void EncoderGate::OnBegun(const LoaderStream& stream, bool is_new) {
  streams_.at(stream.id).begun_then = begun_;
  const v1::Module module = stream.role.module();
  begun_[module] += is_new && IsEncoder(module);
}

void EncoderGate::OnTaken(const LoaderStream& stream) {
  streams_.at(stream.id).looks_still = 0;
}

void EncoderGate::Look() {
  for (auto& [id, watched] : streams_) {
    const bool builds = watched.stream->FirstUnbuilt().has_value();
    watched.looks_still = builds ? 0 : watched.looks_still + 1;
  }
}

bool EncoderGate::MayBegin(const LoaderStream& stream) const {
  if (!enabled_ || !IsLanguage(stream.role.module())) return true;
  return MayBegin(stream, GetRanks());
}

bool EncoderGate::MayBegin(const LoaderStream& stream,
                           const Ranks& encoders) const {
  if (!enabled_ || !IsLanguage(stream.role.module())) return true;
  const BegunBlocks& then = streams_.at(stream.id).begun_then;
  for (const auto& [module, ranks] : encoders) {
    const uint64_t begun = begun_[module] - then[module];
    for (const auto& [rank, progress] : ranks) {
      if (MustWait(stream.progress.to_begin(), progress, begun / ranks.size(),
                   prefetch_steps_)) {
        return false;
      }
    }
  }
  return true;
}

EncoderGate::Ranks EncoderGate::GetRanks() const {
  Ranks encoders;
  for (const auto& [id, watched] : streams_) {
    const LoaderStream& stream = *watched.stream;
    if (!IsEncoder(stream.role.module()) || !stream.end.ok()) continue;
    Progress progress;
    progress.to_begin = stream.progress.to_begin();
    progress.goes_on = stream.progress.goes_on();
    progress.looks_still = watched.looks_still;
    progress.first_unbuilt = stream.FirstUnbuilt().value_or(progress.to_begin);
    const auto [known, is_new] = encoders[stream.role.module()].try_emplace(
        stream.role.dp_rank(), progress);
    if (!is_new && known->second.to_begin < progress.to_begin) {
      known->second = progress;
    }
  }
  return encoders;
}

bool EncoderGate::MustWait(const BlockId& block, const Progress& encoder,
                           uint64_t encoder_begun, uint32_t prefetch_steps) {
  if (block < encoder.first_unbuilt) return false;
  // A block that is being built always ends, built or failed.
  if (block < encoder.to_begin) return true;
  if (!encoder.goes_on || encoder_begun >= kEncoderBlocksPerBlock) return false;
  if (encoder.looks_still >= kStalledLooks) return false;
  if (encoder.looks_still < kPausedLooks) return true;
  return block.step - encoder.to_begin.step > prefetch_steps;
}

}  // namespace ballast
