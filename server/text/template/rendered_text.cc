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
#include "server/image_plan/image_text.h"
#include "server/text/chat_writer.h"
#include "server/text/conversation.h"

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

// Writes [begin, end) of the text; `next` is the first span that ends after
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

// Adds the marks of `wanted` images or videos: the first of `names` that is in
// the text.
absl::Status AddMarks(absl::string_view text, absl::string_view medium,
                      size_t wanted,
                      const std::vector<absl::string_view>& names,
                      const ImageMarks& marks, std::vector<MediaMark>* media) {
  if (wanted == 0) return absl::OkStatus();
  const auto named =
      std::find_if(names.begin(), names.end(), [text](absl::string_view name) {
        return !name.empty() && absl::StrContains(text, name);
      });
  const absl::string_view name =
      named != names.end() ? *named
                           : (names[0].empty() ? names.back() : names[0]);
  size_t found = 0;
  size_t done = 0;
  for (size_t at = 0;
       named != names.end() && (at = text.find(name, at)) != text.npos;
       ++found) {
    MediaMark mark = {at, at + name.size(), medium == "video"};
    if (named == names.begin() &&
        absl::EndsWith(text.substr(done, mark.begin - done), marks.before) &&
        absl::StartsWith(text.substr(mark.end), marks.after)) {
      mark.begin -= marks.before.size();
      mark.end += marks.after.size();
    }
    media->push_back(mark);
    done = at = mark.end;
  }
  if (found == wanted) return absl::OkStatus();
  return DataFaultError(absl::StrCat(
      "the chat template writes ", found, " marks ", name, " of ", medium,
      "s, the sample has ", wanted, " ", medium, "s; wanted one part of type ",
      medium, ", or one <", medium, "> in a text, for each"));
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
    absl::string_view json, bool has_images, bool has_videos) {
  TemplateRenderer::Request request = {
      .json = json, .has_images = has_images, .has_videos = has_videos};
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
  return SupervisedText{std::move(rendered.text), std::move(spans),
                        std::move(rendered.left_out)};
}

absl::StatusOr<std::vector<MediaMark>> FindMedia(absl::string_view text,
                                                 size_t images, size_t videos,
                                                 const ImageMarks& marks,
                                                 absl::string_view video) {
  std::vector<absl::string_view> names = {marks.placeholder};
  for (const std::string* before :
       {&marks.before, &marks.view_before, &marks.tile_before}) {
    for (const absl::string_view token : SpecialTokensIn(*before)) {
      if (!absl::StrContains(token, '{')) names.push_back(token);
    }
  }
  names.push_back(kImageMark);
  std::vector<MediaMark> media;
  BALLAST_RETURN_IF_ERROR(
      AddMarks(text, "image", images, names, marks, &media));
  BALLAST_RETURN_IF_ERROR(
      AddMarks(text, "video", videos, {video, kVideoMark}, marks, &media));
  std::sort(
      media.begin(), media.end(),
      [](const MediaMark& a, const MediaMark& b) { return a.begin < b.begin; });
  return media;
}

absl::StatusOr<TextTokens> TokenizeRendered(
    const SupervisedText& rendered, absl::Span<const MediaMark> media,
    absl::Span<const ImagePieces> images, absl::Span<const ImagePieces> videos,
    const ImageMarks& marks, const v1::TokenIds& token_ids,
    const Tokenizer& tokenizer) {
  TokenWriter writer(&tokenizer, &token_ids, &marks);
  size_t done = 0;
  size_t next = 0;
  for (const MediaMark& mark : media) {
    AddPiece(rendered, done, mark.begin, &next, &writer);
    absl::Span<const ImagePieces>& kind = mark.is_video ? videos : images;
    writer.AddImage(kind.front());
    kind.remove_prefix(1);
    done = mark.end;
  }
  AddPiece(rendered, done, rendered.text.size(), &next, &writer);
  return std::move(writer).Finish();
}

}  // namespace ballast
