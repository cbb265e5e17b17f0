#include "server/delivery/media_checks.h"

#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "server/config/topology.h"
#include "server/delivery/delivery_instruments.h"
#include "server/delivery/encoder_gate.h"

namespace ballast {

void ImageCheckCache::Put(v1::Split split, uint64_t position,
                          SampleCheck check) {
  Shard& shard = shards_[split][position % kShards];
  MutexLock lock(&shard.mutex);
  const auto [known, added] =
      shard.checks.insert_or_assign(position, std::move(check));
  if (!added) return;
  shard.positions.push_back(position);
  if (shard.positions.size() <= kMaxCount / kShards) return;
  shard.checks.erase(shard.positions.front());
  shard.positions.pop_front();
}

std::optional<SampleCheck> ImageCheckCache::Get(v1::Split split,
                                                uint64_t position) const {
  const Shard& shard = shards_[split][position % kShards];
  MutexLock lock(&shard.mutex);
  const auto found = shard.checks.find(position);
  if (found == shard.checks.end()) return std::nullopt;
  return found->second;
}

MediaChecks::MediaChecks(const v1::Config* config, const SampleReader* reader)
    : reader_(reader) {
  if (!ChecksImages(*config)) return;
  for (const v1::Module module : Modules(*config)) {
    for (Kind& kind : kinds_) kind.is_checked |= GetMedia(module) == kind.media;
  }
}

void MediaChecks::Put(const SampleRequest& request, Media media,
                      std::optional<DataFault> fault) {
  for (Kind& kind : kinds_) {
    if (kind.media != media) continue;
    kind.known.Put(request.split, request.record.position, {std::move(fault)});
    return;
  }
}

absl::StatusOr<std::optional<DataFault>> MediaChecks::Check(
    const SampleRequest& request, Media built, SampleWork* work) {
  for (Kind& kind : kinds_) {
    const bool has_some = kind.media == Media::kImages
                              ? !request.grids.empty()
                              : !request.clip_rows.empty();
    if (!kind.is_checked || kind.media == built || !has_some) continue;
    BALLAST_ASSIGN_OR_RETURN(std::optional<DataFault> fault,
                             Read(request, &kind, work));
    if (fault.has_value()) return fault;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<DataFault>> MediaChecks::Read(
    const SampleRequest& request, Kind* kind, SampleWork* work) {
  if (const auto known =
          kind->known.Get(request.split, request.record.position)) {
    return known->fault;
  }
  BuildInstruments* const instruments = reader_->instruments();
  std::vector<uint8_t> dropped;
  const auto place = [&](size_t i) {
    if (kind->media != Media::kImages || request.EncodedBytes(i) != 0) {
      return absl::Span<uint8_t>();
    }
    dropped.resize(size_t{3} * request.grids[i].height *
                   request.grids[i].width);
    return absl::MakeSpan(dropped);
  };
  BALLAST_ASSIGN_OR_RETURN(
      const FaultOr<uint32_t> decoded,
      reader_->ReadMedia(request, kind->media, place,
                         instruments ? &instruments->check : nullptr, work));
  std::optional<DataFault> fault;
  if (!decoded.ok()) fault = decoded.fault();
  Put(request, kind->media, fault);
  return fault;
}

}  // namespace ballast
