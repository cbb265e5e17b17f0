#include "server/text/model_tokenizer.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "proto/image/job_images.h"
#include "server/media/image_plan/image_family.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"
#include "server/text/bpe/bpe_tokenizer.h"
#include "server/text/chat_writer.h"
#include "server/text/sentencepiece/sentencepiece_tokenizer.h"
#include "server/text/template/template_renderer.h"

namespace ballast {
namespace {

// Several times the size of the largest tokenizer in use.
constexpr size_t kMaxFileBytes = size_t{256} << 20;

class BytesTokenizer final : public Tokenizer {
 public:
  absl::Status EncodeWithEnds(absl::string_view text, std::vector<int32_t>* ids,
                              std::vector<size_t>* ends) const override {
    ids->reserve(ids->size() + text.size());
    for (const char byte : text) {
      ids->push_back(static_cast<unsigned char>(byte));
    }
    if (ends != nullptr) {
      for (size_t end = 1; end <= text.size(); ++end) ends->push_back(end);
    }
    return absl::OkStatus();
  }

  absl::Status Decode(absl::Span<const int32_t> ids,
                      std::string* text) const override {
    for (const int32_t id : ids) {
      if (id < 0 || id > 255) {
        return absl::InvalidArgumentError(
            absl::StrCat("id ", id, " is not a byte; wanted 0 to 255"));
      }
      text->push_back(static_cast<char>(id));
    }
    return absl::OkStatus();
  }

  std::optional<int32_t> SpecialTokenId(absl::string_view) const override {
    return std::nullopt;
  }

  std::string digest() const override { return "bytes-1"; }
};

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) {
    const absl::Status status = absl::ErrnoToStatus(errno, "cannot be opened");
    return absl::Status(
        status.code(),
        absl::StrCat(status.message(),
                     "; wanted the path of a tokenizer.json or a SentencePiece "
                     "model, or `bytes`"));
  }
  std::string content;
  char buffer[1 << 16];
  size_t read;
  while ((read = std::fread(buffer, 1, sizeof(buffer), file.get())) > 0) {
    content.append(buffer, read);
    if (content.size() > kMaxFileBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("over ", kMaxFileBytes, " bytes; wanted a tokenizer"));
    }
  }
  if (std::ferror(file.get()) != 0) {
    if (errno == EISDIR) {
      return absl::InvalidArgumentError(
          "is a folder; wanted the path of the tokenizer.json in it, or of a "
          "SentencePiece model");
    }
    return absl::ErrnoToStatus(errno, "cannot be read");
  }
  return content;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTokenizer(
    const std::string& path) {
  BALLAST_ASSIGN_OR_RETURN(std::string content, ReadFile(path));
  // The first byte of a SentencePiece model is 0x0A, which is also white space.
  if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(content), "{")) {
    return MakeBpeTokenizer(content);
  }
  return MakeSentencePieceTokenizer(std::move(content));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(
    const std::string& name_or_path) {
  if (name_or_path == "bytes") return std::make_unique<BytesTokenizer>();
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      ReadTokenizer(name_or_path);
  if (!tokenizer.ok()) {
    return Annotate(tokenizer.status(),
                    absl::StrCat("tokenizer ", name_or_path));
  }
  return tokenizer;
}

