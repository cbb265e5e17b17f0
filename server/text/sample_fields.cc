#include "server/text/sample_fields.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;
using Field = v1::Source::Field;

uint32_t ToBits(const FieldSpec& spec, double value) {
  uint32_t bits = 0;
  if (spec.type == Field::TYPE_FLOAT32) {
    const float narrow = static_cast<float>(value);
    std::memcpy(&bits, &narrow, sizeof(bits));
  } else {
    bits = static_cast<uint32_t>(static_cast<int32_t>(value));
  }
  return bits;
}

std::optional<element> Find(object map, absl::string_view key) {
  element value;
  if (map.at_key(std::string_view(key.data(), key.size())).get(value) !=
          SUCCESS ||
      value.is_null()) {
    return std::nullopt;
  }
  return value;
}

// Reads the fields of one record.
class Reader {
 public:
  explicit Reader(const TextFields& fields) : fields_(fields) {}

  absl::StatusOr<SampleFields> Read() {
    BALLAST_RETURN_IF_ERROR(Parse());
    SampleFields all;
    for (const FieldSpec& spec : fields_.specs) {
      auto values = ReadField(spec);
      if (!values.ok()) {
        return Annotate(values.status(), absl::StrCat("field ", spec.name));
      }
      all.push_back(*std::move(values));
    }
    return all;
  }

 private:
  absl::Status Parse() {
    if (fields_.json.empty()) return absl::OkStatus();
    element root;
    auto error =
        parser_.parse(fields_.json.data(), fields_.json.size()).get(root);
    if (error == simdjson::UTF8_ERROR) {
      // The parser keeps a copy of it.
      const std::string replaced = ReplaceInvalidUtf8(fields_.json);
      error = parser_.parse(replaced.data(), replaced.size()).get(root);
    }
    object map;
    if (error == SUCCESS && root.get(map) == SUCCESS) root_ = map;
    // A list of token ids is JSON, too, and has no keys.
    if (error == SUCCESS) return absl::OkStatus();
    return DataFaultError(
        absl::StrCat("not JSON: ", simdjson::error_message(error)));
  }

  absl::StatusOr<std::vector<uint32_t>> ReadField(const FieldSpec& spec) {
    std::optional<element> given;
    if (root_.has_value()) given = Find(*root_, spec.name);
    if (spec.per == Field::PER_SAMPLE) {
      BALLAST_ASSIGN_OR_RETURN(const uint32_t value, ReadValue(spec, given));
      return std::vector<uint32_t>{value};
    }
    if (fields_.of_pair && given.has_value()) {
      return DataFaultError(
          "a list for a preference pair, whose two conversations have turns "
          "of their own; wanted the number in each turn");
    }
    if (spec.per == Field::PER_TURN) return ReadTurns(spec, given);
    if (!given.has_value()) {
      if (spec.missing.has_value()) return std::vector<uint32_t>();
      return Missing();
    }
    return ReadList(spec, *given);
  }

  absl::StatusOr<std::vector<uint32_t>> ReadTurns(
      const FieldSpec& spec, const std::optional<element>& given) {
    const std::optional<array> turns = FindTurns();
    if (given.has_value()) {
      BALLAST_ASSIGN_OR_RETURN(std::vector<uint32_t> values,
                               ReadList(spec, *given));
      const size_t wanted = turns.has_value() ? turns->size() : 0;
      if (values.size() == wanted) return values;
      return DataFaultError(absl::StrCat("found ", values.size(),
                                         " numbers for ", wanted,
                                         " turns; wanted one for each"));
    }
    std::vector<uint32_t> values;
    if (!turns.has_value()) {
      if (spec.missing.has_value()) return values;
      return DataFaultError(
          "found no turns; wanted a conversation, or a default");
    }
    for (const element turn : *turns) {
      object map;
      std::optional<element> value;
      if (turn.get(map) == SUCCESS) value = Find(map, spec.name);
      const absl::StatusOr<uint32_t> bits = ReadValue(spec, value);
      if (!bits.ok()) {
        return Annotate(bits.status(),
                        absl::StrCat("turn ", values.size() + 1));
      }
      values.push_back(*bits);
    }
    return values;
  }

