#include "server/config/trial_tokenizer.h"

#include <algorithm>

namespace ballast {

std::string TrialTokenizerWarning(const v1::Config& config) {
  const bool has_text =
      std::any_of(config.sources().begin(), config.sources().end(),
                  [](const v1::Source& source) {
                    return source.format() != v1::Source::FORMAT_MOCK;
                  });
  if (config.model().tokenizer() != "bytes" || !has_text) return "";
  return "model.tokenizer is bytes, the default: each byte of text is a token, "
         "ids 0 to 255, which is for trials; to train a released model, name "
         "its tokenizer.json";
}

}  // namespace ballast
