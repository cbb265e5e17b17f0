#include "server/data/form/form_record.h"

#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/data/jsonl/conversation_json.h"
#include "server/data/jsonl/document_json.h"
#include "server/data/jsonl/python_json.h"
#include "server/recipe/turns_json.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;

// As JSON, or as Python writes it; `json` becomes what was parsed.
absl::Status ParseObject(std::string& json, simdjson::dom::parser* parser,
                         object* root) {
  auto error = parser->parse(json).get(*root);
  if (error == simdjson::UTF8_ERROR) {
    json = ReplaceInvalidUtf8(json);
    error = parser->parse(json).get(*root);
  }
  if (error != SUCCESS && error != simdjson::INCORRECT_TYPE) {
    json = FromPythonJson(json);
    error = parser->parse(json).get(*root);
  }
  if (error == SUCCESS) return absl::OkStatus();
  return DataFaultError(
      error == simdjson::INCORRECT_TYPE
          ? "not a JSON object"
          : absl::StrCat("not JSON: ", simdjson::error_message(error)));
}

// The values at `steps` from `begin` on, below `from`.
void Walk(const element& from, const std::vector<FormStep>& steps, size_t begin,
          std::vector<element>* found) {
  if (from.is_null()) return;
  if (begin == steps.size()) {
    found->push_back(from);
    return;
  }
  const FormStep& step = steps[begin];
  object map;
  array list;
  element next;
  if (step.kind == FormStep::Kind::kName) {
    if (from.get(map) == SUCCESS &&
        map.at_key(step.name).get(next) == SUCCESS) {
      Walk(next, steps, begin + 1, found);
    }
  } else if (from.get(list) == SUCCESS) {
    if (step.kind == FormStep::Kind::kAll) {
      for (const element item : list) Walk(item, steps, begin + 1, found);
    } else if (list.at(step.entry).get(next) == SUCCESS) {
      Walk(next, steps, begin + 1, found);
    }
  }
}

std::string Wanted(const char* name, const std::vector<FormPaths>& keys) {
  std::vector<std::string> texts;
  for (const FormPaths& key : keys) texts.push_back(key.text);
  return absl::StrCat("form.", name, ": ", absl::StrJoin(texts, ", "));
}

bool IsJson(const RecipeRecord::Part& part) {
  return part.name == "json" || absl::EndsWith(part.name, ".json");
}

// Whether each member that is JSON is JSON by itself, in UTF-8.
absl::Status CheckMembers(const RecipeRecord& record) {
  simdjson::dom::parser parser;
  for (const RecipeRecord::Part& part : record.parts) {
    if (!IsJson(part) || !part.bytes.has_value()) continue;
    const auto error = parser.parse(FromPythonJson(*part.bytes)).error();
    if (error == SUCCESS) continue;
    return DataFaultError(
        absl::StrCat("member `", Printable(part.name),
                     "` is no JSON: ", simdjson::error_message(error)));
  }
  return absl::OkStatus();
}

}  // namespace

std::string MembersJson(const RecipeRecord& record) {
  std::string json = "{";
  for (size_t i = 0; i < record.parts.size(); ++i) {
    const RecipeRecord::Part& part = record.parts[i];
    absl::StrAppend(&json, i > 0 ? "," : "");
    AppendJsonText(part.name, &json);
    json += ':';
    if (IsJson(part) && part.bytes.has_value()) {
      absl::StrAppend(&json, FromPythonJson(*part.bytes));
    } else if (part.bytes.has_value() && CheckUtf8(*part.bytes).ok() &&
               !absl::StrContains(*part.bytes, '\0')) {
      AppendJsonText(*part.bytes, &json);
    } else {
      absl::StrAppend(&json, "{\"", kFormMedia, "\":", i, "}");
    }
  }
  return json + "}";
}

