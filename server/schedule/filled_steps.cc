#include "server/schedule/filled_steps.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"
#include "common/machine.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "server/config/topology.h"
#include "server/schedule/cost_model.h"
#include "server/schedule/step_plan.h"

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
  // What a call finds, with its wait for others, when they are in parts.
  constexpr absl::Duration kPart = absl::Seconds(1);
  constexpr uint64_t kMaxChunkOfPart = uint64_t{1} << 16;
  Clock* clock = nullptr;
  {
    MutexLock lock(&mutex_);
    clock = clock_;
  }
  const absl::Time end =
      clock == nullptr ? absl::InfiniteFuture() : clock->Now() + kPart;
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
    if (last > origin && clock != nullptr && clock->Now() >= end) {
      SaveIfMany();
      return absl::UnavailableError(absl::StrCat(
          "the data of ", steps - 1,
          " steps are counted so far, and this needs more: ask again, if "
          "training comes there"));
    }
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
    chunk = std::min(2 * chunk, clock == nullptr ? kMaxChunk : kMaxChunkOfPart);
  }
  SaveIfMany();
  return absl::OkStatus();
}

void TokenSteps::FindInParts(Clock* clock) const {
  MutexLock lock(&mutex_);
  clock_ = clock;
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

namespace {

struct Lengths {
  v1::Config config;
  SampleOrder order;
  std::vector<uint32_t> sources;
  std::vector<const SourceIndex*> indexes;
  ModelImages images;
  uint32_t align = 1;  // packs count padding, too

  // Sets the lengths of the samples from position `first` on.
  absl::Status Get(uint64_t first, absl::Span<uint32_t> lengths) const {
    // Samples whose entries are fetched from memory at once.
    constexpr uint64_t kTogether = 256;
    std::vector<SampleOrder::Sample> samples;
    std::vector<std::vector<uint64_t>> ordinals(sources.size());
    for (uint64_t done = 0; done < lengths.size(); done += samples.size()) {
      samples.clear();
      for (auto& each : ordinals) each.clear();
      const uint64_t count =
          std::min<uint64_t>(kTogether, lengths.size() - done);
      for (uint64_t i = 0; i < count; ++i) {
        samples.push_back(order.At(first + done + i));
        ordinals[samples.back().source].push_back(samples.back().ordinal);
      }
      for (size_t s = 0; s < sources.size(); ++s) {
        if (!ordinals[s].empty()) indexes[sources[s]]->Prefetch(ordinals[s]);
      }
      if (images.recipe() != nullptr) {
        BALLAST_RETURN_IF_ERROR(PlanAhead(samples));
      }
      for (uint64_t i = 0; i < count; ++i) {
        BALLAST_ASSIGN_OR_RETURN(lengths[done + i], Measure(samples[i]));
      }
    }
    return absl::OkStatus();
  }

  // What a recipe's plans depend on.
  SampleImages Images(const SampleOrder::Sample& sample,
                      absl::Span<const ImageSize> sides) const {
    return GetSampleImages(config, sources[sample.source], sample.ordinal,
                           sample.epoch, sides);
  }

  // Has the recipe plan the images of these samples at once.
  absl::Status PlanAhead(absl::Span<const SampleOrder::Sample> samples) const {
    std::vector<SampleImages> planned;
    for (const SampleOrder::Sample& sample : samples) {
      BALLAST_ASSIGN_OR_RETURN(
          const IndexedSample indexed,
          indexes[sources[sample.source]]->sample(sample.ordinal));
      planned.push_back(Images(sample, indexed.media.images()));
    }
    images.PlanAhead(planned);
    return absl::OkStatus();
  }

  absl::StatusOr<uint32_t> Measure(const SampleOrder::Sample& sample) const {
    const auto tokens = [&]() -> absl::StatusOr<uint32_t> {
      BALLAST_ASSIGN_OR_RETURN(
          const IndexedSample indexed,
          indexes[sources[sample.source]]->sample(sample.ordinal));
      BALLAST_ASSIGN_OR_RETURN(
          const SampleSize size,
          MeasureSample(indexed, Images(sample, indexed.media.images()),
                        images));
      return static_cast<uint32_t>(PaddedTokens(size, align));
    }();
    if (tokens.ok()) return tokens;
    return Annotate(tokens.status(),
                    absl::StrCat("sample ", order.sources()[sample.source].name,
                                 ":", sample.ordinal));
  }
};

StepFill GetFill(const v1::Config& config) {
  StepFill fill;
  fill.tokens = config.batch().tokens();
  fill.unit = StepUnit(config);
  fill.packs = config.batch().packs();
  fill.pack_tokens = config.batch().pack_tokens();
  if (fill.packs > 0) fill.align = PackAlign(config, v1::MODULE_LANGUAGE);
  return fill;
}

// Reads the lengths in tokens of samples in `order` from their indexes.
TokenSteps::GetLengths LengthsInOrder(const v1::Config& config,
                                      SampleOrder order,
                                      std::vector<uint32_t> sources,
                                      std::vector<const SourceIndex*> indexes,
                                      ModelImages images) {
  const auto all = std::make_shared<const Lengths>(
      Lengths{config, std::move(order), std::move(sources), std::move(indexes),
              std::move(images), GetFill(config).align});
  return [all](uint64_t first, absl::Span<uint32_t> lengths) -> absl::Status {
    // Below this a thread costs more than it saves.
    constexpr uint64_t kLeast = 16384;
    const uint64_t threads =
        std::clamp<uint64_t>(lengths.size() / kLeast, 1, Cores());
    BALLAST_RETURN_IF_ERROR(RunAll(threads, threads, [&](size_t t) {
      const uint64_t from = lengths.size() * t / threads;
      const uint64_t to = lengths.size() * (t + 1) / threads;
      return all->Get(first + from, lengths.subspan(from, to - from));
    }));
    for (const uint32_t source : all->sources) {
      BALLAST_RETURN_IF_ERROR(all->indexes[source]->CheckUnchanged());
    }
    return absl::OkStatus();
  };
}

// Version of the rules by which samples fill steps.
constexpr char kStepRules[] = "steps-1";
// Steps of so many tokens are counted for so many epochs, or positions. Bounds
// the time of finding a step that no training reaches.
constexpr uint32_t kMaxEpochs = 1024;
constexpr uint64_t kMinPositions = uint64_t{1} << 30;

}  // namespace

bool AreFilled(const v1::Config& config) {
  return config.batch().tokens() > 0 || config.batch().packs() > 0;
}

std::string StartsName(const v1::Fingerprint& fingerprint) {
  return absl::StrCat(kStepRules, ".", fingerprint.data_hash());
}

absl::StatusOr<FilledSteps> FindFilledSteps(const v1::Config& config,
                                            const FilledSources& sources,
                                            std::vector<uint64_t> known) {
  FilledSteps filled;
  for (const v1::Order::Skip& skip : config.order().skips()) {
    filled.skips.push_back({skip.step(), skip.steps()});
  }
  const auto find = [&] {
    SampleOrder order = sources.order(filled.mixtures);
    const uint64_t end = std::max(order.GetEnd(kMaxEpochs), kMinPositions);
    filled.steps = std::make_shared<const TokenSteps>(
        GetFill(config),
        LengthsInOrder(config, std::move(order), sources.numbers,
                       sources.indexes, sources.images),
        end, known);
  };
  find();
  // Planned as steps of one sample, positions are the steps' numbers.
  v1::Config numbered = config;
  numbered.mutable_batch()->set_global(1);
  BALLAST_ASSIGN_OR_RETURN(const StepPlan numbers,
                           PlanSteps(numbered, v1::SPLIT_TRAIN));
  // The next sample of its own mixture ends a step. No change alters the start
  // of its first step, or one before it.
  for (const SampleOrder::Change& mixture : numbers.mixtures) {
    BALLAST_ASSIGN_OR_RETURN(const uint64_t position,
                             filled.steps->Start(mixture.first_position));
    if (known.size() <= mixture.first_position) {
      known = filled.steps->known();
      known.resize(mixture.first_position + 1);
    }
    filled.mixtures.push_back({position, mixture.weights});
    find();
  }
  BALLAST_ASSIGN_OR_RETURN(
      const uint64_t count,
      filled.steps->CountEnded(sources.order(filled.mixtures).GetEnd(1)));
  const std::vector<uint64_t> starts = filled.steps->known();
  for (uint64_t n = 0; n < count; ++n) {
    filled.largest = std::max(filled.largest, starts[n + 1] - starts[n]);
  }
  return filled;
}

}  // namespace ballast
