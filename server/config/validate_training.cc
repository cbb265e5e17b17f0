#include "server/config/config_validate.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"
#include "proto/image/job_images.h"
#include "proto/schedule/module.h"
#include "server/config/topology.h"
#include "server/model/profiles.h"

namespace ballast {
namespace {

// ---- batch

// "vision dp 4, language dp 2"
std::string DescribeGrid(const v1::Config& config) {
  std::string text;
  for (const v1::Module module : Modules(config)) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", ModuleName(module), " dp ",
                    DpSize(config, module));
  }
  return text;
}

// Adds a fault unless the samples of some steps, `samples`, fill micro-batches.
void CheckMultiple(uint32_t samples, const v1::Batch& batch,
                   const std::string& key, KeyReport* report) {
  if (report->IsFaulty(key) || samples % batch.micro() == 0) return;
  report->AddFault(
      key, absl::StrCat("found ", samples,
                        "; wanted a multiple of batch.micro, ", batch.micro()));
}

void CheckRampup(const v1::Batch& batch, KeyReport* report) {
  CheckMultiple(batch.rampup().start(), batch, "batch.rampup.start", report);
  CheckMultiple(batch.rampup().increment(), batch, "batch.rampup.increment",
                report);
  if (report->HasFaultWithin("batch.rampup")) return;
  v1::Batch alone = batch;
  alone.clear_changes();
  const auto sizes = BatchSizes(alone);
  if (!sizes.ok()) {
    report->AddFault("batch.rampup", std::string(sizes.status().message()));
  }
}

void CheckChanges(const v1::Batch& batch, KeyReport* report) {
  v1::Batch before = batch;
  before.clear_changes();
  for (int i = 0; i < batch.changes_size(); ++i) {
    const std::string item = ItemKey("batch.changes", i);
    if (report->IsFaulty(item)) continue;
    const bool by_step = report->Has(ChildKey(item, "step"));
    if (by_step == report->Has(ChildKey(item, "samples"))) {
      report->AddFault(item, by_step
                                 ? "found step and samples; wanted one of them"
                                 : "found neither step nor samples; wanted one "
                                   "of them");
    }
    const std::string global = ChildKey(item, "global");
    CheckMultiple(batch.changes(i).global(), batch, global, report);
    if (report->HasFaultWithin(item)) continue;
    *before.add_changes() = batch.changes(i);
    const auto sizes = BatchSizes(before);
    if (sizes.ok()) continue;
    report->AddFault(ChildKey(item, by_step ? "step" : "samples"),
                     std::string(sizes.status().message()));
    before.mutable_changes()->RemoveLast();
  }
}

// ---- placement

constexpr char kPlacement[] = "balance.placement";

// Refuses modules of different dp that share their ranks, and a module alone.
void CheckRanks(const v1::Config& config, KeyReport* report) {
  const uint32_t ranks = DpSize(config, v1::MODULE_LANGUAGE);
  std::string sizes;
  int encoders = 0;
  bool equal = true;
  for (const v1::Module module : Modules(config)) {
    const uint32_t dp = DpSize(config, module);
    absl::StrAppend(&sizes, ModuleName(module), " dp ", dp, ", ");
    encoders += IsEncoder(module);
    equal &= dp == ranks;
  }
  const bool apart = !config.topology().colocated();
  if (encoders > 0 && ranks > 0 && (equal || apart)) return;
  report->AddFault(
      kPlacement,
      absl::StrCat("found split with ", sizes,
                   "colocated: ", apart ? "false" : "true",
                   "; wanted an encoder and language, of one dp where they "
                   "share ranks (colocated: true), since rank r of both is "
                   "then one process; or paired"));
}

// Refuses towers whose output is not whole where the plan of its rows is.
void CheckTower(const std::string& name, const v1::Topology::Module& encoder,
                KeyReport* report) {
  if (encoder.sequence_parallel() && encoder.tp() > 1) {
    report->AddFault(
        kPlacement,
        absl::StrCat(
            "found split with topology.modules.", name,
            ".sequence_parallel: true; wanted false, since each tensor rank of "
            "such a tower ends with a part of every image's embeddings, and "
            "whole images move: gather the tower's output before it, or "
            "paired"));
  }
  if (encoder.pp() > 1) {
    report->AddFault(
        kPlacement,
        absl::StrCat("found split with topology.modules.", name, ".pp ",
                     encoder.pp(),
                     "; wanted 1, since the plan by which embeddings move "
                     "is with the tower's pixels, on its first stage, or "
                     "paired"));
  }
}