  // The turns, as ParseConversation finds them.
  std::optional<array> FindTurns() {
    std::optional<array> found;
    size_t number = 0;
    for (const char* key : {"conversations", "messages", "conversation"}) {
      simdjson::dom::parser& inner = lists_[number++];
      const auto value = root_.has_value() ? Find(*root_, key) : std::nullopt;
      if (!value.has_value()) continue;
      array list;
      std::string_view text;
      if (value->get(list) != SUCCESS &&
          (value->get(text) != SUCCESS ||
           inner.parse(text.data(), text.size()).get(list) != SUCCESS)) {
        continue;
      }
      if (!found.has_value() || list.size() > 0) found = list;
    }
    return found;
  }

  static absl::StatusOr<std::vector<uint32_t>> ReadList(const FieldSpec& spec,
                                                        element value) {
    array list;
    if (value.get(list) != SUCCESS) {
      return DataFaultError(
          absl::StrCat("found ", Shown(value), "; wanted a list of numbers"));
    }
    std::vector<uint32_t> values;
    values.reserve(list.size());
    for (const element item : list) {
      const auto bits = ReadValue(
          spec, item.is_null() ? std::nullopt : std::make_optional(item));
      if (!bits.ok()) {
        return Annotate(bits.status(), absl::StrCat("number ", values.size()));
      }
      values.push_back(*bits);
    }
    return values;
  }

  static absl::StatusOr<uint32_t> ReadValue(
      const FieldSpec& spec, const std::optional<element>& given) {
    if (!given.has_value()) {
      if (spec.missing.has_value()) return ToBits(spec, *spec.missing);
      return Missing();
    }
    double value = 0;
    const bool is_number = given->get(value) == SUCCESS;
    if (spec.type == Field::TYPE_FLOAT32) {
      if (is_number && std::abs(value) <= std::numeric_limits<float>::max()) {
        return ToBits(spec, value);
      }
      return DataFaultError(absl::StrCat(
          "found ", Shown(*given), "; wanted a number that a float32 holds"));
    }
    if (is_number && value == std::floor(value) &&
        value >= std::numeric_limits<int32_t>::min() &&
        value <= std::numeric_limits<int32_t>::max()) {
      return ToBits(spec, value);
    }
    return DataFaultError(absl::StrCat("found ", Shown(*given),
                                       "; wanted a whole number of 32 bits"));
  }

  static std::string Shown(element value) {
    return std::string(simdjson::minify(value)).substr(0, 40);
  }

  static absl::Status Missing() {
    return DataFaultError(
        "missing; wanted the key in the record, or a default in "
        "sources[].fields");
  }

  const TextFields& fields_;
  simdjson::dom::parser parser_;
  simdjson::dom::parser lists_[3];  // of lists that are texts
  std::optional<object> root_;
};

}  // namespace

uint32_t MissingBits(const FieldSpec& spec) {
  return ToBits(spec, spec.missing.value_or(0));
}

absl::StatusOr<SampleFields> ReadFields(const TextFields& fields) {
  return Reader(fields).Read();
}

absl::Status CheckFields(absl::Span<const FieldSpec> specs,
                         const SampleFields& values, const TextTokens& text) {
  const uint64_t tokens = CountTokens(text).total();
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].per != Field::PER_TOKEN || values[i].size() == tokens) {
      continue;
    }
    // The default applies to all.
    if (values[i].empty() && specs[i].missing.has_value()) continue;
    return DataFaultError(absl::StrCat(
        "field ", specs[i].name, ": found ", values[i].size(),
        " numbers, and the rendered text has ", tokens,
        " tokens, placeholders of images included; wanted one for each"));
  }
  return absl::OkStatus();
}

std::vector<uint32_t> GetPlaces(const TextTokens& text) {
  std::vector<uint32_t> places;
  places.reserve(text.tokens.size());
  uint32_t place = 0;
  for (const TextToken& token : text.tokens) {
    places.push_back(place);
    place += token.kind == TextToken::Kind::kImage ? text.runs[token.id] : 1;
  }
  return places;
}

