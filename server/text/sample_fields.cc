#include "server/text/sample_fields.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/corpus/data_fault.h"

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
          "a list beside a preference pair, whose two conversations have turns "
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
    // The default stands for all.
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

}  // namespace ballast