// Refuses families whose towers' output is not one embedding for each merged
// patch.
void CheckEmbeddings(const v1::Model& model, KeyReport* report) {
  if (HasPlaceholdersByPatches(model)) return;
  report->AddFault(
      kPlacement,
      absl::StrCat("found split with the family ", GetImageFamily(model).name,
                   ", whose placeholders include newlines; wanted "
                   "paired, or a family with one for each merged patch"));
}

// ---- packing

// Checks the packing against the trainer's layout, whatever its mode.
void ValidatePackShape(const v1::Config& config,
                       const v1::Topology::Module& language,
                       KeyReport* report) {
  const v1::Packing& packing = config.packing();
  // `auto`, which is 0, always fits.
  const uint64_t dynamic = DynamicCp(config);
  const uint64_t pieces = 2 * std::max<uint64_t>(language.cp(), dynamic);
  if (pieces > 2 && !report->IsFaulty("packing.align") &&
      packing.align() % pieces != 0) {
    report->AddFault(
        "packing.align",
        absl::StrCat(
            "found ", packing.align(), "; wanted a multiple of twice ",
            dynamic > 1 ? "packing.dynamic_cp, " : "language cp, ", pieces,
            ", the number of pieces that context parallelism cuts each "
            "sample into, or auto"));
  }
  const uint32_t group = packing.virtual_pipeline_group();
  if (packing.mode() == v1::Packing::MODE_SCHEDULED || group < 2 ||
      report->HasFaultWithin("packing") || report->HasFaultWithin("batch")) {
    return;
  }
  const auto sizes = BatchSizes(config.batch());
  if (!sizes.ok()) return;  // a fault of `batch`
  for (const BatchSize& size : *sizes) {
    const uint32_t micro_batches = size.samples / config.batch().micro();
    if (micro_batches % group == 0) continue;
    return report->AddFault(
        "packing.virtual_pipeline_group",
        absl::StrCat("found ", group, "; wanted one that divides the ",
                     micro_batches, " micro-batches of ",
                     size.first_step == 0
                         ? std::string("a step, batch.global / batch.micro")
                         : absl::StrCat("step ", size.first_step,
                                        " (batch.rampup, batch.changes)")));
  }
  const auto check_own = [&](const char* key, const v1::Batch::Sizes& own) {
    if (own.global() / own.micro() % group == 0) return;
    report->AddFault(
        "packing.virtual_pipeline_group",
        absl::StrCat("found ", group, "; wanted one that divides the ",
                     own.global() / own.micro(), " micro-batches of a step, ",
                     key, ".global / ", key, ".micro"));
  };
  if (config.batch().has_valid()) {
    check_own("batch.valid", config.batch().valid());
  }
  if (config.batch().has_test()) check_own("batch.test", config.batch().test());
}

// Packs are filled by their lengths alone, so an objective that weighs encoders
// against language would have no effect.
void ValidateObjective(const v1::Config& config, KeyReport* report) {
  if (config.packing().mode() != v1::Packing::MODE_SCHEDULED ||
      config.balance().objective() != v1::Balance::OBJECTIVE_PHASES ||
      report->IsFaulty("packing.mode") ||
      report->IsFaulty("balance.objective")) {
    return;
  }
  report->AddFault(
      "balance.objective",
      "found phases with packing.mode scheduled, which fills packs by their "
      "numbers of tokens alone and does not balance vision; wanted sum, or "
      "packing.mode: shard");
}

