#include "server/schedule/token_steps.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"
#include "common/status_macros.h"

namespace ballast {

uint64_t StepFiller::Add(uint32_t length) {
  const uint64_t before = taken_++;
  if (fill_.tokens == 0) {
    const uint64_t padded = AlignUp(length, fill_.align);
    if (packs_ > 0 && tokens_ + padded <= fill_.pack_tokens) {
      tokens_ += padded;
      return 0;
    }
    tokens_ = padded;
    if (++packs_ <= fill_.packs) return 0;
    packs_ = 1;
    return before;
  }
  unit_tokens_ += length;
  if (taken_ % fill_.unit != 0) return 0;
  const uint64_t unit_tokens = std::exchange(unit_tokens_, 0);
  if (taken_ == fill_.unit || tokens_ + unit_tokens <= fill_.tokens) {
    tokens_ += unit_tokens;
    return 0;
  }
  tokens_ = unit_tokens;
  return taken_ - fill_.unit;
}

TokenSteps::TokenSteps(const StepFill& fill, GetLengths get_lengths,
                       uint64_t end, std::vector<uint64_t> known)
    : fill_(fill),
      get_lengths_(std::move(get_lengths)),
      end_(end),
      starts_(std::move(known)) {
  if (starts_.empty()) starts_.push_back(0);
}

absl::Status TokenSteps::Extend(uint64_t count, uint64_t position) const {
  // Lengths that are read at once: few for a short order, else enough for all
  // cores.
  constexpr uint64_t kFirstChunk = uint64_t{1} << 14;
  constexpr uint64_t kMaxChunk = uint64_t{1} << 20;
  constexpr uint64_t kMaxSamplesOfAStep = uint64_t{1} << 24;
  MutexLock finding(&finding_);
  uint64_t origin = 0;
  uint64_t steps = 0;  // begun
  {
    MutexLock lock(&mutex_);
    origin = starts_.back();
    steps = starts_.size();
    if (Knows(count, position)) return absl::OkStatus();
  }
  uint64_t chunk = kFirstChunk;
  // Of a step nothing remains in the next.
  StepFiller filler(fill_);
  uint64_t last = origin;
  uint64_t at = origin;
  std::vector<uint32_t> lengths;
  std::vector<uint64_t> found;
  while (steps <= count && last <= position) {
    if (last >= end_) {
      return absl::OutOfRangeError(absl::StrCat(
          "step ", count, " of the data begins after position ", end_,
          "; so far steps of so many tokens or packs are counted"));
    }
    if (at - last >= 2 * kMaxSamplesOfAStep) {
      return absl::FailedPreconditionError(absl::StrCat(
          "step ", steps - 1, " of the data takes more than ",
          kMaxSamplesOfAStep,
          " samples; wanted a smaller batch.tokens or batch.packs"));
    }
    lengths.resize(chunk);
    BALLAST_RETURN_IF_ERROR(get_lengths_(at, absl::MakeSpan(lengths)));
    found.clear();
    for (const uint32_t length : lengths) {
      const uint64_t begun = filler.Add(length);
      if (begun != 0) found.push_back(origin + begun);
    }
    if (!found.empty()) last = found.back();
    steps += found.size();
    {
      MutexLock lock(&mutex_);
      starts_.insert(starts_.end(), found.begin(), found.end());
    }
    at += chunk;
    chunk = std::min(2 * chunk, kMaxChunk);
  }
  SaveIfMany();
  return absl::OkStatus();
}

void TokenSteps::SaveIfMany() const {
  if (save_ == nullptr) return;
  const std::vector<uint64_t> starts = known();
  // All writes together are a small multiple of the last one.
  if (starts.size() <= saved_ + saved_ / 8) return;
  save_(starts);
  saved_ = starts.size();
}

void TokenSteps::SaveFound(Save save, uint64_t saved) const {
  MutexLock lock(&finding_);
  save_ = std::move(save);
  const std::vector<uint64_t> starts = known();
  if (starts.size() > saved) save_(starts);
  saved_ = std::max<uint64_t>(saved, starts.size());
}

absl::StatusOr<uint64_t> TokenSteps::Start(uint64_t n) const {
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (Knows(n, UINT64_MAX)) return starts_[n];
    }
    BALLAST_RETURN_IF_ERROR(Extend(n, UINT64_MAX));
  }
}

absl::StatusOr<uint64_t> TokenSteps::CountEnded(uint64_t position) const {
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (Knows(UINT64_MAX, position)) {
        return std::upper_bound(starts_.begin(), starts_.end(), position) -
               starts_.begin() - 1;
      }
    }
    BALLAST_RETURN_IF_ERROR(Extend(UINT64_MAX, position));
  }
}

std::vector<uint64_t> TokenSteps::known() const {
  MutexLock lock(&mutex_);
  return starts_;
}

}  // namespace ballast
