#include "server/text/chatml.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/text/token_writer.h"

namespace ballast {
namespace {

using Kind = TextToken::Kind;

absl::Status AddTurn(const Turn& turn, const v1::TokenIds& token_ids,
                     TokenWriter* writer) {
  const bool learnt = turn.role == Role::kAssistant;
  const Kind kind = learnt ? Kind::kSupervised : Kind::kContext;
  const std::string header = absl::StrCat(RoleName(turn.role), "\n");
  writer->AddSpecial(token_ids.im_start(), Kind::kContext);
  if (learnt) {
    BALLAST_RETURN_IF_ERROR(writer->AddText(header, Kind::kContext));
    BALLAST_RETURN_IF_ERROR(writer->AddMarkedText(turn.text, kind));
  } else {
    BALLAST_RETURN_IF_ERROR(
        writer->AddMarkedText(absl::StrCat(header, turn.text), kind));
  }
  writer->AddSpecial(token_ids.im_end(), kind);
  return writer->AddText("\n", Kind::kContext);
}

}  // namespace

absl::StatusOr<std::vector<TextToken>> TokenizeChatml(
    absl::Span<const Turn> turns, size_t image_count,
    const Tokenizer& tokenizer, const v1::TokenIds& token_ids) {
  TokenWriter writer(&tokenizer);
  for (const Turn& turn : turns) {
    BALLAST_RETURN_IF_ERROR(AddTurn(turn, token_ids, &writer));
  }
  return std::move(writer).Finish(image_count);
}

}  // namespace ballast
