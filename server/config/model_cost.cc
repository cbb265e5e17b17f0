#include "server/config/model_cost.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "server/config/topology.h"
#include "server/model/profiles.h"

namespace ballast {
namespace {

using Json = nlohmann::json;

// A multiplication and an addition; the backward pass takes twice the forward.
constexpr double kFlops = 2;
constexpr double kPasses = 3;
constexpr double kGiga = 1e9;

// Reads whole numbers from one section of config.json and keeps the first
// error.
class Section {
 public:
  Section(const Json& values, std::string name)
      : values_(values), name_(std::move(name)) {}

  bool Has(const char* key) const { return values_.contains(key); }

  double Get(const char* key) {
    constexpr uint64_t kMaxCount = uint64_t{1} << 32;
    const auto found = values_.find(key);
    if (found != values_.end() && found->is_number_unsigned() &&
        found->get<uint64_t>() > 0 && found->get<uint64_t>() <= kMaxCount) {
      return static_cast<double>(found->get<uint64_t>());
    }
    status_.Update(absl::InvalidArgumentError(
        absl::StrCat(name_, key, ": found ",
                     found == values_.end() ? "nothing" : found->dump(),
                     "; wanted a whole number from 1 to ", kMaxCount)));
    return 1;
  }

  double Get(const char* key, double otherwise) {
    return Has(key) ? Get(key) : otherwise;
  }

  // Number of entries of a list, or of those that are `entry`; 0 without the
  // key.
  size_t Count(const char* key, const char* entry = nullptr) {
    const auto found = values_.find(key);
    if (found == values_.end()) return 0;
    if (found->is_array()) {
      return entry == nullptr ? found->size()
                              : std::count(found->begin(), found->end(), entry);
    }
    status_.Update(absl::InvalidArgumentError(absl::StrCat(
        name_, key, ": found ", found->dump(), "; wanted a list")));
    return 0;
  }

  const absl::Status& status() const { return status_; }

