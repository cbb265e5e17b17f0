#ifndef BALLAST_SERVER_CONFIG_MODEL_COST_H_
#define BALLAST_SERVER_CONFIG_MODEL_COST_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/settings/key_report.h"

namespace ballast {

// The coefficients of balance.cost for a Hugging Face model, computed from the
// text of its config.json: GFLOP of one forward and backward pass for each
// patch or token (linear) and for each square of an image's patches or a
// sample's tokens (quadratic). docs/schedule.md, "Costs from a model", has the
// formula. Pure. Errors: INVALID_ARGUMENT (not a JSON object; a model_type
// other than qwen2_vl, qwen2_5_vl, qwen3_vl, qwen3_5 and qwen3_5_moe; a key
// that is missing or not a positive whole number), naming the key.
absl::StatusOr<v1::Balance::Cost> ModelCost(absl::string_view config_json);

// The value of balance.cost.model for costs from what the configuration says of
// its model.
inline constexpr char kAutoCost[] = "auto";

// Replaces `model` of balance.cost and of each entry of balance.cost_changes by
// coefficients: of ModelCost over config.json in that directory; with kAutoCost
// in the folder of model.tokenizer, else those of model.profile, else those of
// a vision tower of 0.6 and a language model of 7 billion parameters.
// Coefficients that the configuration file gives stay as they are. Returns the
// origin of those of balance.cost for messages, as "by config.json of DIR", or
// "as the configuration says". Adds a fault if a directory is given and its
// config.json cannot be read or used. Paths are resolved. Blocks on the disk.
std::string ResolveModelCosts(v1::Config* config, KeyReport* report);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_MODEL_COST_H_