void WriteFields(absl::Span<const FieldSpec> specs, const SampleFields& values,
                 const TextTokens& text, absl::Span<const uint32_t> places,
                 TextSample* sample) {
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::vector<uint32_t>& of = values[i];
    if (specs[i].per == Field::PER_SAMPLE) {
      sample->field_values.push_back(of[0]);
      continue;
    }
    const bool per_turn = specs[i].per == Field::PER_TURN;
    const uint32_t missing = MissingBits(specs[i]);
    for (size_t k = 0; k < text.tokens.size(); ++k) {
      const TextToken& token = text.tokens[k];
      const uint32_t count =
          token.kind == TextToken::Kind::kImage ? text.runs[token.id] : 1;
      for (uint32_t j = 0; j < count; ++j) {
        const size_t at = per_turn ? token.turn - size_t{1} : places[k] + j;
        sample->field_rows.push_back(at < of.size() ? of[at] : missing);
      }
    }
  }
}

namespace {

using Kind = TextToken::Kind;
using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;

template <typename... Piece>
absl::Status Fault(const Piece&... pieces) {
  return DataFaultError(absl::StrCat(pieces...));
}

// Replaces each run of placeholders by its entries.
class RunFolder {
 public:
  RunFolder(const std::vector<TextToken>& tokens, const PackedRuns& runs,
            const v1::TokenIds& ids)
      : tokens_(tokens),
        runs_(runs),
        ids_(ids),
        has_ends_(ids.vision_start() >= 0 && ids.vision_end() >= 0) {}

  absl::StatusOr<std::vector<TextToken>> Fold() && {
    folded_.reserve(tokens_.size());
    for (size_t i = 0; i < tokens_.size();) {
      if (tokens_[i].id != ids_.image()) {
        BALLAST_RETURN_IF_ERROR(AddOther(i++));
        continue;
      }
      size_t end = i;
      while (end < tokens_.size() && tokens_[end].id == ids_.image()) ++end;
      if (has_ends_) {
        BALLAST_RETURN_IF_ERROR(AddBetweenEnds(i, end));
        ++end;
      } else {
        BALLAST_RETURN_IF_ERROR(AddRuns(i, end));
      }
      i = end;
    }
    if (next_ != runs_.lengths.size()) {
      return Fault("the tokens hold ", next_,
                   has_ends_ ? " images" : " runs of placeholders",
                   ", the sample has ", runs_.lengths.size());
    }
    if (folded_.empty()) return Fault("no tokens");
    return std::move(folded_);
  }

 private:
  absl::Status AddOther(size_t i) {
    if (has_ends_ && tokens_[i].id == ids_.video()) {
      return Fault("token ", i, " is ", ids_.video(),
                   ", a video's; videos are not supported");
    }
    folded_.push_back(tokens_[i]);
    if (std::find(runs_.marks.begin(), runs_.marks.end(), tokens_[i].id) !=
        runs_.marks.end()) {
      folded_.back().kind = Kind::kImageText;
    }
    return absl::OkStatus();
  }

  // An image's placeholders [first, end), and the token at `end`.
  absl::Status AddBetweenEnds(size_t first, size_t end) {
    if (folded_.empty() || folded_.back().kind == Kind::kImageText ||
        folded_.back().id != ids_.vision_start() || end == tokens_.size() ||
        tokens_[end].id != ids_.vision_end()) {
      return Fault("image tokens ", first, " to ", end - 1,
                   " are not between vision start (", ids_.vision_start(),
                   ") and vision end (", ids_.vision_end(), ")");
    }
    if (next_ == runs_.lengths.size()) {
      return Fault("token ", first, " begins image ", next_,
                   " (from 0), and the sample has ", runs_.lengths.size(),
                   " images");
    }
    if (end - first != runs_.lengths[next_]) {
      return Fault("image ", next_, " (from 0) has ", end - first,
                   " image tokens from token ", first,
                   " on, and its size under this model asks for ",
                   runs_.lengths[next_]);
    }
    folded_.back().kind = Kind::kImageText;
    folded_.push_back({static_cast<int32_t>(next_++), Kind::kImage});
    folded_.push_back({ids_.vision_end(), Kind::kImageText});
    return absl::OkStatus();
  }

  absl::Status AddRuns(size_t first, size_t end) {
    for (uint64_t left = end - first; left > 0; ++next_) {
      const uint32_t wanted =
          next_ == runs_.lengths.size() ? 0 : runs_.lengths[next_];
      if (wanted == 0 || wanted > left) {
        return Fault("placeholders ", first, " to ", end - 1, ": ", end - first,
                     " in a row, and the sizes of the sample's images under "
                     "this model ask for ",
                     wanted, " in run ", next_, " (from 0)");
      }
      left -= wanted;
      folded_.push_back({static_cast<int32_t>(next_), Kind::kImage});
    }
    return absl::OkStatus();
  }