// What packing.dynamic_cp rules out.
void ValidateDynamic(const v1::Config& config,
                     const v1::Topology::Module& language, KeyReport* report) {
  const uint32_t dynamic = DynamicCp(config);
  if (dynamic == 1) return;
  const auto refuse = [&](const auto&... why) {
    report->AddFault("packing.dynamic_cp",
                     absl::StrCat("found ", dynamic, why...));
  };
  if (!std::has_single_bit(dynamic) || language.dp() % dynamic != 0) {
    refuse("; wanted a power of two that divides language dp, ", language.dp());
  }
  if (language.cp() != 1) {
    refuse(" with language cp ", language.cp(),
           "; wanted cp: 1, and a dp that counts all ranks of data and context "
           "parallelism, ",
           uint64_t{language.dp()} * language.cp());
  }
  if (language.pp() != 1) {
    refuse(" with language pp ", language.pp(),
           "; wanted pp: 1, as Megatron-Core wants it where packs differ in "
           "size");
  }
  const bool is_split =
      config.balance().placement() == v1::Balance::PLACEMENT_SPLIT;
  for (const v1::Module module : Modules(config)) {
    if (GetMedia(module) == Media::kRows) {
      refuse(
          " with the module audio; wanted images and language, or "
          "language alone: embeddings of audio do not go to the ranks that "
          "share a pack. Set dynamic_cp: 1, and language cp for long "
          "samples");
    } else if (IsEncoder(module) && !config.topology().colocated()) {
      refuse(" with the module ", ModuleName(module),
             " and topology.colocated: false; wanted colocated: true, where "
             "an image's embeddings go to all ranks that share its pack");
    } else if (IsEncoder(module) && !is_split &&
               !report->IsFaulty(kPlacement)) {
      refuse(" with the module ", ModuleName(module),
             " and balance.placement paired; wanted placement: split, by "
             "which an image is encoded once and its embeddings go to all "
             "ranks that share its pack");
    }
  }
  if (config.balance().algorithm() == v1::Balance::ALGORITHM_LPT &&
      !report->IsFaulty("balance.algorithm")) {
    refuse(
        " with balance.algorithm lpt; wanted refined: Megatron-Core's own "
        "rule fits ranks that compute their samples one after the other, "
        "whose packs exceed packing.max_tokens_per_rank");
  }
  for (const char* const key : {"order.plan", "batch.packs"}) {
    if (!report->Has(key)) continue;
    refuse(" with ", key, "; wanted dynamic_cp: 1, since ", key,
           " counts packs of one size");
  }
}

// `longest`: the longest sample's padded length.
void ValidateScheduled(const v1::Config& config,
                       const v1::Topology::Module& language, uint64_t longest,
                       KeyReport* report) {
  const uint64_t room = PackCapacity(config, language);
  if (room >= longest) return;
  const uint32_t dynamic = DynamicCp(config);
  report->AddFault(
      "packing.max_tokens_per_rank",
      absl::StrCat(
          "found ", config.packing().max_tokens_per_rank(),
          dynamic > 1 ? ", times packing.dynamic_cp " : ", times language cp ",
          dynamic > 1 ? dynamic : language.cp(), " a pack of ", room,
          " tokens; wanted packs that hold a sample of "
          "batch.max_tokens, ",
          longest, " tokens when padded"));
}

void ValidatePadded(const v1::Config& config, uint64_t longest,
                    KeyReport* report) {
  const uint64_t row = config.packing().row_length();
  const uint64_t align = PackAlign(config, v1::MODULE_LANGUAGE);
  if (row != 0 && (row < longest || row % align != 0)) {
    report->AddFault(
        "packing.row_length",
        absl::StrCat("found ", row, "; wanted a multiple of packing.align, ",
                     align, ", that holds a sample of batch.max_tokens, ",
                     longest, " tokens when padded, or auto"));
  }
  if (!config.balance().equal_count() &&
      !report->IsFaulty("balance.equal_count")) {
    report->AddFault(
        "packing.mode",
        "found padded without balance.equal_count; wanted equal_count: true, "
        "since each sample is a row, and trainers want as many rows on every "
        "rank");
  }
}

// ---- balance

// `key` is the section's key. `delivery` is not `off`.
void ValidateCost(const v1::Balance::Cost& cost, absl::string_view key,
                  KeyReport* report) {
  if (report->HasFaultWithin(key)) return;
  for (const ModuleKind& kind : ModuleKinds()) {
    const v1::Balance::Coefficients& of = GetCoefficients(cost, kind.module);
    if (of.linear() != 0 || of.quadratic() != 0) return;
  }
  report->AddFault(key,
                   "found only zeros, which make all plans equal; wanted one "
                   "coefficient above 0, or delivery: off");
}

