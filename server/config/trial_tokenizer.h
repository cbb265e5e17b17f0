#ifndef BALLAST_SERVER_CONFIG_TRIAL_TOKENIZER_H_
#define BALLAST_SERVER_CONFIG_TRIAL_TOKENIZER_H_

#include <string>

#include "proto/config.pb.h"

namespace ballast {

// Why training with the loaded `config` teaches no released model its text:
// model.tokenizer is `bytes`, which is also what a configuration without the
// key has, and a source has a text of its own. Empty otherwise. Pure.
std::string TrialTokenizerWarning(const v1::Config& config);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_TRIAL_TOKENIZER_H_
