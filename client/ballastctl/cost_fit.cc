#include "client/ballastctl/cost_fit.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <utility>

#include <eigen3/Eigen/QR>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/ballastctl/commands.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "proto/block/block_layout.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"

namespace ballast {
namespace {

using Real = long double;
using Column = Eigen::Matrix<Real, Eigen::Dynamic, 1>;
using Columns = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic>;

// A set of terms, one bit each.
using Terms = unsigned;
constexpr Terms kAllTerms = (1u << kCostTerms) - 1;

// A column counts as dependent on others if at most this share of it remains
// after projecting them out. Times are not trusted to a higher precision.
constexpr Real kRelativePrecision = 1e-9L;
// The data support a term if leaving it out adds at least this much to the
// squared residuals, in units of the noise's variance.
constexpr Real kSignificant = 4;

// Least squares of `target` over some of the columns.
struct Solution {
  bool independent = true;  // the columns
  std::array<Real, kCostTerms> coefficients = {};
  Real residual = 0;  // sum of squares

  bool negative() const {
    return *std::min_element(coefficients.begin(), coefficients.end()) < 0;
  }
};

int Count(Terms terms) { return __builtin_popcount(terms); }

std::vector<CostTerm> List(Terms terms) {
  std::vector<CostTerm> list;
  for (int term = 0; term < kCostTerms; ++term) {
    if (terms >> term & 1) list.push_back(static_cast<CostTerm>(term));
  }
  return list;
}

// Solves by QR with column pivoting, which finds dependent columns. Columns
// have length 1 (or 0), so that their scales do not matter.
Solution Solve(const Columns& columns, const Column& target, Terms terms) {
  Solution solution;
  solution.residual = target.squaredNorm();
  if (terms == 0) return solution;
  const std::vector<CostTerm> taken = List(terms);
  const Columns chosen = columns(Eigen::all, taken);
  Eigen::CompleteOrthogonalDecomposition<Columns> qr;
  qr.setThreshold(kRelativePrecision);
  qr.compute(chosen);
  const Column found = qr.solve(target);
  solution.independent = qr.rank() == chosen.cols();
  solution.residual = (target - chosen * found).squaredNorm();
  for (size_t k = 0; k < taken.size(); ++k) {
    solution.coefficients[taken[k]] = found[k];
  }
  return solution;
}

// All least-squares solutions, by their terms.
using Solutions = std::array<Solution, kAllTerms + 1>;

// The terms of the best solution without a negative coefficient. `precision`:
// differences of squared residuals below it are noise.
Terms BestTerms(const Solutions& solutions, Real precision) {
  Terms best = 0;
  for (Terms terms = 1; terms <= kAllTerms; ++terms) {
    const Solution& solution = solutions[terms];
    if (!solution.independent || solution.negative()) continue;
    const Real gain = solutions[best].residual - solution.residual;
    if (gain > precision ||
        (gain >= -precision && Count(terms) < Count(best))) {
      best = terms;
    }
  }
  return best;
}

// The smallest set of terms of which any one, but not all, may be left out.
Terms ConfoundedTerms(const Solutions& solutions, Real noise) {
  const auto matters = [&](Terms without) {
    const Real loss = solutions[kAllTerms & ~without].residual -
                      solutions[kAllTerms].residual;
    return loss > kSignificant * Count(without) * noise;
  };
  Terms found = 0;
  for (Terms set = 1; set <= kAllTerms; ++set) {
    if (Count(set) < 2 || !matters(set)) continue;
    bool spare = true;
    for (Terms part = (set - 1) & set; part != 0; part = (part - 1) & set) {
      spare = spare && !matters(part);
    }
    if (spare && (found == 0 || Count(set) < Count(found))) found = set;
  }
  return found;
}

}  // namespace

const char* CostTermName(CostTerm term) {
  switch (term) {
    case kLinear:
      return "linear";
    case kQuadratic:
      return "quadratic";
    default:
      return "constant";
  }
}

absl::StatusOr<CostFit> FitCost(
    absl::Span<const CostObservation> observations) {
  const size_t count = observations.size();
  if (count < kMinObservations) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", count, " timings, wanted at least ",
                     kMinObservations, " to fit a cost to"));
  }
  Columns columns(count, kCostTerms);
  Column times(count);
  for (size_t i = 0; i < count; ++i) {
    const CostObservation& each = observations[i];
    for (const double value :
         {each.sum, each.sum_of_squares, each.milliseconds}) {
      if (!std::isfinite(value) || value < 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "an observation holds ", value, ", wanted what is not negative"));
      }
    }
    columns(i, kLinear) = each.sum;
    columns(i, kQuadratic) = each.sum_of_squares;
    columns(i, kConstant) = 1;
    times[i] = each.milliseconds;
  }
  std::array<Real, kCostTerms> scale;
  for (int term = 0; term < kCostTerms; ++term) {
    const Real length = columns.col(term).norm();
    scale[term] = length > 0 ? length : 1;
    columns.col(term) /= scale[term];
  }

  Solutions solutions;
  for (Terms terms = 0; terms <= kAllTerms; ++terms) {
    solutions[terms] = Solve(columns, times, terms);
  }
  const Real precision =
      times.squaredNorm() * kRelativePrecision * kRelativePrecision;
  const Real noise = std::max(
      solutions[kAllTerms].residual / (count - kCostTerms), precision / count);

  const Terms best_terms = BestTerms(solutions, precision);
  const Solution& best = solutions[best_terms];
  CostFit fit;
  fit.observations = count;
  for (int term = 0; term < kCostTerms; ++term) {
    fit.coefficients[term] =
        static_cast<double>(best.coefficients[term] / scale[term]);
  }
  fit.rms = static_cast<double>(std::sqrt(best.residual / count));
  const Real variance = (times.array() - times.mean()).square().sum();
  if (variance > precision) {
    fit.r_squared = static_cast<double>(1 - best.residual / variance);
  }
  fit.left_out = List(kAllTerms & ~best_terms);
  fit.confounded = List(ConfoundedTerms(solutions, noise));
  return fit;
}

