#include "tests/docs/promise.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/message_fields.h"
#include "proto/block/block_layout.h"
#include "server/sample/index_format.h"
#include "server/settings/config_keys.h"
#include "trainer_shim/c_api/c_api_base.h"

namespace ballast {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::FileDescriptor;

std::string ReadSource(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty()) {
    std::cerr << "promise: cannot read " << path << "\n";
    std::exit(1);
  }
  return text.str();
}

// ---- Messages and keys

std::string TypeOf(const FieldDescriptor& field) {
  if (field.is_map()) {
    return absl::StrCat("map of ", TypeOf(*field.message_type()->map_key()),
                        " to ", TypeOf(*field.message_type()->map_value()));
  }
  const std::string repeated = field.is_repeated() ? "repeated " : "";
  if (IsMessage(field)) {
    return absl::StrCat(repeated, field.message_type()->full_name());
  }
  if (field.type() == FieldDescriptor::TYPE_ENUM) {
    return absl::StrCat(repeated, field.enum_type()->full_name());
  }
  return absl::StrCat(repeated, field.type_name());
}

void ListEnum(const EnumDescriptor& type, std::vector<std::string>* lines) {
  for (int i = 0; i < type.value_count(); ++i) {
    lines->push_back(absl::StrCat("value ", type.full_name(), ".",
                                  type.value(i)->name(), " = ",
                                  type.value(i)->number()));
  }
}

void ListMessage(const Descriptor& message, std::vector<std::string>* lines) {
  if (message.options().map_entry()) return;
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const std::string& by_default = GetSetting(field).default_();
    lines->push_back(absl::StrCat(
        "field ", field.full_name(), " = ", field.number(), " ", TypeOf(field),
        by_default.empty() ? "" : absl::StrCat(", default ", by_default)));
  }
  for (int i = 0; i < message.enum_type_count(); ++i) {
    ListEnum(*message.enum_type(i), lines);
  }
  for (int i = 0; i < message.nested_type_count(); ++i) {
    ListMessage(*message.nested_type(i), lines);
  }
}

void ListProtos(std::vector<std::string>* lines) {
  ::google::protobuf::FileDescriptorSet set;
  if (!set.ParseFromString(ReadSource("tests/docs/descriptors.bin"))) {
    std::cerr << "promise: no descriptors\n";
    std::exit(1);
  }
  ::google::protobuf::DescriptorPool pool;
  for (const auto& proto : set.file()) {
    const FileDescriptor* const file = pool.BuildFile(proto);
    if (file == nullptr) std::exit(1);
    // The options of keys are read by this tree alone.
    if (file->package() != "ballast.v1" ||
        file->name() == "proto/options.proto") {
      continue;
    }
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        const auto& method = *file->service(i)->method(j);
        lines->push_back(
            absl::StrCat("rpc ", method.full_name(), "(",
                         method.client_streaming() ? "stream " : "",
                         method.input_type()->name(), ") -> ",
                         method.server_streaming() ? "stream " : "",
                         method.output_type()->name()));
      }
    }
    for (int i = 0; i < file->enum_type_count(); ++i) {
      ListEnum(*file->enum_type(i), lines);
    }
    for (int i = 0; i < file->message_type_count(); ++i) {
      ListMessage(*file->message_type(i), lines);
    }
  }
}

// ---- C, Python, formats

std::string Replaced(const std::string& text, const char* pattern,
                     const char* with) {
  return std::regex_replace(text, std::regex(pattern), with);
}

// Functions, and structs and enums with their members.
void ListHeader(const std::string& path, std::vector<std::string>* lines) {
  std::string text = ReadSource(path);
  text = Replaced(text, R"(/\*[^*]*\*+([^/*][^*]*\*+)*/)", " ");
  text = Replaced(text, R"(\n#[^\n]*)", " ");
  text = Replaced(text, R"(extern "C" \{)", " ");
  text = Replaced(text, R"(\s+)", " ");
  static const std::regex* const kDeclaration = new std::regex(
      R"(BALLAST_API ([^;]*);|typedef (struct|enum) (\w+) \{([^}]*)\})");
  for (std::sregex_iterator found(text.begin(), text.end(), *kDeclaration), end;
       found != end; ++found) {
    const std::smatch& match = *found;
    lines->push_back(
        match[1].matched
            ? absl::StrCat("c ", match[1].str())
            : absl::StrCat("c ", match[2].str(), " ", match[3].str(), " {",
                           absl::StripTrailingAsciiWhitespace(match[4].str())));
  }
}

void ListNames(const std::string& package, const std::string& path,
               std::vector<std::string>* lines) {
  const std::string text = ReadSource(path);
  std::smatch names;
  if (!std::regex_search(text, names,
                         std::regex(R"(__all__ = \[([^\]]*)\])"))) {
    std::cerr << "promise: no __all__ in " << path << "\n";
    std::exit(1);
  }
  for (absl::string_view part : absl::StrSplit(names[1].str(), '"')) {
    if (!part.empty() && part.find_first_of(", \n") == part.npos) {
      lines->push_back(absl::StrCat("python ", package, ".", part));
    }
  }
}

// "field ballast.v1.Serve.memory", by which a changed line is found.
std::string NameOf(const std::string& line) {
  const std::vector<std::string> words =
      absl::StrSplit(line, absl::MaxSplits(' ', 2));
  if (words.size() < 2) return line;
  if (words[0] != "c") return absl::StrCat(words[0], " ", words[1]);
  std::smatch name;
  const bool found = std::regex_search(line, name, std::regex("ballast_\\w+"));
  return found ? absl::StrCat("c ", name.str()) : line;
}

}  // namespace

std::vector<std::string> ListPromise() {
  std::vector<std::string> lines;
  ListProtos(&lines);
  for (const char* header : {"c_api_base", "c_api_batch", "c_api"}) {
    ListHeader(absl::StrCat("trainer_shim/c_api/", header, ".h"), &lines);
  }
  ListNames("ballast", "trainer_shim/python/ballast/__init__.py", &lines);
  ListNames("ballast.adapters",
            "trainer_shim/python/ballast/adapters/__init__.py", &lines);
  lines.push_back(absl::StrCat("format kArenaVersion ", kArenaVersion));
  lines.push_back(absl::StrCat("format kBlockVersion ", kBlockVersion));
  lines.push_back(absl::StrCat("format kIndexVersion ", kIndexVersion));
  lines.push_back(
      absl::StrCat("format ballast_abi_version ", BALLAST_ABI_VERSION));
  return lines;
}

std::vector<std::string> FindBroken(const std::vector<std::string>& released,
                                    const std::vector<std::string>& now) {
  const std::set<std::string> lines(now.begin(), now.end());
  std::map<std::string, std::string> by_name;
  for (const std::string& line : now) by_name.emplace(NameOf(line), line);
  std::vector<std::string> broken;
  for (const std::string& line : released) {
    if (lines.count(line) != 0) continue;
    const auto found = by_name.find(NameOf(line));
    if (found == by_name.end()) {
      broken.push_back(absl::StrCat(line, "\n  is gone"));
    } else if (!absl::StrContains(line, "{") ||
               !absl::StartsWith(found->second, line)) {
      broken.push_back(absl::StrCat(line, "\n  is now ", found->second));
    }
  }
  return broken;
}

}  // namespace ballast
