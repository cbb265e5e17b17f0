#include "server/text/template/rendered_text.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/media/image_plan/image_text.h"
#include "server/model/profiles.h"
#include "server/sample/data_fault.h"
#include "server/text/chat_writer.h"
#include "server/text/conversation.h"

namespace ballast {
namespace {

using Span = RenderedConversation::Span;
using Kind = TextToken::Kind;

// Where `span` goes on after an empty thought at its beginning, of which the
// prompt for an answer may have written a part: "<think>\n".
size_t AfterEmptyThought(absl::string_view text, const Span& span) {
  constexpr absl::string_view kBegin = "<think>";
  constexpr absl::string_view kEnd = "</think>";
  const size_t from = span.begin - std::min(span.begin, kEnd.size() - 1);
  const size_t end = text.substr(0, span.end).find(kEnd, from);
  if (end == text.npos || end + kEnd.size() <= span.begin) return span.begin;
  const absl::string_view said = absl::StripAsciiWhitespace(
      text.substr(span.begin, std::max(end, span.begin) - span.begin));
  if (!absl::EndsWith(kBegin, said)) return span.begin;
  const absl::string_view rest = absl::StripLeadingAsciiWhitespace(
      text.substr(0, span.end).substr(end + kEnd.size()));
  return span.end - rest.size();
}

// The end of the turn whose text begins at `said`, its end token included. The
// template may end some turns by another token than `marks.end`, as Llama 3's
// by <|eom_id|> after a call: the next turn then begins first.
size_t FindTurnEnd(absl::string_view text, size_t said,
                   const TurnMarks& marks) {
  const size_t end = text.find(marks.end, said);
  const size_t stop = end == text.npos ? text.size() : end + marks.end.size();
  const auto openings = SpecialTokensIn(marks.begin);
  if (openings.empty()) return stop;
  const size_t next = text.substr(0, stop).find(openings.front(), said);
  if (next == text.npos) return stop;
  const absl::string_view turn =
      absl::StripTrailingAsciiWhitespace(text.substr(said, next - said));
  const auto tokens = SpecialTokensIn(turn);
  const bool is_ended = !tokens.empty() && absl::EndsWith(turn, tokens.back());
  return is_ended ? said + turn.size() : stop;
}

// The assistant's turns in the text.
std::vector<Span> FindTurns(absl::string_view text, const TurnMarks& marks) {
  std::vector<Span> turns;
  for (size_t at = 0;;) {
    const size_t begin = text.find(marks.begin, at);
    if (begin == absl::string_view::npos) return turns;
    const size_t said = begin + marks.begin.size();
    at = FindTurnEnd(text, said, marks);
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
    span.begin = AfterEmptyThought(text, span);
  }
}

// Sets what is learnt, and the turns, of `text` from the spans of all messages
// of the assistant.
absl::Status KeepLearnt(const RenderedConversation& rendered,
                        absl::string_view what, std::vector<Span> spans,
                        SupervisedText* text) {
  const auto& answers = rendered.answers;
  if (spans.size() != answers.size()) {
    const bool is_whole =
        std::all_of(answers.begin(), answers.end(),
                    [](const auto& answer) { return answer.weight == 1; });
    if (is_whole && what == "spans of {% generation %}") {
      text->supervised = std::move(spans);
      return absl::OkStatus();
    }
    return DataFaultError(absl::StrCat(
        "the chat template writes ", spans.size(), " ", what, " for ",
        answers.size(), " messages of the assistant, so it is unclear ",
        is_whole ? "what is learnt; is a mark of a turn spelled out in a text?"
                 : "which of them `weight` or `train` is of"));
  }
  for (size_t i = 0; i < spans.size(); ++i) {
    const float weight = answers[i].weight;
    text->turns.push_back({spans[i], answers[i].turn});
    if (weight > 0) text->supervised.push_back(spans[i]);
    if (weight > 0 && weight < 1 && text->weight.empty()) {
      text->weight =
          absl::StrCat("turn ", answers[i].turn, ": `weight` is ", weight);
    }
  }
  return absl::OkStatus();
}

// Goes through spans in order.
class SpanWalk {
 public:
  explicit SpanWalk(absl::Span<const Span> spans) : spans_(spans) {}

  // Whether the text at `begin`, which does not decrease, is in a span, whose
  // number number() then is; lowers `stop` to where that changes.
  bool IsInside(size_t begin, size_t* stop) {
    while (number_ < spans_.size() && spans_[number_].end <= begin) ++number_;
    if (number_ == spans_.size()) return false;
    const bool is_inside = spans_[number_].begin <= begin;
    *stop = std::min(*stop,
                     is_inside ? spans_[number_].end : spans_[number_].begin);
    return is_inside;
  }
  size_t number() const { return number_; }

 private:
  const absl::Span<const Span> spans_;
  size_t number_ = 0;
};

// Writes a rendered text piece by piece.
class PieceWriter {
 public:
  PieceWriter(const SupervisedText& rendered, bool notes_turns,
              TokenWriter* writer)
      : rendered_(rendered),
        turns_(GetSpans(rendered, notes_turns)),
        learnt_walk_(rendered.supervised),
        turn_walk_(turns_),
        writer_(*writer) {}

  // Adds [begin, end) of the text, after what was added before.
  void Add(size_t begin, size_t end) {
    while (begin < end) {
      size_t stop = end;
      const bool is_learnt = learnt_walk_.IsInside(begin, &stop);
      const bool is_of_turn = turn_walk_.IsInside(begin, &stop);
      writer_.SetTurn(is_of_turn ? rendered_.turns[turn_walk_.number()].number
                                 : 0);
      writer_.AddText(
          absl::string_view(rendered_.text).substr(begin, stop - begin),
          is_learnt ? Kind::kSupervised : Kind::kContext);
      begin = stop;
    }
  }