absl::Status AddObservations(const v1::StepSchedule& schedule,
                             absl::Span<const v1::StepTiming> timings,
                             CostObservations* observations) {
  // Each module's ranks: what they own in each slot of the step.
  std::map<v1::Module, std::vector<std::vector<CostObservation>>> owned;
  for (const v1::MicroBatchSchedule& micro_batch : schedule.micro_batches()) {
    for (const v1::ModuleSchedule& module : micro_batch.modules()) {
      auto& slots = owned[module.module()];
      slots.resize(schedule.micro_batches_size());
      for (auto& ranks : slots) {
        ranks.resize(std::max<size_t>(ranks.size(), module.load_after_size()));
      }
      const FirstEntries first = GetFirstEntries(micro_batch);
      for (int i = 0; i < micro_batch.tokens_size(); ++i) {
        // Each rank that shares the sample's pack computes an equal part.
        const uint32_t shared = PackRanks(module, i);
        CostObservation* const rank =
            &slots[micro_batch.slot(i)][module.owner(i)];
        const auto add = [rank, shared](double n, double count) {
          for (uint32_t k = 0; k < shared; ++k) {
            rank[k].sum += n * count / shared;
            rank[k].sum_of_squares += n * n * count / shared;
          }
        };
        switch (GetMedia(module.module())) {
          case Media::kText:
            ForEachSequence(micro_batch.tokens(i), FirstTokens(micro_batch, i),
                            [&](uint32_t tokens) { add(tokens, 1); });
            break;
          case Media::kImages:
            ForEachSegment(micro_batch, first, i,
                           [&add](uint64_t patches, uint32_t count) {
                             add(static_cast<double>(patches), count);
                           });
            break;
          case Media::kRows:
            for (uint32_t k = first.clip[i]; k < first.clip[i + 1]; ++k) {
              add(micro_batch.clip_frames(k), 1);
            }
            break;
          case Media::kNone:
            break;
        }
      }
    }
  }
  for (const v1::StepTiming& timing : timings) {
    const v1::Role& role = timing.role();
    const auto found = owned.find(role.module());
    if (timing.step() != schedule.step() || found == owned.end() ||
        timing.micro_batch() >= found->second.size() ||
        role.dp_rank() >= found->second[timing.micro_batch()].size() ||
        !std::isfinite(timing.milliseconds()) || timing.milliseconds() < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the timing of ", timing.milliseconds(), " ms of ",
          ModuleName(role.module()), " rank ", role.dp_rank(), " in step ",
          timing.step(), " micro-batch ", timing.micro_batch(),
          " does not fit the schedule of step ", schedule.step(), " of ",
          schedule.micro_batches_size(), " micro-batches"));
    }
    CostObservation observation =
        found->second[timing.micro_batch()][role.dp_rank()];
    observation.milliseconds = timing.milliseconds();
    (*observations)[role.module()].push_back(observation);
  }
  return absl::OkStatus();
}

