#include "server/text/template/jinja_template.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include <xxhash.h>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/small_file.h"
#include "server/text/chat_writer.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kCheckpoint[] = "checkpoint";
// tokenizer_config.json lists the added tokens, at most a few MB.
constexpr size_t kMaxBytes = size_t{16} << 20;
constexpr char kToolUse[] = "tool_use";
// Raised when renderer.py makes another text or other spans of the same
// conversation, or refuses others.
//   2: what the template leaves out is refused; texts where it writes parts
//      alone are parts; an empty thought for a message with one is the
//      template's
constexpr int kRendererRules = 2;

std::string ReadBeside(const std::string& tokenizer, const char* name) {
  const std::string folder = tokenizer.substr(0, tokenizer.rfind('/') + 1);
  return ReadSmallFile(folder + name, kMaxBytes).value_or("");
}

}  // namespace

std::string JinjaTemplate::hash() const {
  // No JSON holds a zero byte.
  const std::string zero(1, '\0');
  const std::string whole =
      absl::StrCat(kRendererRules, zero, variables, zero, tool_use, zero, text);
  const XXH128_hash_t hash = XXH3_128bits(whole.data(), whole.size());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

absl::StatusOr<JinjaTemplate> ReadJinjaTemplate(const std::string& tokenizer) {
  JinjaTemplate read;
  const TemplateFiles files = {ReadBeside(tokenizer, "chat_template.jinja"),
                               ReadBeside(tokenizer, "chat_template.json"),
                               ReadBeside(tokenizer, "tokenizer_config.json")};
  read.text = OwnTemplate(files);
  read.tool_use =
      files.jinja.empty()
          ? OwnTemplate(files, kToolUse)
          : ReadBeside(tokenizer, "additional_chat_templates/tool_use.jinja");
  if (read.text.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "model.chat_template: found checkpoint, and no chat template beside ",
        tokenizer,
        "; wanted chat_template.jinja there, or the key chat_template of "
        "chat_template.json or tokenizer_config.json: copy it from the "
        "checkpoint, or name a template of docs/text.md"));
  }
  read.variables = ReadTemplateVariables(tokenizer);
  return read;
}

std::string ReadTemplateVariables(const std::string& tokenizer) {
  Json variables = Json::object();
  // The first file that has a name is right, as in transformers.
  for (const char* file :
       {"tokenizer_config.json", "special_tokens_map.json"}) {
    const Json read = Json::parse(ReadBeside(tokenizer, file), /*cb=*/nullptr,
                                  /*allow_exceptions=*/false);
    if (!read.is_object()) continue;
    for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token",
                             "pad_token", "cls_token", "mask_token"}) {
      const auto found = read.find(name);
      if (found == read.end() || variables.contains(name)) continue;
      const Json value =
          found->is_object() ? found->value("content", Json()) : *found;
      if (value.is_string()) variables[name] = value;
    }
  }
  return variables.dump();
}

bool IsCheckpointTemplate(absl::string_view chat_template) {
  return chat_template == kCheckpoint ||
         absl::StartsWith(chat_template, absl::StrCat(kCheckpoint, "@"));
}

std::string CheckpointTemplateName(const JinjaTemplate& source,
                                   absl::string_view jinja_version) {
  return absl::StrCat(kCheckpoint, "@", source.hash(), "+jinja2-",
                      jinja_version);
}

}  // namespace ballast
