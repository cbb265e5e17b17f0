#include "server/text/template/rendered_text.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "server/config/profiles.h"
#include "server/corpus/data_fault.h"
#include "server/text/chat_writer.h"

namespace ballast {
namespace {

using Span = RenderedConversation::Span;
using Kind = TextToken::Kind;

// Bytes of an empty thought at the start of `said`, and of the white space
// around it; 0 without one.
size_t EmptyThought(absl::string_view said) {
  absl::string_view rest = said;
  if (!absl::ConsumePrefix(&rest, "<think>")) return 0;
  rest = absl::StripLeadingAsciiWhitespace(rest);
  if (!absl::ConsumePrefix(&rest, "</think>")) return 0;
  rest = absl::StripLeadingAsciiWhitespace(rest);
  return said.size() - rest.size();
}

// The assistant's turns in the text.
std::vector<Span> FindTurns(absl::string_view text, const TurnMarks& marks) {
  std::vector<Span> turns;
  for (size_t at = 0;;) {
    const size_t begin = text.find(marks.begin, at);
    if (begin == absl::string_view::npos) return turns;
    const size_t said = begin + marks.begin.size();
    const size_t end = text.find(marks.end, said);
    at = end == absl::string_view::npos ? text.size() : end + marks.end.size();
    turns.push_back({said, at});
  }
}

// Those that the template adds.
void DropEmptyThoughts(const RenderedConversation& rendered,
                       std::vector<Span>* spans) {
  const absl::string_view text = rendered.text;
  const size_t count = std::min(spans->size(), rendered.answers.size());
  for (size_t i = 0; i < count; ++i) {
    if (rendered.answers[i].has_own_thought) continue;
    Span& span = (*spans)[i];
    span.begin += EmptyThought(text.substr(span.begin, span.end - span.begin));
  }
}

// Keeps the spans of messages that are learnt.
absl::StatusOr<std::vector<Span>> KeepLearnt(
    const RenderedConversation& rendered, absl::string_view what,
    std::vector<Span> spans) {
  const auto& answers = rendered.answers;
  if (spans.size() != answers.size()) {
    const bool is_whole =
        std::all_of(answers.begin(), answers.end(),
                    [](const auto& answer) { return answer.is_supervised; });
    if (is_whole && what == "spans of {% generation %}") return spans;
    return DataFaultError(absl::StrCat(
        "the chat template writes ", spans.size(), " ", what, " for ",
        answers.size(), " messages of the assistant, so nobody can tell ",
        is_whole ? "what is learnt; is a mark of a turn spelled out in a text?"
                 : "which of them `weight` or `train` leaves out"));
  }
  std::vector<Span> kept;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (answers[i].is_supervised) kept.push_back(spans[i]);
  }
  return kept;
}

// Writes [begin, end) of the text; `next` is the first span that ends behind
// `begin`.
void AddPiece(const SupervisedText& rendered, size_t begin, size_t end,
              size_t* next, TokenWriter* writer) {
  const absl::string_view text = rendered.text;
  const auto& spans = rendered.supervised;
  while (begin < end) {
    while (*next < spans.size() && spans[*next].end <= begin) ++*next;
    const bool is_inside = *next < spans.size() && spans[*next].begin <= begin;
    size_t stop = end;
    if (*next < spans.size()) {
      stop = std::min(end, is_inside ? spans[*next].end : spans[*next].begin);
    }
    writer->AddText(text.substr(begin, stop - begin),
                    is_inside ? Kind::kSupervised : Kind::kContext);
    begin = stop;
  }
}

}  // namespace

TurnMarks GetTurnMarks(const v1::Model& model) {
  const v1::ModelProfile* const profile = GetProfile(model);
  if (profile == nullptr) return {};
  v1::Model named;
  named.set_chat_template(HasChat(*profile) ? profile->name()
                                            : profile->chat_template());
  const v1::Chat chat = HasChat(*profile) ? profile->chat() : GetChat(named);
  TurnMarks marks = {chat.assistant().prefix(), chat.assistant().end()};
  if (marks.begin.empty() || marks.end.empty()) return {};
  return marks;
}

absl::StatusOr<SupervisedText> RenderSupervised(
    const TemplateRenderer& renderer, const TurnMarks& marks,
    absl::string_view json, bool has_images) {
  TemplateRenderer::Request request = {json, has_images};
  request.by_prefixes = !renderer.has_generation() && marks.begin.empty();
  BALLAST_ASSIGN_OR_RETURN(RenderedConversation rendered,
                           renderer.Render(request));
  std::vector<Span> spans = std::move(rendered.spans);
  absl::string_view what = "spans of {% generation %}";
  if (!renderer.has_generation() && !request.by_prefixes) {
    what = "turns of the assistant";
    spans = FindTurns(rendered.text, marks);
    if (spans.empty() && !rendered.answers.empty()) {
      what = "renderings of prefixes";
      request.by_prefixes = true;
      BALLAST_ASSIGN_OR_RETURN(rendered, renderer.Render(request));
      spans = std::move(rendered.spans);
    }
  }
  if (!renderer.has_generation()) DropEmptyThoughts(rendered, &spans);
  BALLAST_ASSIGN_OR_RETURN(spans, KeepLearnt(rendered, what, std::move(spans)));
  return SupervisedText{std::move(rendered.text), std::move(spans)};
}

absl::StatusOr<TextTokens> TokenizeRendered(
    const SupervisedText& rendered, absl::Span<const ImagePieces> images,
    const ImageMarks& marks, const v1::TokenIds& token_ids,
    const Tokenizer& tokenizer) {
  const absl::string_view text = rendered.text;
  TokenWriter writer(&tokenizer, &token_ids, &marks);
  size_t done = 0;
  size_t next = 0;
  size_t found = 0;
  for (size_t at = 0; !images.empty(); ++found) {
    size_t begin = text.find(marks.placeholder, at);
    if (begin == absl::string_view::npos) break;
    size_t end = begin + marks.placeholder.size();
    at = end;
    if (found >= images.size()) continue;
    if (absl::EndsWith(text.substr(done, begin - done), marks.before) &&
        absl::StartsWith(text.substr(end), marks.after)) {
      begin -= marks.before.size();
      end += marks.after.size();
    }
    AddPiece(rendered, done, begin, &next, &writer);
    writer.AddImage(images[found]);
    done = end;
    at = end;
  }
  if (found != images.size()) {
    return DataFaultError(absl::StrCat(
        "the chat template writes ", found, " marks ", marks.placeholder,
        " of images, the sample has ", images.size(),
        " images; wanted one part of type image, or one <image> in a text, for "
        "each"));
  }
  AddPiece(rendered, done, text.size(), &next, &writer);
  return std::move(writer).Finish();
}

}  // namespace ballast
