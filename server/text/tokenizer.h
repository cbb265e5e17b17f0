#ifndef BALLAST_SERVER_TEXT_TOKENIZER_H_
#define BALLAST_SERVER_TEXT_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Text to token ids. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` to `ids`; adds no special tokens of its own.
  virtual absl::Status Encode(absl::string_view text,
                              std::vector<int32_t>* ids) const = 0;

  // Equal for tokenizers that encode alike; part of the fingerprint.
  virtual std::string digest() const = 0;
};

// `bytes` (one token a byte, ids 0..255), or the path of a tokenizer.json.
// Errors: UNIMPLEMENTED (tokenizer.json, until it is built), NOT_FOUND.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(
    const std::string& name_or_path);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TOKENIZER_H_