std::string KindOf(const element& value) {
  switch (value.type()) {
    case simdjson::dom::element_type::ARRAY:
      return "a list";
    case simdjson::dom::element_type::OBJECT:
      return "a struct";
    case simdjson::dom::element_type::STRING:
      return "a text";
    case simdjson::dom::element_type::BOOL:
      return "true or false";
    case simdjson::dom::element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

bool IsEmptyValue(const element& value) {
  std::string_view text;
  array list;
  return value.is_null() || (value.get(text) == SUCCESS && text.empty()) ||
         (value.get(list) == SUCCESS && list.size() == 0);
}

bool IsTurns(const element& value, const std::string& role_key) {
  array list;
  object turn;
  element unused;
  if (value.get(list) != SUCCESS || list.size() == 0 ||
      list.at(0).get(turn) != SUCCESS) {
    return false;
  }
  const auto has = [&](std::string_view key) {
    return turn.at_key(key).get(unused) == SUCCESS;
  };
  return role_key.empty() ? has("role") || has("from") || has("speaker") ||
                                has("user") || has("human")
                          : has(role_key);
}

absl::Status FormRecord::Parse() {
  // A thread keeps what it parsed last, unless that is large.
  constexpr size_t kKept = size_t{1} << 18;
  thread_local simdjson::dom::parser kept;
  if (record_.kind == RecipeRecord::Kind::kMembers) {
    BALLAST_RETURN_IF_ERROR(CheckMembers(record_));
    json_ = MembersJson(record_);
  } else {
    json_.reserve(record_.text.size() + simdjson::SIMDJSON_PADDING);
    json_ = record_.text;
  }
  BALLAST_RETURN_IF_ERROR(
      ParseObject(json_, json_.size() > kKept ? &parser_ : &kept, &root_));
  for (const auto& [key, value] : root_) {
    keys_ |= KeyBit(View(key));
    object members;
    if (record_.kind != RecipeRecord::Kind::kMembers || View(key) != "json" ||
        value.get(members) != SUCCESS) {
      continue;
    }
    for (const auto& [inner, unused] : members) keys_ |= KeyBit(View(inner));
  }
  // As of conversations (conversation_json.h).
  if (record_.kind == RecipeRecord::Kind::kLine) {
    BALLAST_RETURN_IF_ERROR(CheckKeysOnce(root_));
  }
  return absl::OkStatus();
}

// The values of a path; a name with dots is looked for as it is first, and
// what no member of a tar has in its JSON.
std::vector<element> FormRecord::Values(const FormPath& path,
                                        std::string* at) const {
  std::vector<element> found;
  const auto look = [&](const object& root, absl::string_view prefix) {
    element value;
    if (root.at_key(path.text).get(value) == SUCCESS && !value.is_null()) {
      found.push_back(value);
    } else if (path.steps.size() > 1 &&
               root.at_key(path.steps[0].name).get(value) == SUCCESS) {
      Walk(value, path.steps, 1, &found);
    }
    if (!found.empty()) *at = absl::StrCat(prefix, path.text);
  };
  look(root_, "");
  object json;
  if (found.empty() && record_.kind == RecipeRecord::Kind::kMembers &&
      root_.at_key("json").get(json) == SUCCESS) {
    look(json, "json.");
  }
  return found;
}

void FormRecord::Use(absl::string_view key, size_t entry,
                     const std::string& path) {
  read_.insert(path);
  used_.push_back({std::string(key), entry, path});
}

KeyUse FormRecord::UseOf(const std::string& path) const {
  const auto matches = [&path](absl::string_view read, KeyUse* use) {
    // A list of which an entry is read is read.
    if (path == read || path == read.substr(0, read.find('['))) {
      *use = KeyUse::kRead;
      return true;
    }
    if (read.size() > path.size() && read[path.size()] == '.' &&
        absl::StartsWith(read, path)) {
      *use = KeyUse::kWithin;
    }
    return false;
  };
  KeyUse use = KeyUse::kUnread;
  for (const std::string& read : read_) {
    if (matches(read, &use)) return use;
  }
  for (const std::string& ignored : form_.ignore()) {
    if (matches(ignored, &use)) return use;
    if (path == absl::StrCat("json.", ignored)) return KeyUse::kRead;
  }
  for (const std::string& field : fields_) {
    if (path == field || path == absl::StrCat("json.", field)) {
      return KeyUse::kRead;
    }
  }
  // A member `json` is looked into.
  if (path == "json" && record_.kind == RecipeRecord::Kind::kMembers) {
    return KeyUse::kWithin;
  }
  return use;
}

bool FormRecord::IsReadOfTurns(const std::string& key) const {
  const std::string end = absl::StrCat("[].", key);
  return std::any_of(read_.begin(), read_.end(), [&end](const auto& read) {
    return absl::EndsWith(read, end);
  });
}

std::string FormRecord::LastRead(absl::string_view key) const {
  std::string path;
  for (const FormSample::Use& use : used_) {
    if (use.key == key) path = use.path;
  }
  return path;
}

// The names of the record's keys, for messages.
std::string FormRecord::Names() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : root_) {
    names.push_back(absl::StrCat("`", Printable(View(key)), "`"));
    object json;
    if (View(key) == "json" && value.get(json) == SUCCESS) {
      for (const auto& [inner, unused] : json) {
        names.push_back(absl::StrCat("`json.", Printable(View(inner)), "`"));
      }
    }
  }
  constexpr size_t kMost = 20;
  if (names.size() > kMost) names.resize(kMost);
  return absl::StrJoin(names, ", ");
}

absl::Status FormRecord::Missing(const char* name,
                                 const std::vector<FormPaths>& keys) const {
  for (const FormPaths& key : keys) {
    for (const FormPath& path : key.paths) {
      std::string at;
      const std::vector<element> values = Values(path, &at);
      if (values.empty()) continue;
      return DataFaultError(absl::StrCat(
          "`", Printable(at), "` is ",
          IsEmptyValue(values[0]) ? "empty" : KindOf(values[0]),
          "; wanted a text or turns by ", Wanted(name, keys),
          values[0].is_array()
              ? absl::StrCat("; of a list of texts write `", at, "[0]`")
              : ""));
    }
  }
  return DataFaultError(
      absl::StrCat("no value for ", Wanted(name, keys), "; found ", Names()));
}

}  // namespace ballast
