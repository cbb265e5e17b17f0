#include "tests/docs/proto_reference.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <regex>

#include <google/protobuf/descriptor.pb.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/message_fields.h"
#include "proto/options.pb.h"
#include "server/settings/config_keys.h"

namespace ballast {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::FileDescriptor;
using ::google::protobuf::MethodDescriptor;
using ::google::protobuf::ServiceDescriptor;
using ::google::protobuf::SourceLocation;

constexpr char kGenerated[] =
    "<!-- Made by `bazel run //tests/docs:make_reference`; edit the "
    "comments and options of ";

// Comments are plain text: escapes Markdown's special characters outside of
// `code`.
std::string Escaped(absl::string_view text) {
  std::string out;
  bool code = false;
  for (const char c : text) {
    if (c == '`') code = !code;
    if (!code && (c == '*' || c == '<' || c == '[' || c == '|')) out += '\\';
    out += c;
  }
  return out;
}

// The comment before a declaration as paragraphs of Markdown, with `indent`
// before each line. Indented lines are kept as they are.
std::string Paragraphs(const std::string& comment, const std::string& indent) {
  std::string out;
  bool code = false;
  for (absl::string_view line : absl::StrSplit(comment, '\n')) {
    absl::ConsumePrefix(&line, " ");
    const bool is_code = line.size() > 2 && line.substr(0, 2) == "  ";
    if (is_code != code) {
      absl::StrAppend(&out, code ? absl::StrCat(indent, "```\n") : "",
                      is_code ? absl::StrCat(indent, "```\n") : "");
      code = is_code;
    }
    line = absl::StripTrailingAsciiWhitespace(line);
    absl::StrAppend(&out, line.empty() ? "" : indent,
                    is_code ? std::string(line) : Escaped(line), "\n");
  }
  if (code) absl::StrAppend(&out, indent, "```\n");
  static const std::regex* const kPage = new std::regex("docs/(\\w+\\.md)");
  out = std::regex_replace(out, *kPage, "[$1](../$1)");
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out.empty() ? "" : out + "\n";
}

template <typename Declared>
std::string CommentOf(const Declared* declared) {
  SourceLocation location;
  return declared->GetSourceLocation(&location) ? location.leading_comments
                                                : "";
}

// The comment at the head of a file, before `syntax`.
std::string CommentOfFile(const FileDescriptor* file) {
  SourceLocation location;
  const std::vector<int> syntax = {12};  // FileDescriptorProto.syntax
  return file->GetSourceLocation(syntax, &location) ? location.leading_comments
                                                    : "";
}

// ---- The configuration

// What the options say of a key, as one line; empty where they say nothing.
std::string GetOptions(const FieldDescriptor* field) {
  const v1::Setting& setting = GetSetting(*field);
  std::vector<std::string> parts;
  if (setting.has_required()) parts.push_back("Required.");
  if (!setting.only().empty()) {
    parts.push_back(absl::StrCat("Only with `", setting.only(), "`."));
  }
  // `{}` is a section that is always there.
  if (!setting.default_().empty() && setting.default_() != "{}") {
    parts.push_back(absl::StrCat("Default: `", setting.default_(), "`."));
  }
  if (setting.max_items() != 0) {
    parts.push_back(absl::StrCat("At most ", setting.max_items(), " entries."));
  }
  if (setting.change() == v1::Setting::RELOAD) {
    parts.push_back("A reload may change it.");
  }
  return parts.empty() ? ""
                       : absl::StrCat("  ", absl::StrJoin(parts, " "), "\n");
}

// The notation of a value of the field.
std::string GetKind(const FieldDescriptor* field) {
  std::string kind;
  if (field->is_map()) {
    const FieldDescriptor* value = field->message_type()->map_value();
    if (IsMessage(*value)) return "a map of sections";
    return absl::StrCat("a map, each value ",
                        DescribeValue(*value, GetSetting(*field)));
  }
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    kind = absl::StrCat(
        "`", absl::StrJoin(EnumWords(*field->enum_type()), "`, `"), "`");
  } else if (IsMessage(*field)) {
    kind = field->is_repeated() ? "sections" : "a section";
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    kind = field->is_repeated() ? "texts" : "text";
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
    kind = "`true` or `false`";
  } else {
    kind = DescribeValue(*field, GetSetting(*field));
  }
  return field->is_repeated() ? absl::StrCat("a list: ", kind) : kind;
}

