#include "server/text/own_template.h"

#include <cstddef>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/small_file.h"

namespace ballast {
namespace {

using Json = nlohmann::json;

// tokenizer_config.json lists the added tokens, at most a few MB.
constexpr size_t kMostBytes = size_t{16} << 20;

// What a family's template in Jinja has, and what those of other checkpoints
// with the same images have instead.
struct Signs {
  absl::string_view family;
  std::vector<absl::string_view> wanted;
  std::vector<absl::string_view> unwanted;
};

const std::vector<Signs>& AllSigns() {
  static const auto& signs = *new std::vector<Signs>{
      // ERNIE-4.5-VL-Thinking parts an image from the text before.
      {"ernie4_5_vl", {"Picture"}, {"{{ ' ' }}Picture"}},
      {"gemma3", {"<start_of_turn>"}, {}},
      {"gemma3_pan_and_scan", {"<start_of_turn>"}, {}},
      // The files of the release have line feeds around an image.
      {"gemma4", {"<|turn>"}, {"\\n<|image|>"}},
      {"glm46v", {"<|begin_of_image|>", "<think></think>"}, {}},
      {"glm4v", {"<|begin_of_image|>"}, {"<think>"}},
      {"hunyuan_vl", {"hy_User"}, {}},
      {"idefics3", {"<end_of_utterance>"}, {}},
      {"internvl3", {"<|im_start|>"}, {}},
      {"kimi_k25", {"<|im_middle|>", "think>"}, {}},
      {"llama4", {"<|header_start|>"}, {}},
      // Not those of Mistral, Llama 3, or Yi.
      {"llava1_5", {".upper()", "ASSISTANT:"}, {}},
      {"llava1_5_pad", {".upper()", "ASSISTANT:"}, {}},
      {"llava_next", {".upper()", "ASSISTANT:"}, {}},
      // The first files have line feeds after roles.
      {"llava_onevision", {"<|im_start|>", "['role'] + ' '"}, {}},
      // The checkpoint's file is Qwen2's; its training code writes its own.
      {"llava_video", {"<|im_start|>"}, {}},
      {"minicpmv4_6", {"<|im_start|>", "<think>"}, {}},
      // Mistral Small 3.1 has a system turn of its own.
      {"pixtral", {"[INST]"}, {"[SYSTEM_PROMPT]"}},
      {"smolvlm", {"<end_of_utterance>"}, {}},
  };
  return signs;
}

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

std::string TemplateFault(absl::string_view family, absl::string_view own) {
  if (own.empty()) return "";
  for (const Signs& signs : AllSigns()) {
    if (signs.family != family) continue;
    for (const absl::string_view one : signs.wanted) {
      if (!absl::StrContains(own, one)) {
        return absl::StrCat("lacks \"", one, "\"");
      }
    }
    for (const absl::string_view one : signs.unwanted) {
      if (absl::StrContains(own, one)) return absl::StrCat("has \"", one, "\"");
    }
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
      model.chat_template(),
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