namespace {

using Json = nlohmann::ordered_json;

constexpr char kFitCostExamples[] =
    "  ballastctl --server 127.0.0.1:7070 fit-cost\n"
    "  ballastctl --server 127.0.0.1:7070 fit-cost --module language \\\n"
    "      --from-step 200 --json\n"
    "\n"
    "JSON keys: address, first_step, last_step (of the timings), modules\n"
    "{vision|language: {n (\"patches\" or \"tokens\"), observations, linear\n"
    "(milliseconds a unit of n), quadratic (of n*n), constant (milliseconds a\n"
    "micro-batch), rms_ms (of the residuals), r_squared (null where all times\n"
    "are equal), left_out [terms], confounded [terms that the data cannot\n"
    "separate]}, or {n, observations, error} where it cannot be fitted}, cost\n"
    "{vision|language: {linear, quadratic}} (for balance.cost).";

struct ModuleFit {
  size_t observations = 0;
  absl::StatusOr<CostFit> fit;

  // Whether balance.cost can be set from this fit.
  bool has_cost() const {
    return fit.ok() && (fit->coefficients[kLinear] > 0 ||
                        fit->coefficients[kQuadratic] > 0);
  }
};

// The result that is printed.
struct Fits {
  std::string address;
  uint64_t first_step = 0;
  uint64_t last_step = 0;
  std::map<v1::Module, ModuleFit> modules;  // with timings
  std::vector<v1::Module> absent;           // that the job lacks
};

std::vector<std::string> Names(const std::vector<CostTerm>& terms) {
  std::vector<std::string> names;
  for (const CostTerm term : terms) names.push_back(CostTermName(term));
  return names;
}

std::string Number(double value) { return absl::StrFormat("%.6g", value); }

absl::StatusOr<Fits> Fit(LoaderClient* client, const FitCostOptions& options) {
  BALLAST_ASSIGN_OR_RETURN(const v1::AttachResponse attached,
                           client->Attach(v1::Role(), v1::Fingerprint()));
  BALLAST_ASSIGN_OR_RETURN(
      const std::vector<v1::StepTiming> timings,
      client->GetTimings(options.from_step, options.module));
  if (timings.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "server ", client->address(), " keeps no timing of ",
        options.module == v1::MODULE_UNSPECIFIED ? "any module"
                                                 : ModuleName(options.module),
        " from step ", options.from_step,
        " on; trainers report them through TrainerShim::ReportTiming, to the "
        "server that they are given first"));
  }
  std::map<uint64_t, std::vector<v1::StepTiming>> by_step;
  for (const v1::StepTiming& timing : timings) {
    by_step[timing.step()].push_back(timing);
  }
  CostObservations observations;
  for (const auto& [step, of_step] : by_step) {
    BALLAST_ASSIGN_OR_RETURN(
        const v1::StepSchedule schedule,
        client->GetSchedule(step, v1::SPLIT_TRAIN, LoaderClient::Use::kLooks));
    const absl::Status added =
        AddObservations(schedule, of_step, &observations);
    if (!added.ok()) {
      return Annotate(
          absl::Status(added.code(),
                       absl::StrCat(added.message(), "; --from-step ", step + 1,
                                    " goes by later steps only")),
          absl::StrCat("server ", client->address()));
    }
  }
  Fits fits;
  fits.address = client->address();
  fits.first_step = by_step.begin()->first;
  fits.last_step = by_step.rbegin()->first;
  absl::Status error;
  bool any = false;
  for (const auto& [module, of_module] : observations) {
    const ModuleFit& fit =
        fits.modules[module] = {of_module.size(), FitCost(of_module)};
    any = any || fit.fit.ok();
    if (!fit.fit.ok()) error = Annotate(fit.fit.status(), ModuleName(module));
  }
  if (!any) return error;
  for (const ModuleKind& kind : ModuleKinds()) {
    bool found = false;
    for (const auto& size : attached.job().modules()) {
      found = found || size.module() == kind.module;
    }
    if (!found) fits.absent.push_back(kind.module);
  }
  return fits;
}

