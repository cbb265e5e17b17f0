#include "server/text/own_template.h"

#include <cstddef>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/small_file.h"
#include "server/config/profiles.h"

namespace ballast {
namespace {

using Json = nlohmann::json;

// tokenizer_config.json lists the added tokens, at most a few MB.
constexpr size_t kMostBytes = size_t{16} << 20;

// The template of a file in JSON.
std::string TemplateOf(const std::string& file) {
  const Json json =
      Json::parse(file, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return "";
  const auto found = json.find("chat_template");
  if (found == json.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return "";
  for (const Json& one : *found) {
    if (one.is_object() && one.value("name", Json()) == "default" &&
        one.value("template", Json()).is_string()) {
      return one["template"].get<std::string>();
    }
  }
  return "";
}

}  // namespace

std::string OwnTemplate(const TemplateFiles& files) {
  if (!files.jinja.empty()) return files.jinja;
  std::string own = TemplateOf(files.json);
  return own.empty() ? TemplateOf(files.tokenizer_config) : own;
}

std::string TemplateFault(const v1::Chat* chat, absl::string_view own) {
  if (own.empty() || chat == nullptr) return "";
  for (const std::string& one : chat->own_has()) {
    if (!absl::StrContains(own, one)) {
      return absl::StrCat("lacks \"", one, "\"");
    }
  }
  for (const std::string& one : chat->own_lacks()) {
    if (absl::StrContains(own, one)) return absl::StrCat("has \"", one, "\"");
  }
  return "";
}

std::vector<std::string> TemplateWarnings(const v1::Model& model) {
  const std::string folder =
      model.tokenizer().substr(0, model.tokenizer().rfind('/') + 1);
  const auto read = [&](const char* name) {
    return ReadSmallFile(folder + name, kMostBytes).value_or("");
  };
  if (model.tokenizer() == "bytes") return {};
  const std::string fault = TemplateFault(
      FindChat(model.chat_template()),
      OwnTemplate({read("chat_template.jinja"), read("chat_template.json"),
                   read("tokenizer_config.json")}));
  if (fault.empty()) return {};
  return {absl::StrCat(
      "model.chat_template: found ", model.chat_template(),
      ", where the template beside ", model.tokenizer(), " ", fault,
      ": the checkpoint writes conversations otherwise than the one that this "
      "template is of; compare `ballast-server inspect conversation` with it, "
      "and name another template or give a custom one (docs/families.md, "
      "\"Chat templates\")")};
}

}  // namespace ballast