 private:
  static std::vector<Span> GetSpans(const SupervisedText& rendered,
                                    bool notes_turns) {
    std::vector<Span> spans;
    if (!notes_turns) return spans;
    for (const SupervisedText::Turn& turn : rendered.turns) {
      spans.push_back(turn.span);
    }
    return spans;
  }

  const SupervisedText& rendered_;
  const std::vector<Span> turns_;
  SpanWalk learnt_walk_;
  SpanWalk turn_walk_;
  TokenWriter& writer_;
};

// Refuses a text that has, outside of `media`, one of `names`, each of which
// may mark an image: the template or a message wrote it, and nobody can tell.
absl::Status CheckOthers(absl::string_view text, absl::string_view name,
                         absl::Span<const absl::string_view> names,
                         absl::Span<const MediaMark> media) {
  size_t begin = 0;
  for (size_t i = 0; i <= media.size(); ++i) {
    const size_t end = i < media.size() ? media[i].begin : text.size();
    for (const absl::string_view other : names) {
      if (other.empty() || other == name ||
          !absl::StrContains(text.substr(begin, end - begin), other)) {
        continue;
      }
      return DataFaultError(absl::StrCat(
          "the text has ", name, " and ", other,
          " apart from each other, and either marks an image; wanted texts "
          "that spell out neither"));
    }
    if (i < media.size()) begin = media[i].end;
  }
  return absl::OkStatus();
}

// Adds the marks of `wanted` images or videos: the first of `names` that is in
// the text, which is returned.
absl::StatusOr<absl::string_view> AddMarks(
    absl::string_view text, MediumKind kind, size_t wanted,
    const std::vector<absl::string_view>& names, const ImageMarks& marks,
    std::vector<MediaMark>* media) {
  if (wanted == 0) return "";
  const absl::string_view medium = MediumName(kind);
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
    MediaMark mark = {at, at + name.size(), kind};
    if (named == names.begin() &&
        absl::EndsWith(text.substr(done, mark.begin - done), marks.before) &&
        absl::StartsWith(text.substr(mark.end), marks.after)) {
      mark.begin -= marks.before.size();
      mark.end += marks.after.size();
    }
    media->push_back(mark);
    done = at = mark.end;
  }
  if (found == wanted) return name;
  return DataFaultError(absl::StrCat(
      "the chat template writes ", found, " marks ", name, " of ", medium,
      "s, the sample has ", wanted, " ", medium, "s; wanted one part of type ",
      medium, ", or one <", medium, "> in a text, for each"));
}

}  // namespace

TurnMarks GetTurnMarks(const v1::Model& model) {
  const v1::ModelProfile* profile = GetProfile(model);
  if (profile == nullptr) return {};
  // The checkpoint's own template is transformers'.
  if (profile->has_transformers()) profile = &profile->transformers();
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
  SupervisedText text;
  BALLAST_RETURN_IF_ERROR(KeepLearnt(rendered, what, std::move(spans), &text));
  text.text = std::move(rendered.text);
  text.left_out = std::move(rendered.left_out);
  return text;
}

absl::StatusOr<std::vector<MediaMark>> FindMedia(absl::string_view text,
                                                 const MediaCounts& counts,
                                                 const ImageMarks& marks,
                                                 absl::string_view video) {
  std::vector<absl::string_view> names = {marks.placeholder};
  for (const std::string* before :
       {&marks.before, &marks.view_before, &marks.tile_before}) {
    for (const absl::string_view token : SpecialTokensIn(*before)) {
      if (!absl::StrContains(token, '{')) names.push_back(token);
    }
  }
  const std::vector<absl::string_view> own = names;
  names.push_back(kImageMark);
  std::vector<MediaMark> media;
  BALLAST_ASSIGN_OR_RETURN(
      const absl::string_view name,
      AddMarks(text, MediumKind::kImage, counts[MediumKind::kImage], names,
               marks, &media));
  BALLAST_RETURN_IF_ERROR(AddMarks(text, MediumKind::kVideo,
                                   counts[MediumKind::kVideo],
                                   {video, kVideoMark}, marks, &media)
                              .status());
  std::sort(
      media.begin(), media.end(),
      [](const MediaMark& a, const MediaMark& b) { return a.begin < b.begin; });
  if (counts[MediumKind::kImage] > 0) {
    BALLAST_RETURN_IF_ERROR(CheckOthers(text, name, own, media));
  }
  return media;
}

absl::StatusOr<TextTokens> TokenizeRendered(const SupervisedText& rendered,
                                            absl::Span<const MediaMark> media,
                                            const MediaPieces& pieces,
                                            const ImageMarks& marks,
                                            const v1::TokenIds& token_ids,
                                            const Tokenizer& tokenizer,
                                            bool notes_turns) {
  if (notes_turns && rendered.turns.empty() && !rendered.supervised.empty()) {
    return DataFaultError(
        "the chat template marks other spans by {% generation %} than the "
        "assistant's messages, so it is unclear which token is of which "
        "turn, as a field `per: turn` wants");
  }
  TokenWriter writer(&tokenizer, &token_ids, &marks);
  PieceWriter text_pieces(rendered, notes_turns, &writer);
  MediaCounts used;
  size_t done = 0;
  for (const MediaMark& mark : media) {
    text_pieces.Add(done, mark.begin);
    writer.AddImage(pieces[mark.kind][used[mark.kind]++]);
    done = mark.end;
  }
  text_pieces.Add(done, rendered.text.size());
  BALLAST_ASSIGN_OR_RETURN(TextTokens text, std::move(writer).Finish());
  text.weight = rendered.weight;
  return text;
}

}  // namespace ballast