namespace {

// A token id, its key, and the token's name.
struct NamedId {
  const char* key;
  std::string content;
  int32_t (v1::TokenIds::*get)() const;
  void (v1::TokenIds::*set)(int32_t);
};

// The names of a model's ids. "": the model has no such token.
std::vector<NamedId> NamedIds(const v1::Model& model) {
  const ImageMarks marks = GetImageFamily(model).marks;
  const v1::ModelProfile* profile = GetProfile(model);
  std::string video;
  std::string end_of_text;
  if (profile != nullptr && !HasOtherImages(model)) {
    video = profile->videos().placeholder();
    end_of_text = profile->end_of_text();
  }
  if (end_of_text.empty()) end_of_text = "<|endoftext|>";
  using Ids = v1::TokenIds;
  std::vector<NamedId> names = {
      {"image", marks.placeholder, &Ids::image, &Ids::set_image},
      {"video", video, &Ids::video, &Ids::set_video},
      {"vision_start", marks.before, &Ids::vision_start,
       &Ids::set_vision_start},
      {"vision_end", marks.after, &Ids::vision_end, &Ids::set_vision_end},
      {"im_start", "<|im_start|>", &Ids::im_start, &Ids::set_im_start},
      {"im_end", "<|im_end|>", &Ids::im_end, &Ids::set_im_end},
      {"end_of_text", end_of_text, &Ids::end_of_text, &Ids::set_end_of_text},
      {"pad", end_of_text, &Ids::pad, &Ids::set_pad},
  };
  const v1::AudioFamily::Marks* of_rows = GetRowsMarks(model);
  if (of_rows != nullptr && model.token_ids().has_audio()) {
    names.push_back(
        {"audio", of_rows->placeholder(), &Ids::audio, &Ids::set_audio});
  }
  return names;
}

bool IsOfChatMl(const NamedId& named) {
  return named.get == &v1::TokenIds::im_start ||
         named.get == &v1::TokenIds::im_end;
}

bool TemplateHas(const v1::Model& model, absl::string_view content) {
  const v1::Chat chat = GetChat(model);
  const std::vector<const std::string*> texts = GetTexts(chat);
  return std::any_of(texts.begin(), texts.end(), [&](const std::string* text) {
    return absl::StrContains(*text, content);
  });
}

// The id of a token that the tokenizer does not have by name. The profile's id
// is then a different token or none, unless the tokenizer uses the profile's
// ids.
absl::StatusOr<int32_t> OwnId(const NamedId& named,
                              const Tokenizer::ModelIds& own,
                              const v1::Model& model) {
  const v1::TokenIds& ids = model.token_ids();
  if (named.get == &v1::TokenIds::pad) {
    return own.pad >= 0 ? own.pad : ids.end_of_text();
  }
  if (named.get == &v1::TokenIds::end_of_text && own.end_of_text >= 0) {
    return own.end_of_text;
  }
  // A token that is never written needs no id.
  if (named.get == &v1::TokenIds::video ||
      (IsOfChatMl(named) && !TemplateHas(model, named.content))) {
    return -1;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "model.token_ids.", named.key, ": the tokenizer ", model.tokenizer(),
      " has no token ", named.content, ", and the id ", (ids.*named.get)(),
      " of the profile ", model.profile(),
      " is not its own; give the id that the model was trained with"));
}

// Replaces the ids that come from the profile by the tokenizer's.
absl::Status ReplaceIds(const Tokenizer& tokenizer,
                        const v1::TokenIds& of_profile, v1::Model* model) {
  v1::TokenIds* ids = model->mutable_token_ids();
  const std::optional<Tokenizer::ModelIds> own = tokenizer.model_ids();
  for (const NamedId& named : NamedIds(*model)) {
    if ((ids->*named.get)() != (of_profile.*named.get)()) continue;
    std::optional<int32_t> id = tokenizer.SpecialTokenId(named.content);
    if (!id && own) {
      BALLAST_ASSIGN_OR_RETURN(id, OwnId(named, *own, *model));
    }
    if (id) (ids->*named.set)(*id);
  }
  return absl::OkStatus();
}

// The id that `model` gives, or the tokenizer's for token `content`.
absl::StatusOr<int32_t> FamilyId(const char* key, int32_t given,
                                 absl::string_view content,
                                 const Tokenizer& tokenizer,
                                 const v1::Model& model) {
  if (given >= 0) return given;
  if (!content.empty()) {
    if (const auto id = tokenizer.SpecialTokenId(content)) return *id;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("model.token_ids.", key, ": the tokenizer ",
                   model.tokenizer(), " has no token \"", content,
                   "\" of the family ", model.image_family().name(),
                   "; give the tokenizer of its checkpoint, or the id"));
}

// The id of the placeholder of audio, or of another kind that travels as rows,
// of a model that takes it: its own, else the tokenizer's. A model whose marks
// or ids nobody knows has none, and samples with such media are refused.
void FindRowsId(const Tokenizer& tokenizer, v1::Model* model) {
  const v1::AudioFamily::Marks* marks = GetRowsMarks(*model);
  if (marks == nullptr) return;
  v1::TokenIds* ids = model->mutable_token_ids();
  if (ids->has_audio() || marks->placeholder().empty()) return;
  if (const auto id = tokenizer.SpecialTokenId(marks->placeholder())) {
    ids->set_audio(*id);
  }
}

