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

// Replaces `model` of balance.cost and of each entry of balance.cost_changes by
// the coefficients that ModelCost computes from config.json in that directory.
// Coefficients that the configuration file gives stay as they are. Adds a fault
// if a config.json cannot be read or used. Paths are resolved. Blocks on the
// disk.
void ResolveModelCosts(v1::Balance* balance, KeyReport* report);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_MODEL_COST_H_