// The values of an enum that have a comment.
std::string ChoicesOf(const EnumDescriptor* type) {
  std::string out;
  for (int i = 1; i < type->value_count(); ++i) {
    const std::string comment = Paragraphs(CommentOf(type->value(i)), "    ");
    if (comment.empty()) continue;
    absl::StrAppend(&out, "  - `", EnumWord(*type->value(i)),
                    "`: ", absl::StripLeadingAsciiWhitespace(comment));
  }
  return out;
}

void AddSection(const Descriptor* message, const std::string& key,
                const std::string& comment, std::string* out) {
  if (!key.empty()) {
    absl::StrAppend(out, "\n## `", key, "`\n\n");
    if (!comment.empty()) absl::StrAppend(out, comment, "\n");
  }
  for (int i = 0; i < message->field_count(); ++i) {
    const FieldDescriptor* field = message->field(i);
    absl::StrAppend(out, "- **`", field->name(), "`**: ", GetKind(field), ".\n",
                    GetOptions(field), Paragraphs(CommentOf(field), "  "));
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      absl::StrAppend(out, ChoicesOf(field->enum_type()));
    }
  }
  for (int i = 0; i < message->field_count(); ++i) {
    const FieldDescriptor* field = message->field(i);
    const FieldDescriptor* value =
        field->is_map() ? field->message_type()->map_value() : field;
    if (!IsMessage(*value)) continue;
    std::string child =
        key.empty() ? field->name() : absl::StrCat(key, ".", field->name());
    if (field->is_map()) {
      absl::StrAppend(&child, ".NAME");
    } else if (field->is_repeated()) {
      absl::StrAppend(&child, "[]");
    }
    AddSection(value->message_type(), child,
               Paragraphs(CommentOf(value->message_type()), ""), out);
  }
}

std::string ConfigurationPage(const FileDescriptor* file) {
  std::string out =
      absl::StrCat(kGenerated, "proto/config.proto instead. -->\n",
                   "# Reference: the configuration\n\n",
                   Paragraphs(CommentOfFile(file), ""), "\n",
                   "[configuration.md](../configuration.md) says how a file is "
                   "read, with an "
                   "example, and what is\nrefused across keys.\n\n");
  return out + KeyReference(*file->FindMessageTypeByName("Config"));
}

// ---- RPCs

std::string GetType(const FieldDescriptor* field) {
  if (field->is_map()) {
    return absl::StrCat("map of ",
                        field->message_type()->map_key()->type_name(), " to ",
                        GetType(field->message_type()->map_value()));
  }
  std::string type = field->type_name();
  if (IsMessage(*field)) type = field->message_type()->full_name();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    type = field->enum_type()->full_name();
  }
  type = std::string(absl::StripPrefix(type, "ballast.v1."));
  return field->is_repeated() ? absl::StrCat("repeated ", type) : type;
}

void AddMessage(const Descriptor* message, std::string* out) {
  if (message->options().map_entry()) return;
  absl::StrAppend(out, "\n### ",
                  absl::StripPrefix(message->full_name(), "ballast.v1."),
                  "\n\n");
  const std::string comment = Paragraphs(CommentOf(message), "");
  if (!comment.empty()) absl::StrAppend(out, comment, "\n");
  for (int i = 0; i < message->field_count(); ++i) {
    const FieldDescriptor* field = message->field(i);
    absl::StrAppend(
        out, "- **`", field->name(), "`** (", GetType(field), ", ",
        field->number(), ")",
        field->real_containing_oneof() != nullptr
            ? absl::StrCat(", one of `", field->real_containing_oneof()->name(),
                           "`")
            : "",
        "\n", Paragraphs(CommentOf(field), "  "));
  }
  for (int i = 0; i < message->enum_type_count(); ++i) {
    absl::StrAppend(out, "\n");
    const EnumDescriptor* type = message->enum_type(i);
    for (int j = 0; j < type->value_count(); ++j) {
      absl::StrAppend(out, "- `", type->value(j)->name(), "` (", type->name(),
                      ", ", type->value(j)->number(), ")\n",
                      Paragraphs(CommentOf(type->value(j)), "  "));
    }
  }
  for (int i = 0; i < message->nested_type_count(); ++i) {
    AddMessage(message->nested_type(i), out);
  }
}