Json FitsToJson(const Fits& fits) {
  Json modules = Json::object();
  Json cost = Json::object();
  for (const auto& [module, of_module] : fits.modules) {
    const std::string name(ModuleName(module));
    Json& json = modules[name];
    json = {{"n", std::string(CostUnit(module))},
            {"observations", of_module.observations}};
    if (!of_module.fit.ok()) {
      json["error"] = std::string(of_module.fit.status().message());
      continue;
    }
    const CostFit& fit = *of_module.fit;
    for (const CostTerm term : {kLinear, kQuadratic, kConstant}) {
      json[CostTermName(term)] = fit.coefficients[term];
    }
    json["rms_ms"] = fit.rms;
    json["r_squared"] = fit.r_squared ? Json(*fit.r_squared) : Json();
    json["left_out"] = Names(fit.left_out);
    json["confounded"] = Names(fit.confounded);
    if (!of_module.has_cost()) continue;
    cost[name] = {{"linear", fit.coefficients[kLinear]},
                  {"quadratic", fit.coefficients[kQuadratic]}};
  }
  for (const v1::Module module : fits.absent) {
    cost[std::string(ModuleName(module))] = {{"linear", 0}, {"quadratic", 0}};
  }
  return {{"address", fits.address},
          {"first_step", fits.first_step},
          {"last_step", fits.last_step},
          {"modules", std::move(modules)},
          {"cost", std::move(cost)}};
}

std::string FitTable(const Fits& fits) {
  Table table({{"module", Table::kLeft},
               {"n", Table::kLeft},
               {"timings"},
               {"linear"},
               {"quadratic"},
               {"constant"},
               {"RMS"},
               {"R^2"}});
  for (const auto& [module, of_module] : fits.modules) {
    std::vector<std::string> cells = {std::string(ModuleName(module)),
                                      std::string(CostUnit(module)),
                                      absl::StrCat(of_module.observations)};
    if (of_module.fit.ok()) {
      const CostFit& fit = *of_module.fit;
      for (const double value : fit.coefficients) {
        cells.push_back(Number(value));
      }
      cells.push_back(Number(fit.rms));
      cells.push_back(fit.r_squared ? absl::StrFormat("%.4f", *fit.r_squared)
                                    : "-");
    }
    table.AddRow(std::move(cells));
  }
  return absl::StrCat(
      "milliseconds = linear*sum(n) + quadratic*sum(n*n) + "
      "constant, steps ",
      fits.first_step, " to ", fits.last_step, "\n\n", table.ToString());
}

