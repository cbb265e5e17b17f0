#include "server/schedule/filled_steps.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/machine.h"
#include "common/status_macros.h"
#include "server/config/topology.h"
#include "server/schedule/cost_model.h"
#include "server/schedule/step_plan.h"

namespace ballast {
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
                      absl::Span<const TileShape> sides) const {
    return GetSampleImages(config, sources[sample.source], sample.ordinal,
                           sample.epoch, sides);
  }

  // Has the recipe plan the images of these samples at once.
  absl::Status PlanAhead(absl::Span<const SampleOrder::Sample> samples) const {
    std::vector<std::vector<TileShape>> sides;
    std::vector<SampleImages> planned;
    for (const SampleOrder::Sample& sample : samples) {
      BALLAST_ASSIGN_OR_RETURN(
          const IndexedSample indexed,
          indexes[sources[sample.source]]->sample(sample.ordinal));
      sides.push_back(GetSides(indexed.images));
      planned.push_back(Images(sample, sides.back()));
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
          MeasureSample(indexed, Images(sample, GetSides(indexed.images)),
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
    std::vector<absl::Status> results(threads);
    std::vector<std::thread> running;
    const auto run = [&](uint64_t t) {
      const uint64_t from = lengths.size() * t / threads;
      const uint64_t to = lengths.size() * (t + 1) / threads;
      results[t] = all->Get(first + from, lengths.subspan(from, to - from));
    };
    for (uint64_t t = 1; t < threads; ++t) running.emplace_back(run, t);
    run(0);
    for (std::thread& thread : running) thread.join();
    for (const absl::Status& result : results) {
      BALLAST_RETURN_IF_ERROR(result);
    }
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
  // Steps depend on the samples before them: the first position of a change is
  // found with the changes before it.
  const std::vector<WeightsFrom> weights = GetWeights(config);
  for (size_t i = 1; i < weights.size(); ++i) {
    if (weights[i].weights == weights[i - 1].weights) continue;
    const StepPositions steps(v1::Job(), 0, filled.steps, filled.skips);
    BALLAST_ASSIGN_OR_RETURN(const uint64_t position,
                             steps.First(weights[i].step));
    filled.mixtures.push_back({position, weights[i].weights});
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
