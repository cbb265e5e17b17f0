#include "server/schedule/placement_figures.h"

#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

namespace ballast {

namespace {

constexpr uint32_t kAbsent = std::numeric_limits<uint32_t>::max();

}  // namespace

LightRanks::LightRanks(uint32_t ranks) : at_(ranks, kAbsent) {
  heap_.reserve(ranks);
}

void LightRanks::Set(uint32_t rank, int64_t load) {
  if (at_[rank] == kAbsent) {
    at_[rank] = heap_.size();
    heap_.emplace_back();
  }
  Place(at_[rank], {load, rank});
}

void LightRanks::Remove(uint32_t rank) {
  const uint32_t hole = std::exchange(at_[rank], kAbsent);
  if (hole == kAbsent) return;
  const Entry last = heap_.back();
  heap_.pop_back();
  if (hole < heap_.size()) Place(hole, last);
}

LightRanks::List LightRanks::Lightest(size_t most) const {
  List list;
  // Candidates for the next entry: the top, then the children of listed
  // entries.
  std::array<uint32_t, kMaxListed + 1> next;
  next[0] = 0;
  size_t open = heap_.empty() ? 0 : 1;
  while (list.count < most && open > 0) {
    size_t first = 0;
    for (size_t i = 1; i < open; ++i) {
      if (heap_[next[i]] < heap_[next[first]]) first = i;
    }
    const uint32_t found = next[first];
    list.ranks[list.count++] = heap_[found].second;
    next[first] = next[--open];
    for (const uint32_t child : {2 * found + 1, 2 * found + 2}) {
      if (child < heap_.size()) next[open++] = child;
    }
  }
  return list;
}

void LightRanks::Place(uint32_t at, const Entry& entry) {
  while (at > 0 && entry < heap_[(at - 1) / 2]) {
    Write(at, heap_[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  for (uint32_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
    if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
    if (!(heap_[child] < entry)) break;
    Write(at, heap_[child]);
    at = child;
  }
  Write(at, entry);
}

namespace {

double Largest(const google::protobuf::RepeatedField<double>& loads) {
  return loads.empty() ? 0 : *std::max_element(loads.begin(), loads.end());
}

double Mean(const google::protobuf::RepeatedField<double>& loads) {
  if (loads.empty()) return 0;
  return std::accumulate(loads.begin(), loads.end(), 0.0) / loads.size();
}

// The largest load of a process that has rank r of every module; modules of
// different sizes share no process, so the heaviest ranks meet.
double Together(const v1::MicroBatchSchedule& micro_batch) {
  double heaviest = 0;
  std::vector<double> sums;
  bool same_size = true;
  for (const v1::ModuleSchedule& module : micro_batch.modules()) {
    const auto& loads = module.load_after();
    heaviest += Largest(loads);
    if (sums.empty()) sums.resize(loads.size(), 0);
    if (sums.size() != static_cast<size_t>(loads.size())) {
      same_size = false;
      continue;
    }
    for (size_t r = 0; r < sums.size(); ++r) sums[r] += loads.Get(r);
  }
  if (!same_size || sums.empty()) return heaviest;
  return *std::max_element(sums.begin(), sums.end());
}

}  // namespace

double PlacementFigures::spread(v1::Module module) const {
  const auto found = loads.find(module);
  if (found == loads.end() || !(found->second.mean > 0)) return 0;
  return found->second.largest / found->second.mean;
}

void AddStep(const v1::StepSchedule& schedule, uint32_t patches_a_token,
             PlacementFigures* figures) {
  ++figures->steps;
  figures->image_tokens += schedule.totals().patches() / patches_a_token;
  const v1::EmbeddingsMoved& moved = schedule.totals().embeddings_moved();
  figures->tokens_within_servers += moved.tokens_within_servers();
  figures->tokens_between_servers += moved.tokens_between_servers();
  for (const v1::MicroBatchSchedule& micro_batch : schedule.micro_batches()) {
    ++figures->micro_batches;
    for (const v1::ModuleSchedule& module : micro_batch.modules()) {
      const double largest = Largest(module.load_after());
      const double mean = Mean(module.load_after());
      PlacementFigures::Loads& loads = figures->loads[module.module()];
      loads.largest += largest;
      loads.mean += mean;
      figures->mean_time += mean;
      figures->time_by_module += largest;
    }
    figures->time_together += Together(micro_batch);
  }
}

DeviceShare::DeviceShare(const v1::Config& config) {
  if (config.model().has_device_share()) {
    share_ = config.model().device_share();
  }
  for (const v1::Source& source : config.sources()) {
    sources_.push_back(XXH3_64bits(source.name().data(), source.name().size()));
  }
}

bool DeviceShare::Has(uint32_t source, uint64_t ordinal, uint32_t crop) const {
  const uint64_t place[2] = {ordinal, crop};
  const uint64_t hash =
      XXH3_64bits_withSeed(place, sizeof(place), sources_[source]);
  // 53 bits, which a double holds exactly: for a share of 0 no image is below
  // it, for a share of 1 every image is.
  return static_cast<double>(hash >> 11) < share_ * 0x1p53;
}

void DeviceShare::Limit(uint32_t source, uint64_t ordinal,
                        std::vector<uint32_t>* encoded_bytes) const {
  if (share_ == 1) return;
  for (size_t i = 0; i < encoded_bytes->size(); ++i) {
    uint32_t& bytes = (*encoded_bytes)[i];
    if (bytes != 0 && !Has(source, ordinal, static_cast<uint32_t>(i))) {
      bytes = 0;
    }
  }
  const bool none =
      std::all_of(encoded_bytes->begin(), encoded_bytes->end(),
                  [](const uint32_t bytes) { return bytes == 0; });
  if (none) encoded_bytes->clear();
}

}  // namespace ballast
