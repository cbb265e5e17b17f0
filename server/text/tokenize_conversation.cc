#include "server/text/tokenize_conversation.h"

#include <utility>

#include "common/status_macros.h"
#include "server/text/chat_template.h"
#include "server/text/token_writer.h"

namespace ballast {
namespace {

using Kind = TextToken::Kind;

const v1::ChatTemplate::Turn& TemplateOf(const v1::ChatTemplate& chat,
                                         Role role) {
  switch (role) {
    case Role::kSystem:
      return chat.system();
    case Role::kAssistant:
      return chat.assistant();
    case Role::kUser:
      break;
  }
  return chat.user();
}

void AddTurn(Role role, absl::string_view text, const v1::ChatTemplate& chat,
             TokenWriter* writer) {
  const v1::ChatTemplate::Turn& turn = TemplateOf(chat, role);
  const Kind said = turn.supervised() ? Kind::kSupervised : Kind::kContext;
  writer->AddTemplateText(turn.prefix(), Kind::kContext);
  writer->AddMarkedText(chat.trim() ? StripWhiteSpace(text) : text, said);
  writer->AddTemplateText(turn.end(), said);
  writer->AddTemplateText(turn.suffix(), Kind::kContext);
}

}  // namespace

absl::StatusOr<std::vector<TextToken>> TokenizeConversation(
    absl::Span<const Turn> turns, size_t image_count,
    absl::Span<const VideoText> videos, const TextOptions& options) {
  const v1::Model& model = *options.model;
  const v1::ChatTemplate chat = MakeChatTemplate(model);
  TokenWriter writer(options.tokenizer, &model.token_ids(), image_count,
                     videos);
  writer.AddTemplateText(chat.begin(), Kind::kContext);
  if (!model.system_prompt().empty() &&
      (turns.empty() || turns[0].role != Role::kSystem)) {
    AddTurn(Role::kSystem, model.system_prompt(), chat, &writer);
  }
  for (const Turn& turn : turns) AddTurn(turn.role, turn.text, chat, &writer);
  return std::move(writer).Finish(image_count);
}

}  // namespace ballast