void ValidateCostChanges(const v1::Balance& balance, KeyReport* report) {
  uint64_t before = 0;
  for (int i = 0; i < balance.cost_changes_size(); ++i) {
    const std::string item = ItemKey("balance.cost_changes", i);
    if (report->IsFaulty(item)) continue;
    const std::string key = ChildKey(item, "step");
    if (report->IsFaulty(key)) continue;
    const uint64_t step = balance.cost_changes(i).step();
    if (step <= before) {
      report->AddFault(key, absl::StrCat("found ", step,
                                         "; wanted a step after the "
                                         "preceding entry's, ",
                                         before));
      continue;
    }
    before = step;
  }
}

}  // namespace

// Adds a fault unless the sizes of a step under the key `at` fit each other and
// the grid.
void CheckSizes(const v1::Config& config, absl::string_view at, uint32_t global,
                uint32_t micro, KeyReport* report) {
  const std::string global_key = absl::StrCat(at, ".global");
  const std::string micro_key = absl::StrCat(at, ".micro");
  if (report->IsFaulty(micro_key)) return;
  if (!report->IsFaulty(global_key) && global % micro != 0) {
    report->AddFault(global_key,
                     absl::StrCat("found ", global, "; wanted a multiple of ",
                                  micro_key, ", ", micro));
  }
  const uint32_t grid = Grid(config.topology());
  if (!report->HasFaultWithin("topology.modules") && micro % grid != 0) {
    report->AddFault(
        micro_key,
        absl::StrCat("found ", micro, "; wanted a multiple of the grid, ", grid,
                     " (the LCM of ", DescribeGrid(config), ")"));
  }
}

// Checks batch.tokens, batch.packs and order.plan against the keys that also
// give steps their samples.
void CheckOwnSteps(const v1::Config& config, KeyReport* report) {
  const v1::Batch& batch = config.batch();
  const bool by_packs = report->Has("batch.packs");
  if (by_packs != report->Has("batch.pack_tokens")) {
    report->AddFault(by_packs ? "batch.packs" : "batch.pack_tokens",
                     by_packs ? "found without pack_tokens; wanted both"
                              : "found without packs; wanted both");
  }
  const bool has_plan = report->Has("order.plan");
  if (has_plan && report->Has("order.epochs") && config.order().epochs() > 0) {
    report->AddFault("order.epochs",
                     "found with order.plan; wanted one of them, since the "
                     "data end with the plan's last step");
  }
  if (!by_packs && !report->Has("batch.tokens")) return;
  const std::string key = by_packs ? "batch.packs" : "batch.tokens";
  if (report->IsFaulty(key)) return;
  const auto refuse = [&](const char* other, absl::string_view why) {
    if (!report->Has(other)) return;
    report->AddFault(key, absl::StrCat("found with ", other,
                                       "; wanted one of them, since ", why));
  };
  if (by_packs) refuse("batch.tokens", "each gives a step its size");
  refuse("batch.rampup", "it grows batch.global");
  refuse("batch.changes", "it changes batch.global");
  refuse("order.plan", "a plan file gives steps their samples");
  for (const v1::Source& source : config.sources()) {
    const bool has_own = source.split() == v1::SPLIT_VALID  ? batch.has_valid()
                         : source.split() == v1::SPLIT_TEST ? batch.has_test()
                                                            : true;
    if (has_own) continue;
    const char* const split =
        source.split() == v1::SPLIT_VALID ? "valid" : "test";
    report->AddFault(
        key, absl::StrCat("found with source ", Shown(source.name()),
                          " of split ", split, "; wanted batch.", split,
                          ", since the steps of other splits than train have a "
                          "number of samples"));
    break;
  }
  if (!by_packs || report->HasFaultWithin("packing") ||
      report->HasFaultWithin("topology.modules") ||
      report->IsFaulty("batch.pack_tokens")) {
    return;
  }
  const v1::Topology::Module* const language = FindLanguage(config);
  if (config.packing().mode() != v1::Packing::MODE_SCHEDULED ||
      language == nullptr) {
    return report->AddFault(
        key,
        "found without packing.mode: scheduled; wanted that mode, which "
        "fills packs, or batch.tokens");
  }
  const uint64_t room =
      uint64_t{config.packing().max_tokens_per_rank()} * language->cp();
  if (batch.pack_tokens() != room) {
    report->AddFault(
        "batch.pack_tokens",
        absl::StrCat("found ", batch.pack_tokens(), "; wanted ", room,
                     ", the tokens of a pack: packing.max_tokens_per_rank "
                     "times language cp"));
  }
  const uint64_t multiple = uint64_t{Grid(config.topology())} *
                            config.packing().virtual_pipeline_group();
  if (multiple != 0 && batch.packs() % multiple != 0) {
    report->AddFault(
        key,
        absl::StrCat("found ", batch.packs(),
                     "; wanted a multiple of the grid (the LCM of ",
                     DescribeGrid(config),
                     ") times packing.virtual_pipeline_group, ", multiple));
  }
}

