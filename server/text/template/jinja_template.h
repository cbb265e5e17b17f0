#ifndef BALLAST_SERVER_TEXT_TEMPLATE_JINJA_TEMPLATE_H_
#define BALLAST_SERVER_TEXT_TEMPLATE_JINJA_TEMPLATE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// A checkpoint's chat template, in Jinja, and its tokenizer's names of special
// tokens, which templates use as variables.
struct JinjaTemplate {
  std::string text;
  // For conversations with tools, where the checkpoint has a second template of
  // this name; "": `text`.
  std::string tool_use = "";
  std::string variables = "{}";  // an object of JSON: {"bos_token": "<s>", …}

  // Hexadecimal; equal for templates that render alike with one jinja2 and one
  // version of renderer.py's rules.
  std::string hash() const;
};

// The template beside the tokenizer's file. Errors: NOT_FOUND (no file there
// has one). Blocks on the disk.
absl::StatusOr<JinjaTemplate> ReadJinjaTemplate(const std::string& tokenizer);

// The special tokens' names, as ReadJinjaTemplate takes them from the files
// beside the tokenizer.
std::string ReadTemplateVariables(const std::string& tokenizer);

// Whether model.chat_template has the checkpoint's own template rendered:
// `checkpoint`, or the name that OpenModelTokenizer gives it.
bool IsCheckpointTemplate(absl::string_view chat_template);

// The value of model.chat_template by which servers compare what they render:
// checkpoint@HASH+jinja2-VERSION.
std::string CheckpointTemplateName(const JinjaTemplate& source,
                                   absl::string_view jinja_version);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TEMPLATE_JINJA_TEMPLATE_H_
