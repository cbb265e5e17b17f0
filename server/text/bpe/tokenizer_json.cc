#include "server/text/bpe/tokenizer_json.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "server/text/bpe/regex.h"

namespace ballast {

namespace {

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;

// Formats a value for a message, shortened if it is long.
std::string Shown(element value) {
  constexpr size_t kMaxCount = 120;
  std::string text = simdjson::minify(value);
  if (text.size() > kMaxCount) {
    // Does not cut within a character.
    size_t end = kMaxCount;
    while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = absl::StrCat(absl::string_view(text).substr(0, end), "…");
  }
  return text;
}

}  // namespace

absl::Status UnsupportedJson(absl::string_view key, element found,
                             absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": found ", Shown(found),
                   ", which is not supported; wanted ", wanted));
}

absl::StatusOr<JsonSection> JsonSection::Open(absl::string_view key,
                                              element value) {
  object found;
  if (value.get(found) != SUCCESS) {
    return UnsupportedJson(key, value, "an object");
  }
  return JsonSection(key, found);
}

std::string JsonSection::ChildKey(absl::string_view name) const {
  return key_.empty() ? std::string(name) : absl::StrCat(key_, ".", name);
}

std::optional<element> JsonSection::Get(absl::string_view name) const {
  element value;
  if (object_.at_key(std::string_view(name.data(), name.size())).get(value) !=
          SUCCESS ||
      value.is_null()) {
    return std::nullopt;
  }
  return value;
}

absl::Status JsonSection::CheckKeys(
    std::initializer_list<absl::string_view> names) const {
  for (const auto field : object_) {
    const absl::string_view name = JsonView(field.key);
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return UnsupportedJson(ChildKey(name), field.value,
                             absl::StrCat("only ", absl::StrJoin(names, ", ")));
    }
  }
  return absl::OkStatus();
}

absl::Status JsonSection::CheckNothing(absl::string_view name) const {
  const std::optional<element> value = Get(name);
  std::string_view text;
  if (!value || (value->get(text) == SUCCESS && text.empty())) {
    return absl::OkStatus();
  }
  return Wrong(name, "null");
}

absl::StatusOr<std::string> JsonSection::String(absl::string_view name) const {
  const std::optional<element> value = Get(name);
  std::string_view text;
  if (!value || value->get(text) != SUCCESS) return Wrong(name, "a string");
  return std::string(text);
}

absl::StatusOr<bool> JsonSection::Bool(absl::string_view name,
                                       std::optional<bool> absent) const {
  const std::optional<element> value = Get(name);
  bool result;
  if (!value && absent) return *absent;
  if (!value || value->get(result) != SUCCESS) {
    return Wrong(name, "true or false");
  }
  return result;
}

absl::StatusOr<array> JsonSection::List(absl::string_view name) const {
  const std::optional<element> value = Get(name);
  array list;
  if (!value || value->get(list) != SUCCESS) return Wrong(name, "a list");
  return list;
}

absl::Status JsonSection::Wrong(absl::string_view name,
                                absl::string_view wanted) const {
  const std::optional<element> value = Get(name);
  const std::string key = ChildKey(name);
  if (value) return UnsupportedJson(key, *value, wanted);
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": missing; wanted ", wanted));
}

