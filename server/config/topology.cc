#include "server/config/topology.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"

namespace ballast {

namespace {

constexpr uint64_t kMaxIncrements = 4096;

// The size of a step of the ramp-up, as Megatron computes it: in doubles.
class Rampup {
 public:
  Rampup(const v1::Batch& batch, uint64_t increments)
      : rampup_(batch.rampup()),
        global_(batch.global()),
        samples_per_increment_(static_cast<double>(rampup_.samples()) /
                               static_cast<double>(increments)) {}

  // The size of a step that begins after `samples` of training. Does not fall
  // as they grow.
  uint32_t SizeAfter(uint64_t samples) const {
    if (samples > rampup_.samples()) return global_;
    const uint64_t increments =
        static_cast<double>(samples) / samples_per_increment_;
    return std::min<uint64_t>(
        rampup_.start() + increments * rampup_.increment(), global_);
  }

  std::vector<BatchSize> Sizes() const {
    std::vector<BatchSize> sizes = {{0, 0, SizeAfter(0)}};
    while (sizes.back().samples < global_) {
      const BatchSize& last = sizes.back();
      const auto size_of = [&](uint64_t steps) {
        return SizeAfter(last.samples_before + steps * last.samples);
      };
      // The first step with another size.
      uint64_t few = 0, many = 1;
      while (size_of(many) == last.samples) many *= 2;
      while (few + 1 < many) {
        const uint64_t middle = few + (many - few) / 2;
        (size_of(middle) == last.samples ? few : many) = middle;
      }
      sizes.push_back({last.first_step + many,
                       last.samples_before + many * last.samples,
                       size_of(many)});
    }
    return sizes;
  }

 private:
  const v1::Batch::Rampup& rampup_;
  const uint32_t global_;
  const double samples_per_increment_;
};

absl::StatusOr<std::vector<BatchSize>> RampupSizes(const v1::Batch& batch) {
  const v1::Batch::Rampup& rampup = batch.rampup();
  if (rampup.start() >= batch.global()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found start ", rampup.start(),
                     "; wanted less than batch.global, ", batch.global()));
  }
  const uint32_t growth = batch.global() - rampup.start();
  const uint64_t increments = growth / rampup.increment();
  if (growth % rampup.increment() != 0 || increments > kMaxIncrements) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found increment ", rampup.increment(), "; wanted one that divides ",
        growth, ", from start to batch.global, into at most ", kMaxIncrements,
        " parts"));
  }
  return Rampup(batch, increments).Sizes();
}

// The first step that begins after at least `samples` of training.
uint64_t StepAfter(const std::vector<BatchSize>& sizes, uint64_t samples) {
  const auto next = std::find_if(
      sizes.begin() + 1, sizes.end(),
      [&](const BatchSize& size) { return size.samples_before >= samples; });
  const BatchSize& size = *std::prev(next);
  if (samples <= size.samples_before) return size.first_step;
  return size.first_step +
         (samples - size.samples_before + size.samples - 1) / size.samples;
}

}  // namespace

const BatchSize& SizeAt(const std::vector<BatchSize>& sizes, uint64_t step) {
  const auto after =
      std::upper_bound(sizes.begin(), sizes.end(), step,
                       [](uint64_t wanted, const BatchSize& size) {
                         return wanted < size.first_step;
                       });
  return *std::prev(after);
}

uint64_t SamplesBefore(const std::vector<BatchSize>& sizes, uint64_t step) {
  const BatchSize& size = SizeAt(sizes, step);
  return size.samples_before + (step - size.first_step) * size.samples;
}

