#ifndef BALLAST_SERVER_TEXT_OWN_TEMPLATE_H_
#define BALLAST_SERVER_TEXT_OWN_TEMPLATE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/model.pb.h"
#include "proto/model_profile.pb.h"

namespace ballast {

// The files of a checkpoint that may hold its chat template, in Jinja; "" if
// missing.
struct TemplateFiles {
  std::string jinja;             // chat_template.jinja
  std::string json;              // chat_template.json
  std::string tokenizer_config;  // tokenizer_config.json
};

// The checkpoint's template: that of the first of these files that has one, ""
// if none has. Of several templates of a file it is the default. Pure.
std::string OwnTemplate(const TemplateFiles& files);

// What shows that `own`, a checkpoint's template, is not `chat`, by its own_has
// and own_lacks: `lacks "[INST]"`, say, or `has "<think>"`. "" if nothing does,
// if `own` is empty, and for nullptr. Few strings are looked for: "" does not
// prove that the templates are equal. Pure.
std::string TemplateFault(const v1::Chat* chat, absl::string_view own);

// A warning, with what to do, if the template beside `model.tokenizer` shows
// that it is not the one that model.chat_template names. A missing file,
// or one that is not such a file, warns of nothing. `model` is a loaded one.
// Blocks on the disk.
std::vector<std::string> TemplateWarnings(const v1::Model& model);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_OWN_TEMPLATE_H_
