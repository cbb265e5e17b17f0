#include "server/data/form/forms.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/recipe/turns_json.h"

namespace ballast {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Form = v1::Source::Form;

struct Embedded {
  absl::string_view name;
  absl::string_view text;
};
constexpr Embedded kEmbedded[] = {
#include "forms/embedded.inc"
};

// A file of forms/, which a test reads, too.
Form ReadForm(absl::string_view text) {
  Form form;
  google::protobuf::TextFormat::ParseFromString(std::string(text), &form);
  return form;
}

bool IsGiven(const Message& message, const FieldDescriptor& field) {
  return field.is_repeated()
             ? message.GetReflection()->FieldSize(message, &field) > 0
             : message.GetReflection()->HasField(message, &field);
}

// A JSON string is a YAML string.
std::string Quoted(const std::string& text) {
  std::string json;
  AppendJsonText(text, &json);
  return json;
}

std::string Yaml(const Message& message);

// The value of a field that is given.
std::string ValueYaml(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return Yaml(reflection.GetMessage(message, &field));
  }
  if (!field.is_repeated())
    return Quoted(reflection.GetString(message, &field));
  std::vector<std::string> items;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    items.push_back(Quoted(reflection.GetRepeatedString(message, &field, i)));
  }
  if (items.size() == 1) return items[0];
  return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
}

std::string Yaml(const Message& message) {
  std::vector<std::string> entries;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (!IsGiven(message, field)) continue;
    entries.push_back(
        absl::StrCat(field.name(), ": ", ValueYaml(message, field)));
  }
  return absl::StrCat("{", absl::StrJoin(entries, ", "), "}");
}

}  // namespace

std::vector<std::string> FormNames() {
  std::vector<std::string> names;
  for (const Embedded& each : kEmbedded) {
    const Form form = ReadForm(each.text);
    if (form.messages_size() + form.user_size() > 0 || !form.text().empty()) {
      names.emplace_back(each.name);
    }
  }
  return names;
}

absl::StatusOr<Form> CompleteForm(const Form& form) {
  Form whole = form;
  while (!whole.name().empty()) {
    const Embedded* base = nullptr;
    for (const Embedded& each : kEmbedded) {
      if (each.name == whole.name()) base = &each;
    }
    if (base == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("found form ", whole.name(), "; wanted one of ",
                       absl::StrJoin(FormNames(), ", ")));
    }
    Form made = ReadForm(base->text);
    whole.clear_name();
    const bool says_what = whole.messages_size() > 0 || whole.user_size() > 0 ||
                           whole.assistant_size() > 0 || !whole.text().empty();
    if (says_what) {
      // Another kind of text takes the place of the base's.
      made.clear_messages();
      made.clear_user();
      made.clear_assistant();
      made.clear_text();
    }
    for (int i = 0; i < Form::descriptor()->field_count(); ++i) {
      const FieldDescriptor& field = *Form::descriptor()->field(i);
      if (IsGiven(whole, field) && field.is_repeated()) {
        made.GetReflection()->ClearField(&made, &field);
      }
    }
    made.MergeFrom(whole);
    whole = std::move(made);
    // A name of the base that was merged over is its own base's.
    if (whole.name().empty()) break;
  }
  return whole;
}

std::string FormKey(const Form& form) {
  const absl::StatusOr<Form> whole = CompleteForm(form);
  return whole.ok() ? FormYaml(*whole) : FormYaml(form);
}

std::string FormYaml(const Form& form) { return Yaml(form); }

std::string FormValueYaml(const Form& form, const char* key) {
  const FieldDescriptor& field = *Form::descriptor()->FindFieldByName(key);
  return IsGiven(form, field) ? ValueYaml(form, field) : "";
}

}  // namespace ballast
