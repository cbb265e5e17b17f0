#ifndef BALLAST_SERVER_TEXT_BPE_TOKENIZER_JSON_H_
#define BALLAST_SERVER_TEXT_BPE_TOKENIZER_JSON_H_

#include <simdjson.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/text/bpe/added_tokens.h"
#include "server/text/bpe/bpe_model.h"

namespace ballast {

// Reads a JSON file in which every key must be understood. Each error names the
// key's place in the file ("model.merges[3]"), the value found and the value
// wanted. All errors are INVALID_ARGUMENT.

inline absl::string_view JsonView(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

absl::Status UnsupportedJson(absl::string_view key,
                             simdjson::dom::element found,
                             absl::string_view wanted);

// An object of the file. Must not outlive the parser.
class JsonSection {
 public:
  // `key` is the object's place; empty for the whole file.
  static absl::StatusOr<JsonSection> Open(absl::string_view key,
                                          simdjson::dom::element value);

  const std::string& key() const { return key_; }
  // The place of a value in this object.
  std::string ChildKey(absl::string_view name) const;
  const simdjson::dom::object& fields() const { return object_; }

  // The value; nullopt if the key is absent or null.
  std::optional<simdjson::dom::element> Get(absl::string_view name) const;

  // Fails on a key that is not in `names`.
  absl::Status CheckKeys(std::initializer_list<absl::string_view> names) const;
  // Fails unless the value is absent, null or an empty string.
  absl::Status CheckNothing(absl::string_view name) const;

  absl::StatusOr<std::string> String(absl::string_view name) const;
  // `absent` is the default; nullopt if the value is required.
  absl::StatusOr<bool> Bool(absl::string_view name,
                            std::optional<bool> absent) const;
  absl::StatusOr<simdjson::dom::array> List(absl::string_view name) const;

  // The error for a value that is not as `wanted`.
  absl::Status Wrong(absl::string_view name, absl::string_view wanted) const;

 private:
  JsonSection(absl::string_view key, simdjson::dom::object value)
      : key_(key), object_(value) {}

  std::string key_;
  simdjson::dom::object object_;
};

// The content of a tokenizer.json.
struct TokenizerSpec {
  struct Step {
    enum class Kind { kSplit, kByteLevel };
    Kind kind = Kind::kSplit;
    // Split only; in PCRE2's syntax.
    std::string pattern;
    bool drop_others = false;
    // ByteLevel only.
    bool add_prefix_space = false;
    bool use_regex = false;
  };
  bool nfc = false;
  std::vector<Step> steps;  // only the last is of kind kByteLevel
  BpeModel::Spec model;
  std::vector<AddedToken> added_tokens;  // in file order
};

// Parses a Hugging Face tokenizer.json with a byte-level BPE model
// (docs/text.md lists what it may contain). Ignores `decoder`, and
// `post_processor`, whose special tokens are the chat template's task here.
// Errors: INVALID_ARGUMENT (not JSON; an unsupported or unknown key or value,
// with its place in the file, its value and the value wanted).
absl::StatusOr<TokenizerSpec> ParseTokenizerJson(absl::string_view json);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_BPE_TOKENIZER_JSON_H_