absl::StatusOr<std::vector<BatchSize>> BatchSizes(const v1::Batch& batch) {
  std::vector<BatchSize> sizes = {{0, 0, batch.global()}};
  if (batch.has_rampup()) {
    BALLAST_ASSIGN_OR_RETURN(sizes, RampupSizes(batch));
  }
  uint64_t last_step = 0, last_samples = 0;
  for (const v1::Batch::Change& change : batch.changes()) {
    const bool by_samples = change.samples() > 0;
    const uint64_t step =
        by_samples ? StepAfter(sizes, change.samples()) : change.step();
    // Thresholds closer together than a step reach the same one.
    if (by_samples ? step < last_step || change.samples() <= last_samples
                   : step <= last_step) {
      return absl::InvalidArgumentError(absl::StrCat(
          "found ",
          by_samples
              ? absl::StrCat("samples ", change.samples(), ", reached at step ")
              : "step ",
          step, "; wanted a point after the preceding entry's, step ",
          last_step));
    }
    last_step = step;
    const BatchSize next = {step, SamplesBefore(sizes, step), change.global(),
                            /*is_change=*/true};
    last_samples = by_samples ? change.samples() : next.samples_before;
    // The rest of the ramp-up never begins. Step 0 stays: no change is there.
    while (sizes.back().first_step >= step) sizes.pop_back();
    sizes.push_back(next);
  }
  return sizes;
}

namespace {

constexpr uint32_t kMaxRanks = uint32_t{1} << 20;

absl::StatusOr<uint32_t> ParseRank(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  uint32_t rank = 0;
  // SimpleAtoi accepts a sign, which a rank must not have.
  if (text.empty() ||
      !std::all_of(text.begin(), text.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(text, &rank) || rank >= kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::CHexEscape(text.substr(0, 40)),
                     "\" is not a rank of 0 to ", kMaxRanks - 1));
  }
  return rank;
}

const v1::Topology::Module* FindSizes(const v1::Config& config,
                                      v1::Module module) {
  const auto& modules = config.topology().modules();
  const auto found = modules.find(std::string(ModuleName(module)));
  return found == modules.end() ? nullptr : &found->second;
}

const google::protobuf::FieldDescriptor* CoefficientsField(v1::Module module) {
  return v1::Balance::Cost::descriptor()->FindFieldByName(
      std::string(ModuleName(module)));
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> ParseRankList(absl::string_view text) {
  std::vector<uint32_t> ranks;
  if (absl::StripAsciiWhitespace(text).empty()) return ranks;
  std::vector<bool> seen(kMaxRanks);
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    BALLAST_ASSIGN_OR_RETURN(const uint32_t first, ParseRank(ends.first));
    uint32_t last = first;
    if (absl::StrContains(part, '-')) {
      BALLAST_ASSIGN_OR_RETURN(last, ParseRank(ends.second));
    }
    if (last < first) {
      return absl::InvalidArgumentError(
          absl::StrCat("the range ", first, "-", last, " falls"));
    }
    for (uint32_t rank = first; rank <= last; ++rank) {
      if (seen[rank]) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", rank, " occurs twice"));
      }
      seen[rank] = true;
      ranks.push_back(rank);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string FormatRankList(absl::Span<const uint32_t> ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ",", ranks[i]);
    if (end - i > 1) absl::StrAppend(&text, "-", ranks[end - 1]);
    i = end;
  }
  return text;
}

uint32_t Grid(const v1::Topology& topology) {
  uint32_t grid = 1;
  for (const auto& [name, module] : topology.modules()) {
    grid = std::lcm(grid, std::max(module.dp(), 1u));
  }
  return grid;
}

std::vector<v1::Module> Modules(const v1::Config& config) {
  std::vector<v1::Module> modules;
  for (const ModuleKind& kind : ModuleKinds()) {
    if (FindSizes(config, kind.module) != nullptr) {
      modules.push_back(kind.module);
    }
  }
  return modules;
}

const v1::Topology::Module* FindLanguage(const v1::Config& config) {
  return FindSizes(config, v1::MODULE_LANGUAGE);
}

const v1::Balance::Coefficients& GetCoefficients(const v1::Balance::Cost& cost,
                                                 v1::Module module) {
  const auto* field = CoefficientsField(module);
  if (field == nullptr) {
    static const auto& one = *[] {
      auto* coefficients = new v1::Balance::Coefficients();
      coefficients->set_linear(1);
      return coefficients;
    }();
    return one;
  }
  return static_cast<const v1::Balance::Coefficients&>(
      cost.GetReflection()->GetMessage(cost, field));
}

