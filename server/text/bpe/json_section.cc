#include "server/text/bpe/json_section.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ballast {
namespace {

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;

// Formats a value for a message, shortened if it is long.
std::string Shown(element value) {
  constexpr size_t kMax = 120;
  std::string text = simdjson::minify(value);
  if (text.size() > kMax) {
    // Does not cut within a character.
    size_t end = kMax;
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

}  // namespace ballast