// Fills in the ids that a job needs and nobody gives: placeholder, end of text,
// padding, and ids of the chat template.
absl::Status FindIds(const Tokenizer& tokenizer, v1::Model* model) {
  v1::TokenIds* ids = model->mutable_token_ids();
  const std::vector<NamedId> names = NamedIds(*model);
  const std::string& placeholder = names[0].content;
  const v1::ModelProfile* profile = GetProfile(*model);
  const bool has_images = profile == nullptr || TakesImages(*profile);
  if (has_images && placeholder.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.image_family.marks.placeholder: found none, so images of ",
        model->image_family().name(),
        " would not be in any text; wanted the token that the model replaces "
        "by an image's features"));
  }
  if (has_images) {
    BALLAST_ASSIGN_OR_RETURN(
        const int32_t image,
        FamilyId("image", ids->image(), placeholder, tokenizer, *model));
    ids->set_image(image);
  }
  const std::optional<Tokenizer::ModelIds> own = tokenizer.model_ids();
  if (ids->end_of_text() < 0 && own && own->end_of_text >= 0) {
    ids->set_end_of_text(own->end_of_text);
  }
  BALLAST_ASSIGN_OR_RETURN(const int32_t end,
                           FamilyId("end_of_text", ids->end_of_text(),
                                    names[6].content, tokenizer, *model));
  ids->set_end_of_text(end);
  if (ids->pad() < 0) {
    ids->set_pad(own && own->pad >= 0
                     ? own->pad
                     : tokenizer.SpecialTokenId("<pad>").value_or(end));
  }
  // The tokenizer has the tokens of a model's own template.
  if (FindChat(model->chat_template()) != nullptr) {
    return absl::OkStatus();
  }
  for (const NamedId& named : names) {
    if (!IsOfChatMl(named) || !TemplateHas(*model, named.content)) continue;
    BALLAST_ASSIGN_OR_RETURN(const int32_t id,
                             FamilyId(named.key, (ids->*named.get)(),
                                      named.content, tokenizer, *model));
    (ids->*named.set)(id);
  }
  return absl::OkStatus();
}

// No other token may have the id of the image placeholder.
absl::Status CheckImageId(const v1::Model& model) {
  const v1::TokenIds& ids = model.token_ids();
  if (ids.image() < 0) return absl::OkStatus();
  for (const NamedId& named : NamedIds(model)) {
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

const char* GetName(v1::Model::Reasoning reasoning) {
  switch (reasoning) {
    case v1::Model::REASONING_KEEP:
      return "keep";
    case v1::Model::REASONING_LAST:
      return "last";
    case v1::Model::REASONING_DROP:
      return "drop";
    default:
      return "template";
  }
}

// Opens the checkpoint's template, and names it by what it says and what
// renders it: servers and indexes compare the name.
absl::StatusOr<std::unique_ptr<const TemplateRenderer>> OpenTemplate(
    v1::Model* model) {
  BALLAST_ASSIGN_OR_RETURN(const JinjaTemplate source,
                           ReadJinjaTemplate(model->tokenizer()));
  auto renderer = TemplateRenderer::Create(
      source, {.system_prompt = model->system_prompt(),
               .date = model->template_date(),
               .reasoning = GetName(model->reasoning())});
  if (!renderer.ok()) {
    return Annotate(
        renderer.status(),
        absl::StrCat("model.chat_template: next to ", model->tokenizer()));
  }
  model->set_chat_template(
      CheckpointTemplateName(source, (*renderer)->jinja_version()));
  return renderer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenModelTokenizer(
    v1::Model* model, std::unique_ptr<const TemplateRenderer>* renderer) {
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                           MakeTokenizer(model->tokenizer()));
  BALLAST_RETURN_IF_ERROR(CheckTemplate(*tokenizer, *model));
  const v1::ModelProfile* profile = GetProfile(*model);
  if (!HasImageKeys(*model)) {
    BALLAST_RETURN_IF_ERROR(FindIds(*tokenizer, model));
  } else if (profile != nullptr && profile->has_token_ids()) {
    BALLAST_RETURN_IF_ERROR(
        ReplaceIds(*tokenizer, profile->token_ids(), model));
  }
  FindRowsId(*tokenizer, model);
  BALLAST_RETURN_IF_ERROR(CheckImageId(*model));
  if (IsCheckpointTemplate(model->chat_template())) {
    BALLAST_ASSIGN_OR_RETURN(auto opened, OpenTemplate(model));
    if (renderer != nullptr) *renderer = std::move(opened);
  }
  return tokenizer;
}

}  // namespace ballast
