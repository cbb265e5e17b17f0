#include "server/text/model_tokenizer.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/config/model_profile.h"

namespace ballast {
namespace {

// A token id, and what Qwen's tokenizers call the token.
struct NamedId {
  const char* content;
  int32_t (v1::TokenIds::*get)() const;
  void (v1::TokenIds::*set)(int32_t);
};

constexpr NamedId kNamedIds[] = {
    {"<|image_pad|>", &v1::TokenIds::image, &v1::TokenIds::set_image},
    {"<|video_pad|>", &v1::TokenIds::video, &v1::TokenIds::set_video},
    {"<|vision_start|>", &v1::TokenIds::vision_start,
     &v1::TokenIds::set_vision_start},
    {"<|vision_end|>", &v1::TokenIds::vision_end,
     &v1::TokenIds::set_vision_end},
    {"<|im_start|>", &v1::TokenIds::im_start, &v1::TokenIds::set_im_start},
    {"<|im_end|>", &v1::TokenIds::im_end, &v1::TokenIds::set_im_end},
    {"<|endoftext|>", &v1::TokenIds::end_of_text,
     &v1::TokenIds::set_end_of_text},
    {"<|endoftext|>", &v1::TokenIds::pad, &v1::TokenIds::set_pad},
};

void FollowTokenizer(const Tokenizer& tokenizer, v1::Model* model) {
  if (model->profile().empty()) return;
  v1::Model plain;
  plain.set_profile(model->profile());
  if (!ApplyModelProfile(&plain).ok()) return;
  v1::TokenIds* ids = model->mutable_token_ids();
  for (const NamedId& named : kNamedIds) {
    const std::optional<int32_t> id = tokenizer.SpecialTokenId(named.content);
    if (id && (ids->*named.get)() == (plain.token_ids().*named.get)()) {
      (ids->*named.set)(*id);
    }
  }
}

// What else is in a text must not pass for a placeholder.
absl::Status CheckImageId(const v1::TokenIds& ids) {
  for (const NamedId& named : kNamedIds) {
    if (named.get == &v1::TokenIds::image ||
        (ids.*named.get)() != ids.image()) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "model.token_ids: ", ids.image(), " is the image's and ", named.content,
        "'s; give them the ids that the tokenizer has"));
  }
  return absl::OkStatus();
}

absl::Status CheckTemplate(const Tokenizer& tokenizer, const v1::Model& model) {
  if (model.chat_template() != "llama3") return absl::OkStatus();
  for (const char* content : {"<|begin_of_text|>", "<|start_header_id|>",
                              "<|end_header_id|>", "<|eot_id|>"}) {
    if (tokenizer.SpecialTokenId(content)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("model.chat_template: llama3 needs the token ", content,
                     ", which the tokenizer ", model.tokenizer(), " lacks"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenModelTokenizer(
    v1::Model* model) {
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                           MakeTokenizer(model->tokenizer()));
  BALLAST_RETURN_IF_ERROR(CheckTemplate(*tokenizer, *model));
  FollowTokenizer(*tokenizer, model);
  BALLAST_RETURN_IF_ERROR(CheckImageId(model->token_ids()));
  return tokenizer;
}

}  // namespace ballast