// Warnings about the numbers, one per line.
std::string Warnings(v1::Module module, const ModuleFit& of_module) {
  const std::string name(ModuleName(module));
  if (!of_module.fit.ok()) {
    return absl::StrCat(name, ": ", of_module.fit.status().message(), "\n");
  }
  std::string text;
  const CostFit& fit = *of_module.fit;
  if (!fit.confounded.empty()) {
    absl::StrAppend(
        &text, name, ": the data cannot separate these terms: ",
        absl::StrJoin(Names(fit.confounded), ", "),
        ".\n  The times are explained as well without any one of them, so each "
        "alone\n  means little. Ranks that own less similar samples separate "
        "them: take more\n  steps, or steps of balance.delivery `off`.\n");
  }
  if (!fit.left_out.empty()) {
    absl::StrAppend(&text, name,
                    ": left out: ", absl::StrJoin(Names(fit.left_out), ", "),
                    ".\n  With them a coefficient is negative, or nothing more "
                    "is explained.\n");
  }
  if (!of_module.has_cost()) {
    absl::StrAppend(&text, name, ": the times do not grow with the ",
                    CostUnit(module), ", so there is nothing to balance by.\n");
  }
  return text;
}

std::string YamlLines(const Fits& fits) {
  // Schedules before the change stay the same, so training can restart from any
  // checkpoint.
  std::string text = absl::StrCat("balance:\n  cost_changes:\n    - step: ",
                                  fits.last_step + 1, "\n      cost:\n");
  bool any = false;
  for (const ModuleKind& kind : ModuleKinds()) {
    const v1::Module module = kind.module;
    const absl::string_view name = kind.name;
    const auto found = fits.modules.find(module);
    if (found != fits.modules.end() && found->second.has_cost()) {
      const auto& coefficients = found->second.fit->coefficients;
      absl::StrAppend(&text, "        ", name,
                      ": {linear: ", Number(coefficients[kLinear]),
                      ", quadratic: ", Number(coefficients[kQuadratic]), "}\n");
      any = true;
    } else if (std::find(fits.absent.begin(), fits.absent.end(), module) !=
               fits.absent.end()) {
      // A cost of audio may be missing.
      if (kind.media == Media::kRows) continue;
      absl::StrAppend(&text, "        ", name, ": {linear: 0, quadratic: 0}\n");
    } else {
      absl::StrAppend(&text, "        # ", name,
                      ": not fitted; it must be given in milliseconds, too\n");
    }
  }
  if (!any) return "";
  return absl::StrCat(
      "\nFor the configuration, in milliseconds, from the step on that follows "
      "the timings\n(or a later one); the lines below `cost` are also what "
      "balance.cost takes for a\nnew job:\n\n",
      text);
}

}  // namespace

absl::Status PrintCostFit(LoaderClient* client, const FitCostOptions& options,
                          std::ostream* out) {
  BALLAST_ASSIGN_OR_RETURN(const Fits fits, Fit(client, options));
  if (options.json) {
    *out << FitsToJson(fits).dump(-1, ' ', false,
                                  Json::error_handler_t::replace)
         << "\n";
  } else {
    *out << FitTable(fits) << "\n";
    for (const auto& [module, of_module] : fits.modules) {
      *out << Warnings(module, of_module);
    }
    *out << YamlLines(fits);
  }
  return Flush(*out);
}

void AddFitCost(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  struct Line {
    std::string module;
    FitCostOptions options;
  };
  auto given = std::make_shared<Line>();
  Command* command = line->AddCommand(
      line->program(), "fit-cost",
      "Fits cost coefficients to the times that ranks have reported to the\n"
      "server, by least squares over what each owned in each micro-batch.",
      kFitCostExamples, [server, given]() -> absl::Status {
        if (!given->module.empty()) {
          given->options.module = *ParseModule(given->module);
        }
        BALLAST_ASSIGN_OR_RETURN(const auto client, GetClient(*server));
        return PrintCostFit(client.get(), given->options, &std::cout);
      });
  command
      ->AddText("--module", &given->module,
                "only this one (default: every module)")
      .OneOf(ModuleNames());
  command
      ->AddWholeNumber(
          "--from-step", &given->options.from_step,
          "only timings of this step and later ones, such as those "
          "after the trainer has warmed up")
      .ShowDefault();
  command->AddFlag("--json", &given->options.json, "one JSON object");
}

}  // namespace ballast