  const std::vector<TextToken>& tokens_;
  const PackedRuns& runs_;
  const v1::TokenIds& ids_;
  const bool has_ends_;
  std::vector<TextToken> folded_;
  size_t next_ = 0;  // run
};

absl::StatusOr<array> FindList(element root, const char* key) {
  array list;
  if (root[key].get(list) != SUCCESS) {
    return Fault("`", key, "` is not a list of numbers");
  }
  return list;
}

// Reads a list of numbers, each from `min` to the largest int32.
absl::StatusOr<std::vector<int32_t>> ReadNumbers(array list, int64_t min,
                                                 absl::string_view what) {
  std::vector<int32_t> numbers;
  for (const element value : list) {
    int64_t number;
    if (value.get(number) != SUCCESS || number < min ||
        number > std::numeric_limits<int32_t>::max()) {
      return Fault(what, " ", numbers.size(), " is ",
                   std::string(simdjson::minify(value)).substr(0, 40),
                   "; wanted a whole number from ", min, " to 2^31 - 1");
    }
    numbers.push_back(static_cast<int32_t>(number));
  }
  return numbers;
}

absl::StatusOr<std::vector<TextToken>> ReadBytes(absl::string_view bytes) {
  if (bytes.size() % 4 != 0) {
    return Fault(bytes.size(), " bytes of tokens; wanted a multiple of 4");
  }
  std::vector<TextToken> tokens(bytes.size() / 4);
  for (size_t i = 0; i < tokens.size(); ++i) {
    uint32_t id = 0;
    for (int k = 3; k >= 0; --k) {
      id = id << 8 | static_cast<unsigned char>(bytes[4 * i + k]);
    }
    tokens[i] = {static_cast<int32_t>(id), Kind::kSupervised};
    if (tokens[i].id < 0) {
      return Fault("token ", i, " is ", tokens[i].id,
                   "; wanted 32-bit little-endian ids of at least 0");
    }
  }
  return tokens;
}

absl::StatusOr<std::vector<TextToken>> ReadJson(absl::string_view json) {
  simdjson::dom::parser parser;
  element root;
  if (const auto error = parser.parse(json.data(), json.size()).get(root);
      error != SUCCESS) {
    return Fault("tokens are not valid JSON: ", simdjson::error_message(error));
  }
  array list;
  std::vector<int32_t> labels;
  bool has_labels = false;
  if (root.get(list) != SUCCESS) {
    BALLAST_ASSIGN_OR_RETURN(list, FindList(root, "tokens"));
    element given;
    has_labels = root["labels"].get(given) == SUCCESS && !given.is_null();
    if (has_labels) {
      BALLAST_ASSIGN_OR_RETURN(const array labels_list,
                               FindList(root, "labels"));
      BALLAST_ASSIGN_OR_RETURN(
          labels, ReadNumbers(labels_list, kUnsupervised, "label"));
    }
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                           ReadNumbers(list, 0, "token"));
  if (has_labels && labels.size() != ids.size()) {
    return Fault(labels.size(), " labels for ", ids.size(), " tokens");
  }
  std::vector<TextToken> tokens;
  tokens.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool learnt = !has_labels || labels[i] != kUnsupervised;
    if (has_labels && learnt && labels[i] != ids[i]) {
      return Fault("label ", i, " is ", labels[i], ", wanted -100 or ", ids[i],
                   ", the token itself");
    }
    tokens.push_back({ids[i], learnt ? Kind::kSupervised : Kind::kContext});
  }
  return tokens;
}

}  // namespace

absl::StatusOr<std::vector<TextToken>> ParsePackedBytes(
    absl::string_view bytes, const PackedRuns& runs,
    const v1::TokenIds& token_ids) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<TextToken> tokens,
                           ReadBytes(bytes));
  return RunFolder(tokens, runs, token_ids).Fold();
}

absl::StatusOr<std::vector<TextToken>> ParsePackedJson(
    absl::string_view json, const PackedRuns& runs,
    const v1::TokenIds& token_ids) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<TextToken> tokens, ReadJson(json));
  return RunFolder(tokens, runs, token_ids).Fold();
}

}  // namespace ballast