namespace {

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;

// Far above any tokenizer in use; bounds the recursion of PreTokenizer.
constexpr size_t kMaxSteps = 32;

absl::Status ReadNormalizer(absl::string_view key, element value,
                            TokenizerSpec* spec) {
  BALLAST_ASSIGN_OR_RETURN(const JsonSection section,
                           JsonSection::Open(key, value));
  BALLAST_ASSIGN_OR_RETURN(const std::string type, section.String("type"));
  if (type == "NFC") {
    spec->nfc = true;
    return section.CheckKeys({"type"});
  }
  if (type != "Sequence") {
    return UnsupportedJson(key, value, "null, NFC, or a Sequence of them");
  }
  BALLAST_RETURN_IF_ERROR(section.CheckKeys({"type", "normalizers"}));
  BALLAST_ASSIGN_OR_RETURN(const array list, section.List("normalizers"));
  size_t number = 0;
  for (const element item : list) {
    BALLAST_RETURN_IF_ERROR(ReadNormalizer(
        absl::StrCat(key, ".normalizers[", number++, "]"), item, spec));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadPattern(const JsonSection& split) {
  const std::optional<element> value = split.Get("pattern");
  if (!value) return split.Wrong("pattern", "an object");
  BALLAST_ASSIGN_OR_RETURN(
      const JsonSection section,
      JsonSection::Open(split.ChildKey("pattern"), *value));
  BALLAST_RETURN_IF_ERROR(section.CheckKeys({"Regex", "String"}));
  if (section.Get("String")) {
    BALLAST_ASSIGN_OR_RETURN(const std::string text, section.String("String"));
    if (text.empty()) return section.Wrong("String", "a text");
    return Pcre2Literal(text);
  }
  BALLAST_ASSIGN_OR_RETURN(const std::string regex, section.String("Regex"));
  absl::StatusOr<std::string> pattern = ToPcre2Pattern(regex);
  if (!pattern.ok()) return Annotate(pattern.status(), section.key());
  return pattern;
}

absl::Status ReadSplit(const JsonSection& section, TokenizerSpec* spec) {
  BALLAST_RETURN_IF_ERROR(
      section.CheckKeys({"type", "pattern", "behavior", "invert"}));
  TokenizerSpec::Step step;
  BALLAST_ASSIGN_OR_RETURN(step.pattern, ReadPattern(section));
  BALLAST_ASSIGN_OR_RETURN(const std::string behavior,
                           section.String("behavior"));
  BALLAST_ASSIGN_OR_RETURN(const bool invert, section.Bool("invert", false));
  if (behavior == "Removed" && invert) {
    step.drop_others = true;
  } else if (behavior != "Isolated") {
    return section.Wrong("behavior", "Isolated, or Removed with invert");
  }
  spec->steps.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status ReadByteLevel(const JsonSection& section, TokenizerSpec* spec) {
  BALLAST_RETURN_IF_ERROR(section.CheckKeys(
      {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  TokenizerSpec::Step step;
  step.kind = TokenizerSpec::Step::Kind::kByteLevel;
  BALLAST_ASSIGN_OR_RETURN(step.add_prefix_space,
                           section.Bool("add_prefix_space", std::nullopt));
  // Files from before this key existed split.
  BALLAST_ASSIGN_OR_RETURN(step.use_regex, section.Bool("use_regex", true));
  spec->steps.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status ReadPreTokenizer(absl::string_view key, element value,
                              TokenizerSpec* spec) {
  if (!spec->steps.empty() &&
      spec->steps.back().kind == TokenizerSpec::Step::Kind::kByteLevel) {
    return UnsupportedJson(key, value, "ByteLevel to be the last");
  }
  BALLAST_ASSIGN_OR_RETURN(const JsonSection section,
                           JsonSection::Open(key, value));
  BALLAST_ASSIGN_OR_RETURN(const std::string type, section.String("type"));
  if (type == "Split") return ReadSplit(section, spec);
  if (type == "ByteLevel") return ReadByteLevel(section, spec);
  if (type != "Sequence") {
    return UnsupportedJson(key, value,
                           "Split, ByteLevel, or a Sequence of them");
  }
  BALLAST_RETURN_IF_ERROR(section.CheckKeys({"type", "pretokenizers"}));
  BALLAST_ASSIGN_OR_RETURN(const array list, section.List("pretokenizers"));
  size_t number = 0;
  for (const element item : list) {
    BALLAST_RETURN_IF_ERROR(ReadPreTokenizer(
        absl::StrCat(key, ".pretokenizers[", number++, "]"), item, spec));
  }
  return absl::OkStatus();
}

absl::Status ReadVocab(const JsonSection& model, TokenizerSpec* spec) {
  const std::optional<element> value = model.Get("vocab");
  if (!value) return model.Wrong("vocab", "an object");
  BALLAST_ASSIGN_OR_RETURN(const JsonSection vocab,
                           JsonSection::Open("model.vocab", *value));
  spec->model.vocab.reserve(vocab.fields().size());
  for (const auto field : vocab.fields()) {
    int64_t id;
    if (field.value.get(id) != SUCCESS || id < 0 || id >= BpeModel::kMaxId) {
      return UnsupportedJson(absl::StrCat("model.vocab.", JsonView(field.key)),
                             field.value,
                             absl::StrCat("0 to ", BpeModel::kMaxId - 1));
    }
    spec->model.vocab.emplace_back(std::string(field.key),
                                   static_cast<int32_t>(id));
  }
  return absl::OkStatus();
}

// Reads merges, each "a b" or ["a", "b"].
absl::Status ReadMerges(const JsonSection& model, TokenizerSpec* spec) {
  BALLAST_ASSIGN_OR_RETURN(const array merges, model.List("merges"));
  size_t number = 0;
  for (const element merge : merges) {
    const auto fault = [&]() {
      return UnsupportedJson(absl::StrCat("model.merges[", number, "]"), merge,
                             "\"LEFT RIGHT\" or [\"LEFT\", \"RIGHT\"]");
    };
    std::string_view line;
    array pair;
    if (merge.get(line) == SUCCESS) {
      const absl::string_view text = JsonView(line);
      ++number;
      if (absl::StartsWith(text, "#version")) continue;
      --number;
      const size_t space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos) {
        return fault();
      }
      spec->model.merges.emplace_back(std::string(text.substr(0, space)),
                                      std::string(text.substr(space + 1)));
    } else {
      std::string_view left;
      std::string_view right;
      if (merge.get(pair) != SUCCESS || pair.size() != 2 ||
          pair.at(0).get(left) != SUCCESS || pair.at(1).get(right) != SUCCESS) {
        return fault();
      }
      spec->model.merges.emplace_back(left, right);
    }
    ++number;
  }
  return absl::OkStatus();
}

bool HasAllBytes(const BpeModel::Spec& model) {
  size_t bytes = 0;
  for (const auto& [name, id] : model.vocab) {
    const auto found = FromByteAlphabet(name);
    if (found && found->size() == 1) ++bytes;
  }
  return bytes >= 256;
}

absl::Status ReadModel(element value, TokenizerSpec* spec) {
  BALLAST_ASSIGN_OR_RETURN(const JsonSection model,
                           JsonSection::Open("model", value));
  // Files from before other models existed have no type.
  if (model.Get("type")) {
    BALLAST_ASSIGN_OR_RETURN(const std::string type, model.String("type"));
    if (type != "BPE") return model.Wrong("type", "BPE");
  }
  BALLAST_RETURN_IF_ERROR(model.CheckKeys(
      {"type", "dropout", "unk_token", "continuing_subword_prefix",
       "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges",
       "vocab", "merges"}));
  if (const auto dropout = model.Get("dropout")) {
    double share;
    if (dropout->get(share) != SUCCESS || share != 0) {
      return model.Wrong("dropout", "null");
    }
  }
  BALLAST_RETURN_IF_ERROR(model.CheckNothing("continuing_subword_prefix"));
  BALLAST_RETURN_IF_ERROR(model.CheckNothing("end_of_word_suffix"));
  BALLAST_RETURN_IF_ERROR(model.Bool("fuse_unk", false).status());
  BALLAST_ASSIGN_OR_RETURN(spec->model.ignore_merges,
                           model.Bool("ignore_merges", false));
  BALLAST_RETURN_IF_ERROR(ReadVocab(model, spec));
  BALLAST_RETURN_IF_ERROR(ReadMerges(model, spec));
  // Neither matters if every byte is a token.
  BALLAST_ASSIGN_OR_RETURN(const bool byte_fallback,
                           model.Bool("byte_fallback", false));
  if (byte_fallback && !HasAllBytes(spec->model)) {
    return model.Wrong("byte_fallback", "false, or a vocab with all 256 bytes");
  }
  if (model.Get("unk_token") && !HasAllBytes(spec->model)) {
    return model.Wrong("unk_token", "null, or a vocab with all 256 bytes");
  }
  return absl::OkStatus();
}

absl::StatusOr<AddedToken> ReadAddedToken(absl::string_view key,
                                          element value) {
  BALLAST_ASSIGN_OR_RETURN(const JsonSection section,
                           JsonSection::Open(key, value));
  BALLAST_RETURN_IF_ERROR(
      section.CheckKeys({"id", "content", "single_word", "lstrip", "rstrip",
                         "normalized", "special"}));
  AddedToken token;
  int64_t id;
  const std::optional<element> found = section.Get("id");
  if (!found || found->get(id) != SUCCESS || id < 0 || id >= BpeModel::kMaxId) {
    return section.Wrong("id", absl::StrCat("0 to ", BpeModel::kMaxId - 1));
  }
  token.id = static_cast<int32_t>(id);
  BALLAST_ASSIGN_OR_RETURN(token.content, section.String("content"));
  if (token.content.empty()) return section.Wrong("content", "a text");
  const std::pair<const char*, bool*> flags[] = {
      {"single_word", &token.single_word}, {"lstrip", &token.lstrip},
      {"rstrip", &token.rstrip},           {"normalized", &token.normalized},
      {"special", &token.special},
  };
  for (const auto& [name, flag] : flags) {
    BALLAST_ASSIGN_OR_RETURN(*flag, section.Bool(name, std::nullopt));
  }
  return token;
}

// Reads the list, and checks each id against the one that Hugging Face assigns.
// Whatever the file says, that is the token's id in the vocabulary, or else the
// first free id after the vocabulary and the tokens before.
absl::Status ReadAddedTokens(const JsonSection& root, TokenizerSpec* spec) {
  if (!root.Get("added_tokens")) return absl::OkStatus();
  BALLAST_ASSIGN_OR_RETURN(const array list, root.List("added_tokens"));
  absl::flat_hash_map<absl::string_view, int32_t> vocab;
  for (const auto& [name, id] : spec->model.vocab) vocab.emplace(name, id);
  auto next = static_cast<int32_t>(spec->model.vocab.size());
  absl::flat_hash_map<std::string, size_t> seen;
  for (const element value : list) {
    const std::string key =
        absl::StrCat("added_tokens[", spec->added_tokens.size(), "]");
    BALLAST_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(key, value));
    if (!seen.emplace(token.content, seen.size()).second) {
      return UnsupportedJson(key, value, "each content once");
    }
    const auto known = vocab.find(token.content);
    const int32_t given = known == vocab.end() ? next : known->second;
    if (token.id != given) {
      return UnsupportedJson(
          absl::StrCat(key, ".id"), value,
          absl::StrCat(given, ", which is the id that Hugging Face gives it"));
    }
    next = std::max(next, given + 1);
    spec->added_tokens.push_back(std::move(token));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> ParseTokenizerJson(absl::string_view json) {
  simdjson::dom::parser parser;
  element document;
  if (const auto error = parser.parse(json.data(), json.size()).get(document);
      error != SUCCESS) {
    return absl::InvalidArgumentError(
        absl::StrCat("not JSON: ", simdjson::error_message(error)));
  }
  BALLAST_ASSIGN_OR_RETURN(const JsonSection root,
                           JsonSection::Open("", document));
  BALLAST_RETURN_IF_ERROR(root.CheckKeys(
      {"version", "truncation", "padding", "added_tokens", "normalizer",
       "pre_tokenizer", "post_processor", "decoder", "model"}));
  for (const char* key : {"truncation", "padding"}) {
    if (root.Get(key)) {
      return root.Wrong(key, "null: batch.max_tokens bounds a sample here");
    }
  }
  TokenizerSpec spec;
  if (const auto normalizer = root.Get("normalizer")) {
    BALLAST_RETURN_IF_ERROR(ReadNormalizer("normalizer", *normalizer, &spec));
  }
  const auto pre_tokenizer = root.Get("pre_tokenizer");
  if (!pre_tokenizer) return root.Wrong("pre_tokenizer", "ByteLevel");
  BALLAST_RETURN_IF_ERROR(
      ReadPreTokenizer("pre_tokenizer", *pre_tokenizer, &spec));
  if (spec.steps.empty() ||
      spec.steps.back().kind != TokenizerSpec::Step::Kind::kByteLevel) {
    return UnsupportedJson("pre_tokenizer", *pre_tokenizer,
                           "ByteLevel to be the last of it");
  }
  if (spec.steps.size() > kMaxSteps) {
    return absl::InvalidArgumentError(
        absl::StrCat("pre_tokenizer: ", spec.steps.size(),
                     " steps; wanted at most ", kMaxSteps, " steps"));
  }
  const auto model = root.Get("model");
  if (!model) return root.Wrong("model", "an object");
  BALLAST_RETURN_IF_ERROR(ReadModel(*model, &spec));
  BALLAST_RETURN_IF_ERROR(ReadAddedTokens(root, &spec));
  return spec;
}

}  // namespace ballast
