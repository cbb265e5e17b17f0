#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "server/config/config_validate.h"

namespace ballast {
namespace {

constexpr int kMaxChanges = 256;

// Adds a fault if the list has too many entries. Returns whether it may be
// checked further.
bool CheckLength(const std::string& list, int size, KeyReport* report) {
  if (report->IsFaulty(list)) return false;
  if (size <= kMaxChanges) return true;
  report->AddFault(
      list,
      absl::StrCat("found ", size, " entries; wanted at most ", kMaxChanges));
  return false;
}

// Checks the step of entry `item`, and raises `before`, that of the entry
// before, to it.
void CheckStep(const std::string& item, absl::string_view wanted, uint64_t step,
               uint64_t* before, KeyReport* report) {
  const std::string key = ChildKey(item, "step");
  if (!report->Has(key)) report->AddMissing(key, wanted);
  if (report->IsFaulty(key)) return;
  if (step <= *before) {
    return report->AddFault(
        key, absl::StrCat("found ", step,
                          "; wanted a step after that of the preceding entry, ",
                          *before));
  }
  *before = step;
}

// Weights count with six decimals (server/schedule/mixture.h): a smaller number
// would be drawn more often than it says.
void CheckDecimals(const std::string& key, double weight, KeyReport* report) {
  const double counted = std::max(1.0, std::round(weight * 1e6)) / 1e6;
  if (weight == 0 || std::abs(counted - weight) <= weight / 100) return;
  report->AddFault(
      key, absl::StrCat("found ", weight, ", which would count as ", counted,
                        ": weights have six decimals; wanted 0 or a larger "
                        "number, as 1000 times each weight of the split"));
}

// Checks the names of one entry, and sets `weights`, of the sources of train,
// to what it gives.
void CheckWeights(const v1::Config& config,
                  const v1::Order::MixtureChange& change,
                  const std::string& item,
                  absl::flat_hash_map<std::string, double>* weights,
                  KeyReport* report) {
  const std::string key = ChildKey(item, "weights");
  if (!report->Has(key)) {
    return report->AddMissing(key, "a map from source to weight");
  }
  if (report->IsFaulty(key)) return;
  for (const auto& [name, weight] : change.weights()) {
    const std::string entry = ChildKey(key, Shown(name));
    if (report->IsFaulty(entry)) continue;
    const auto source = std::find_if(
        config.sources().begin(), config.sources().end(),
        [&name = name](const v1::Source& s) { return s.name() == name; });
    if (source == config.sources().end()) {
      report->AddFault(entry,
                       "found no source of that name; wanted one of "
                       "sources[].name");
    } else if (source->split() != v1::SPLIT_TRAIN) {
      report->AddFault(entry,
                       "found a source of another split; wanted one with "
                       "`split: train`: only its weights change");
    } else {
      (*weights)[name] = weight;
      CheckDecimals(entry, weight, report);
    }
  }
  const bool drawn =
      std::any_of(weights->begin(), weights->end(),
                  [](const auto& entry) { return entry.second > 0; });
  if (!drawn && !report->HasFaultWithin(key)) {
    report->AddFault(key,
                     "found no source with a weight above 0 from this step on; "
                     "wanted one");
  }
}

// Each split draws from some source at every step, and each source is drawn
// from at some step, as often as its weight says.
void CheckSourceWeights(const v1::Config& config, KeyReport* report) {
  for (int i = 0; i < config.sources_size(); ++i) {
    const v1::Source& source = config.sources(i);
    const std::string key = ChildKey(ItemKey("sources", i), "weight");
    if (report->IsFaulty(key) || report->IsFaulty(ItemKey("sources", i))) {
      continue;
    }
    if (source.weight() != 0) {
      CheckDecimals(key, source.weight(), report);
      continue;
    }
    if (source.split() != v1::SPLIT_TRAIN) {
      report->AddFault(key,
                       "found 0 beside another split than train; wanted a "
                       "weight above 0");
      continue;
    }
    const auto& changes = config.order().mixture_changes();
    const bool added =
        std::any_of(changes.begin(), changes.end(), [&](const auto& change) {
          const auto found = change.weights().find(source.name());
          return found != change.weights().end() && found->second > 0;
        });
    if (!added && !report->HasFaultWithin("order.mixture_changes")) {
      report->AddFault(key,
                       "found 0; wanted a weight above 0, here or in "
                       "order.mixture_changes");
    }
  }
  const auto drawn = [](const v1::Source& source) {
    return source.split() == v1::SPLIT_TRAIN && source.weight() > 0;
  };
  const auto trained = [](const v1::Source& source) {
    return source.split() == v1::SPLIT_TRAIN;
  };
  if (!report->HasFaultWithin("sources") &&
      std::any_of(config.sources().begin(), config.sources().end(), trained) &&
      std::none_of(config.sources().begin(), config.sources().end(), drawn)) {
    report->AddFault("sources",
                     "found no source of train with a weight above 0; wanted "
                     "one for step 0");
  }
}

}  // namespace

void ValidateOrder(const v1::Config& config, KeyReport* report) {
  CheckSourceWeights(config, report);
  const v1::Order& order = config.order();
  if (CheckLength("order.mixture_changes", order.mixture_changes_size(),
                  report)) {
    absl::flat_hash_map<std::string, double> weights;
    for (const v1::Source& source : config.sources()) {
      if (source.split() == v1::SPLIT_TRAIN) {
        weights[source.name()] = source.weight();
      }
    }
    uint64_t before = 0;
    for (int i = 0; i < order.mixture_changes_size(); ++i) {
      const std::string item = ItemKey("order.mixture_changes", i);
      if (report->IsFaulty(item)) continue;
      CheckStep(item, "the first step with the weights",
                order.mixture_changes(i).step(), &before, report);
      CheckWeights(config, order.mixture_changes(i), item, &weights, report);
    }
  }
  if (!CheckLength("order.skips", order.skips_size(), report)) return;
  uint64_t before = 0;
  for (int i = 0; i < order.skips_size(); ++i) {
    const std::string item = ItemKey("order.skips", i);
    if (report->IsFaulty(item)) continue;
    CheckStep(item, "the first step after the data that are left out",
              order.skips(i).step(), &before, report);
  }
}

}  // namespace ballast