void ValidateBatch(const v1::Config& config, KeyReport* report) {
  if (report->IsFaulty("batch")) return;
  CheckOwnSteps(config, report);
  const v1::Batch& batch = config.batch();
  CheckSizes(config, "batch", batch.global(), batch.micro(), report);
  if (batch.has_valid() && !report->IsFaulty("batch.valid")) {
    CheckSizes(config, "batch.valid", batch.valid().global(),
               batch.valid().micro(), report);
  }
  if (batch.has_test() && !report->IsFaulty("batch.test")) {
    CheckSizes(config, "batch.test", batch.test().global(),
               batch.test().micro(), report);
  }
  if (report->Has("batch.tokens") || report->Has("batch.packs")) return;
  const bool has_micro = !report->IsFaulty("batch.micro");
  if (!has_micro || report->IsFaulty("batch.global")) return;
  if (report->Has("batch.rampup") && !report->IsFaulty("batch.rampup")) {
    CheckRampup(batch, report);
  }
  if (!report->HasFaultWithin("batch.rampup") &&
      !report->IsFaulty("batch.changes")) {
    CheckChanges(batch, report);
  }
}

void ValidatePlacement(const v1::Config& config, KeyReport* report) {
  const v1::Balance& balance = config.balance();
  if (balance.placement() != v1::Balance::PLACEMENT_SPLIT ||
      report->IsFaulty(kPlacement) || report->HasFaultWithin("topology")) {
    return;
  }
  CheckRanks(config, report);
  if (DpSize(config, v1::MODULE_VISION) > 0) {
    CheckEmbeddings(config.model(), report);
  }
  for (const v1::Module module : Modules(config)) {
    if (!IsEncoder(module)) continue;
    const std::string name(ModuleName(module));
    CheckTower(name, config.topology().modules().at(name), report);
  }
  if (balance.algorithm() == v1::Balance::ALGORITHM_LPT &&
      !report->IsFaulty("balance.algorithm")) {
    report->AddFault(kPlacement,
                     "found split with algorithm lpt, which balances the sum "
                     "of both modules; wanted paired, or algorithm: refined");
  }
  const v1::Balance::Coefficients& language =
      GetCoefficients(balance.cost(), v1::MODULE_LANGUAGE);
  if (config.packing().mode() == v1::Packing::MODE_SHARD &&
      balance.delivery() != v1::DELIVERY_OFF && language.linear() == 0 &&
      language.quadratic() == 0 && !report->HasFaultWithin("balance.cost")) {
    report->AddFault(kPlacement,
                     "found split with balance.cost.language 0, which leaves "
                     "language as read; wanted a cost of both modules, for "
                     "example cost: {model: DIR}, or paired");
  }
}