v1::Balance::Coefficients* MutableCoefficients(v1::Balance::Cost* cost,
                                               v1::Module module) {
  const auto* field = CoefficientsField(module);
  if (field == nullptr) return nullptr;
  return static_cast<v1::Balance::Coefficients*>(
      cost->GetReflection()->MutableMessage(cost, field));
}

uint32_t DpSize(const v1::Config& config, v1::Module module) {
  const v1::Topology::Module* sizes = FindSizes(config, module);
  return sizes == nullptr ? 0 : sizes->dp();
}

uint32_t PpSize(const v1::Config& config, v1::Module module) {
  const v1::Topology::Module* sizes = FindSizes(config, module);
  return sizes == nullptr ? 0 : sizes->pp();
}

uint32_t PackAlign(const v1::Config& config, v1::Module module) {
  const v1::Topology::Module* sizes = FindSizes(config, module);
  if (sizes == nullptr) return 1;
  if (config.packing().align() != 0) return config.packing().align();
  const uint32_t shared = IsLanguage(module)
                              ? std::max(sizes->cp(), DynamicCp(config))
                              : sizes->cp();
  const uint32_t context = shared > 1 ? 2 * shared : 1;
  const uint32_t tensor = sizes->sequence_parallel() ? sizes->tp() : 1;
  return context * tensor;
}

uint32_t DynamicCp(const v1::Config& config) {
  return config.packing().mode() == v1::Packing::MODE_SCHEDULED
             ? std::max(config.packing().dynamic_cp(), 1u)
             : 1;
}

uint64_t PackCapacity(const v1::Config& config,
                      const v1::Topology::Module& language) {
  return uint64_t{config.packing().max_tokens_per_rank()} *
         std::max(language.cp(), DynamicCp(config));
}

absl::StatusOr<ServerOfRank> FindServerOfRank(const v1::Config& config,
                                              v1::Module module) {
  const auto& servers = config.topology().servers();
  if (servers.size() < 2) return ServerOfRank();
  const std::string name(ModuleName(module));
  ServerOfRank server_of_rank(DpSize(config, module), 0);
  for (int s = 0; s < servers.size(); ++s) {
    const auto found = servers[s].ranks().find(name);
    if (found == servers[s].ranks().end()) continue;
    BALLAST_ASSIGN_OR_RETURN(const std::vector<uint32_t> ranks,
                             ParseRankList(found->second));
    for (const uint32_t rank : ranks) {
      if (rank >= server_of_rank.size()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "topology.servers[", s, "].ranks.", name, ": found rank ", rank,
            "; wanted ranks below ", server_of_rank.size()));
      }
      server_of_rank[rank] = s;
    }
  }
  return server_of_rank;
}

absl::StatusOr<size_t> FindServer(const v1::Config& config,
                                  const std::vector<std::string>& listen) {
  const auto& servers = config.topology().servers();
  if (servers.size() == 1) return 0;
  std::optional<size_t> match;
  std::vector<std::string> addresses;
  for (int i = 0; i < servers.size(); ++i) {
    const std::string& address = servers[i].address();
    addresses.push_back(address);
    if (std::find(listen.begin(), listen.end(), address) == listen.end()) {
      continue;
    }
    if (match.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("this server listens on ", absl::StrJoin(listen, ", "),
                       ", which is both topology.servers[", *match, "] and [",
                       i, "]; wanted the address of one of them"));
    }
    match = i;
  }
  if (!match.has_value()) {
    return absl::NotFoundError(absl::StrCat(
        "this server listens on ", absl::StrJoin(listen, ", "),
        ", which is not in topology.servers (", absl::StrJoin(addresses, ", "),
        "); wanted the address of one of them"));
  }
  return *match;
}

}  // namespace ballast