 private:
  const Json& values_;
  const std::string name_;
  absl::Status status_;
};

void Set(double linear, double quadratic, v1::Balance::Coefficients* out) {
  out->set_linear(kPasses * kFlops * linear / kGiga);
  out->set_quadratic(kPasses * kFlops * quadratic / kGiga);
}

// A gated MLP, or the experts that a token goes through: those that the router
// chooses, and a shared one with its gate.
double MlpCost(Section* text, double width) {
  if (!text->Has("num_experts")) {
    return 3 * width * text->Get("intermediate_size");
  }
  const double chosen =
      text->Get("num_experts_per_tok") * text->Get("moe_intermediate_size");
  const double shared = text->Get("shared_expert_intermediate_size");
  return width * text->Get("num_experts") + 3 * width * (chosen + shared) +
         width;
}

// A gated delta net: projections, a convolution, and four products of a key's
// and a value's width a head, as Megatron-LM counts them.
double DeltaNetCost(Section* text, double width) {
  const double value_heads = text->Get("linear_num_value_heads");
  const double key_head = text->Get("linear_key_head_dim");
  const double value_head = text->Get("linear_value_head_dim");
  const double keys = text->Get("linear_num_key_heads") * key_head;
  const double values = value_heads * value_head;
  return width * (2 * keys + 3 * values + 2 * value_heads) +
         text->Get("linear_conv_kernel_dim", 4) * (2 * keys + values) +
         4 * value_heads * key_head * value_head;
}

// Causal attention with grouped queries, MLPs, and the output layer. In Qwen3.5
// most layers have linear attention, and the others a gate for each query.
void SetLanguage(const std::string& model_type, Section* text,
                 v1::Balance::Coefficients* out) {
  const bool is_qwen3_5 = absl::StartsWith(model_type, "qwen3_5");
  const double width = text->Get("hidden_size");
  const double layers = text->Get("num_hidden_layers");
  const double heads = text->Get("num_attention_heads");
  const double head = text->Get("head_dim", width / heads);
  const double query = heads * head;
  const double key_value = text->Get("num_key_value_heads", heads) * head;
  const double attention =
      (is_qwen3_5 ? 3 : 2) * width * query + 2 * width * key_value;
  double full = layers, linear = 0;
  if (is_qwen3_5) {
    full = text->Has("layer_types")
               ? text->Count("layer_types", "full_attention")
               : std::floor(layers / text->Get("full_attention_interval", 4));
    linear = (layers - full) * DeltaNetCost(text, width);
  }
  const double output = width * text->Get("vocab_size");
  // Scores and values; causal attention covers half of the n*n pairs.
  Set(full * attention + linear + layers * MlpCost(text, width) + output,
      full * query, out);
}

// A vision tower: patch embedding, layers of full or windowed attention, and
// one merger or several.
void SetVision(const std::string& model_type, Section* vision,
               v1::Balance::Coefficients* out) {
  const bool is_qwen2 = model_type == "qwen2_vl";
  const bool is_qwen2_5 = model_type == "qwen2_5_vl";
  const double width = vision->Get(is_qwen2 ? "embed_dim" : "hidden_size");
  const double layers = vision->Get("depth");
  const double patch = vision->Get("patch_size");
  const double merge = vision->Get("spatial_merge_size");
  const double inner = is_qwen2 ? width * vision->Get("mlp_ratio", 4)
                                : vision->Get("intermediate_size");
  const double out_width =
      vision->Get(is_qwen2 ? "hidden_size" : "out_hidden_size");
  const double channels =
      vision->Get("in_channels", vision->Get("in_chans", 3));
  const double embedding =
      channels * vision->Get("temporal_patch_size", 2) * patch * patch * width;
  const double matrices = is_qwen2_5 ? 3 : 2;  // of an MLP: gated or not
  const double layer = 4 * width * width + matrices * width * inner;
  // All patches of a merged token go through two matrices together.
  const double merged = width * merge * merge;
  const double merger = (merged * merged + merged * out_width) / merge / merge;
  const double mergers = 1 + vision->Count("deepstack_visual_indexes");
  double full = layers, window = 0;
  if (is_qwen2_5) {
    const double side = vision->Get("window_size", 112) / patch;
    window = side * side;
    full = static_cast<double>(vision->Count("fullatt_block_indexes"));
  }
  // Scores and values, for all pairs within an image or a window.
  Set(embedding + layers * layer + mergers * merger +
          (layers - full) * 2 * width * window,
      full * 2 * width, out);
}

// A real config.json has a few KB.
constexpr size_t kMaxModelConfig = size_t{1} << 20;

absl::StatusOr<v1::Balance::Cost> ReadModelCost(const std::string& path) {
  BALLAST_ASSIGN_OR_RETURN(const std::string text,
                           ReadSmallFile(path, kMaxModelConfig));
  const absl::StatusOr<v1::Balance::Cost> cost = ModelCost(text);
  if (!cost.ok()) return Annotate(cost.status(), path);
  return cost;
}

// Sets the coefficients that the file does not give. `key` is the section's
// key.
void FillIn(const KeyReport& report, const std::string& key,
            const v1::Balance::Coefficients& computed,
            v1::Balance::Coefficients* out) {
  if (!report.Has(ChildKey(key, "linear"))) out->set_linear(computed.linear());
  if (!report.Has(ChildKey(key, "quadratic"))) {
    out->set_quadratic(computed.quadratic());
  }
}

// Costs and their origin.
struct KnownCost {
  v1::Balance::Cost cost;
  std::string origin;
};

// The costs of Qwen2.5-VL-7B, and of the encoder of Whisper large-v3, which
// Qwen2-Audio has: 637 million parameters, two frames of features at a time.
KnownCost UnknownModel() {
  KnownCost known;
  known.cost.mutable_vision()->set_linear(3.883);
  known.cost.mutable_vision()->set_quadratic(6.144e-5);
  known.cost.mutable_audio()->set_linear(1.911);
  known.cost.mutable_language()->set_linear(42.42);
  known.cost.mutable_language()->set_quadratic(6.021e-4);
  known.origin =
      "as for a vision tower of 0.6 and a language model of 7 billion "
      "parameters, since neither the tokenizer's folder nor model.profile says "
      "more; balance.cost.model names a checkpoint";
  return known;
}

// The cost of a module that `of` has; otherwise it stays as it is.
void Take(const v1::ModelCost::Coefficients& of,
          v1::Balance::Coefficients* cost) {
  if (of.linear() == 0 && of.quadratic() == 0) return;
  cost->set_linear(of.linear());
  cost->set_quadratic(of.quadratic());
}

KnownCost KnowCost(const v1::Model& model) {
  KnownCost known = UnknownModel();
  const size_t slash = model.tokenizer().rfind('/');
  if (slash != std::string::npos) {
    const std::string folder = model.tokenizer().substr(0, slash);
    const auto cost = ReadModelCost(absl::StrCat(folder, "/config.json"));
    if (cost.ok()) {
      *known.cost.mutable_vision() = cost->vision();
      *known.cost.mutable_language() = cost->language();
      known.origin = absl::StrCat("by config.json of ", folder);
      return known;
    }
  }
  const v1::ModelProfile* const profile = GetProfile(model);
  if (profile == nullptr || !profile->has_cost()) return known;
  const v1::ModelCost& cost = profile->cost();
  Take(cost.vision(), known.cost.mutable_vision());
  Take(cost.audio(), known.cost.mutable_audio());
  Take(cost.language(), known.cost.mutable_language());
  known.origin =
      absl::StrCat("as of ", cost.checkpoint(), ", which model.profile ",
                   profile->name(), " names; balance.cost.model names yours");
  return known;
}

absl::StatusOr<KnownCost> FindCost(const std::string& named,
                                   const v1::Config& config) {
  if (named == kAutoCost) {
    KnownCost known = KnowCost(config.model());
    // Sections that are there are in the fingerprint.
    if (!config.topology().modules().contains("audio")) {
      known.cost.clear_audio();
    }
    return known;
  }
  BALLAST_ASSIGN_OR_RETURN(v1::Balance::Cost cost,
                           ReadModelCost(absl::StrCat(named, "/config.json")));
  cost.mutable_audio();
  return KnownCost{std::move(cost), absl::StrCat("by config.json of ", named)};
}

// Fills in `cost`, of section `key`, and returns the origin.
std::string Resolve(const std::string& key, const v1::Config& config,
                    v1::Balance::Cost* cost, KeyReport* report) {
  if (cost->model().empty()) return "as the configuration says";
  const absl::StatusOr<KnownCost> known = FindCost(cost->model(), config);
  cost->clear_model();
  if (!known.ok()) {
    report->AddFault(ChildKey(key, "model"),
                     absl::StrCat(std::string(known.status().message()),
                                  "; wanted the directory of a Hugging Face "
                                  "model, or ",
                                  kAutoCost));
    return "";
  }
  for (const ModuleKind& kind : ModuleKinds()) {
    if (kind.module == v1::MODULE_AUDIO && !known->cost.has_audio()) continue;
    auto* const of = MutableCoefficients(cost, kind.module);
    if (of == nullptr) continue;
    FillIn(*report, ChildKey(key, kind.name),
           GetCoefficients(known->cost, kind.module), of);
  }
  return known->origin;
}

}  // namespace

absl::StatusOr<v1::Balance::Cost> ModelCost(absl::string_view config_json) {
  const Json config = Json::parse(config_json.begin(), config_json.end(),
                                  /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return absl::InvalidArgumentError("found no JSON object");
  }
  const auto type = config.find("model_type");
  const std::string model_type =
      type != config.end() && type->is_string() ? type->get<std::string>() : "";
  constexpr absl::string_view kKnown[] = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl",
                                          "qwen3_5", "qwen3_5_moe"};
  if (std::find(std::begin(kKnown), std::end(kKnown), model_type) ==
      std::end(kKnown)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model_type: found \"", model_type, "\"; wanted one of ",
        absl::StrJoin(kKnown, ", "),
        ", or coefficients in numbers (`ballastctl fit-cost` measures them)"));
  }
  const Json none = Json::object();
  const auto section = [&](const char* key) -> const Json& {
    const auto found = config.find(key);
    return found != config.end() && found->is_object() ? *found : none;
  };
  // Older files hold the language model's keys at the top.
  const bool nested = config.contains("text_config");
  Section text(nested ? section("text_config") : config,
               nested ? "text_config." : "");
  Section vision(section("vision_config"), "vision_config.");
  v1::Balance::Cost cost;
  SetLanguage(model_type, &text, cost.mutable_language());
  SetVision(model_type, &vision, cost.mutable_vision());
  BALLAST_RETURN_IF_ERROR(text.status());
  BALLAST_RETURN_IF_ERROR(vision.status());
  return cost;
}

std::string ResolveModelCosts(v1::Config* config, KeyReport* report) {
  v1::Balance* const balance = config->mutable_balance();
  const std::string origin =
      Resolve("balance.cost", *config, balance->mutable_cost(), report);
  for (int i = 0; i < balance->cost_changes_size(); ++i) {
    Resolve(ChildKey(ItemKey("balance.cost_changes", i), "cost"), *config,
            balance->mutable_cost_changes(i)->mutable_cost(), report);
  }
  return origin;
}

}  // namespace ballast