void ValidatePairs(const v1::Config& config, KeyReport* report) {
  for (int i = 0; i < config.sources_size(); ++i) {
    const v1::Source& source = config.sources(i);
    const std::string key = ChildKey(ItemKey("sources", i), "pairs");
    if (!source.pairs() || report->HasFaultWithin(ItemKey("sources", i))) {
      continue;
    }
    const auto refuse = [&](const auto&... what) {
      report->AddFault(key, absl::StrCat("found true ", what...));
    };
    if (source.has_columns() ||
        source.preset() != v1::Source::PRESET_UNSPECIFIED) {
      refuse(
          "with `columns` or `preset`, which name the columns of one "
          "conversation; wanted neither: a pair's are found by their names");
    }
    for (const auto& [name, field] : source.fields()) {
      if (field.per() != v1::Source::Field::PER_TOKEN) continue;
      refuse("with the field ", Shown(name),
             ", of one number a token: a pair has two texts; wanted fields of "
             "samples and turns");
    }
    const auto is_other = [&](const v1::Source& other) {
      return other.split() == source.split() && !other.pairs();
    };
    if (config.packing().mode() == v1::Packing::MODE_PADDED &&
        std::any_of(config.sources().begin(), config.sources().end(),
                    is_other)) {
      refuse(
          "with packing.mode: padded and other sources of its split without "
          "it: ranks would have other numbers of rows; wanted it for all, or "
          "another mode");
    }
    if (config.balance().placement() == v1::Balance::PLACEMENT_SPLIT &&
        !report->IsFaulty(kPlacement)) {
      refuse(
          "with balance.placement: split, where an image's embeddings would go "
          "to two sequences; wanted paired");
    }
    if (config.batch().on_too_long() == v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT &&
        !report->IsFaulty("batch.on_too_long")) {
      refuse(
          "with batch.on_too_long: truncate_text, which would cut the rejected "
          "answer alone; wanted skip or error");
    }
  }
}

void ValidatePacking(const v1::Config& config, KeyReport* report) {
  const v1::Packing& packing = config.packing();
  if (report->IsFaulty("packing")) return;
  if (packing.row_length() != 0 && !report->IsFaulty("packing.mode") &&
      packing.mode() != v1::Packing::MODE_PADDED) {
    report->AddFault("packing.row_length",
                     absl::StrCat("found ", packing.row_length(),
                                  " without mode: padded; wanted it for that "
                                  "mode alone"));
  }
  ValidateObjective(config, report);
  const v1::Topology::Module* const language = FindLanguage(config);
  if (language == nullptr ||
      report->HasFaultWithin(
          absl::StrCat("topology.modules.", ModuleName(v1::MODULE_LANGUAGE)))) {
    return;
  }
  ValidatePackShape(config, *language, report);
  if (!report->HasFaultWithin("packing") &&
      !report->HasFaultWithin("topology.modules")) {
    ValidateDynamic(config, *language, report);
  }
  if (report->HasFaultWithin("packing") ||
      report->IsFaulty("batch.max_tokens")) {
    return;
  }
  const uint64_t align = PackAlign(config, v1::MODULE_LANGUAGE);
  const uint64_t longest = AlignUp(config.batch().max_tokens(), align);
  if (packing.mode() == v1::Packing::MODE_SCHEDULED) {
    // Both sequences of a pair are padded.
    const bool has_pairs =
        std::any_of(config.sources().begin(), config.sources().end(),
                    [](const v1::Source& source) { return source.pairs(); });
    const uint64_t most = config.batch().max_tokens() + 2 * (align - 1);
    ValidateScheduled(config, *language,
                      has_pairs ? most / align * align : longest, report);
  } else if (packing.mode() == v1::Packing::MODE_PADDED) {
    ValidatePadded(config, longest, report);
  }
}

void ValidateBalance(const v1::Config& config, KeyReport* report) {
  const v1::Balance& balance = config.balance();
  if (balance.scope() == v1::Balance::SCOPE_MICRO_BATCH &&
      balance.window() > 1 && !report->IsFaulty("balance.scope") &&
      !report->IsFaulty("balance.window")) {
    report->AddFault(
        "balance.window",
        absl::StrCat("found ", balance.window(),
                     " with scope micro_batch; wanted 1, or scope: window"));
  }
  if (report->Has("balance.objective") &&
      balance.objective() == v1::Balance::OBJECTIVE_PHASES &&
      balance.algorithm() == v1::Balance::ALGORITHM_LPT &&
      !report->IsFaulty("balance.objective")) {
    report->AddFault(
        "balance.objective",
        "found phases with algorithm lpt; wanted sum, or algorithm: refined");
  }
  if (!report->IsFaulty("balance.cost_changes")) {
    ValidateCostChanges(balance, report);
  }
  if (report->IsFaulty("balance.delivery") ||
      balance.delivery() == v1::DELIVERY_OFF) {
    return;
  }
  ValidateCost(balance.cost(), "balance.cost", report);
  for (int i = 0; i < balance.cost_changes_size(); ++i) {
    ValidateCost(balance.cost_changes(i).cost(),
                 ChildKey(ItemKey("balance.cost_changes", i), "cost"), report);
  }
}

}  // namespace ballast