void AddService(const ServiceDescriptor* service, std::string* out) {
  absl::StrAppend(out, "\n## ", service->full_name(), "\n\n",
                  Paragraphs(CommentOfFile(service->file()), ""));
  const std::string comment = Paragraphs(CommentOf(service), "");
  if (!comment.empty()) absl::StrAppend(out, "\n", comment);
  for (int i = 0; i < service->method_count(); ++i) {
    const MethodDescriptor* method = service->method(i);
    absl::StrAppend(out, "\n### ", method->name(), "\n\n`",
                    method->client_streaming() ? "stream " : "",
                    method->input_type()->name(), "` -> `",
                    method->server_streaming() ? "stream " : "",
                    method->output_type()->name(), "`\n\n",
                    Paragraphs(CommentOf(method), ""));
  }
}

std::string RpcPage(const std::vector<const FileDescriptor*>& files) {
  std::string out = absl::StrCat(
      kGenerated, "proto/*.proto instead. -->\n", "# Reference: RPCs\n\n",
      "What a loader server answers over gRPC, package `ballast.v1`. Beside "
      "these there\nare gRPC's own health checking and reflection.\n");
  for (const FileDescriptor* file : files) {
    for (int i = 0; i < file->service_count(); ++i) {
      AddService(file->service(i), &out);
    }
  }
  for (const FileDescriptor* file : files) {
    if (file->message_type_count() + file->enum_type_count() == 0) continue;
    absl::StrAppend(&out, "\n## Messages of ", file->name(), "\n");
    if (file->service_count() == 0) {
      absl::StrAppend(&out, "\n", Paragraphs(CommentOfFile(file), ""));
    }
    for (int i = 0; i < file->enum_type_count(); ++i) {
      const EnumDescriptor* type = file->enum_type(i);
      absl::StrAppend(&out, "\n### ", type->name(), "\n\n",
                      Paragraphs(CommentOf(type), ""));
      for (int j = 0; j < type->value_count(); ++j) {
        absl::StrAppend(&out, "- `", type->value(j)->name(), "` (",
                        type->value(j)->number(), ")\n",
                        Paragraphs(CommentOf(type->value(j)), "  "));
      }
    }
    for (int i = 0; i < file->message_type_count(); ++i) {
      AddMessage(file->message_type(i), &out);
    }
  }
  return out;
}

}  // namespace

std::string KeyReference(const Descriptor& section) {
  std::string out;
  AddSection(&section, "", "", &out);
  return out;
}

std::vector<ReferencePage> MakeReference() {
  constexpr char kDescriptors[] = "tests/docs/descriptors.bin";
  std::ifstream file(kDescriptors, std::ios::binary);
  ::google::protobuf::FileDescriptorSet set;
  if (!set.ParseFromIstream(&file)) {
    std::cerr << "cannot read " << kDescriptors << "\n";
    std::exit(1);
  }
  ::google::protobuf::DescriptorPool pool;
  for (const auto& proto : set.file()) {
    if (pool.BuildFile(proto) == nullptr) std::exit(1);
  }
  std::vector<const FileDescriptor*> files;
  for (const char* name :
       {"loader_service", "schedule_service", "order_service",
        "metrics_service", "revision_service", "job", "schedule", "balance"}) {
    files.push_back(
        pool.FindFileByName(absl::StrCat("proto/", name, ".proto")));
  }
  return {{"docs/reference/configuration.md",
           ConfigurationPage(pool.FindFileByName("proto/config.proto"))},
          {"docs/reference/rpc.md", RpcPage(files)}};
}

}  // namespace ballast
