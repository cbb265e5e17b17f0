#include "server/text/model_text.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "proto/image/job_images.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"
#include "server/sample/data_fault.h"
#include "server/text/chat_writer.h"
#include "server/text/sample_fields.h"

namespace ballast {
namespace {

using Kind = TextToken::Kind;

// AddTemplateText writes the model's id for it.
constexpr absl::string_view kEndOfText = "<|endoftext|>";

// `text` itself if it is UTF-8; otherwise, with on_invalid_utf8 `replace`,
// `replaced`, which then holds it with U+FFFD in place of each invalid
// character.
absl::StatusOr<absl::string_view> ValidText(absl::string_view text,
                                            const v1::Model& model,
                                            std::string* replaced) {
  const absl::Status status = CheckUtf8(text);
  if (status.ok()) return text;
  if (model.on_invalid_utf8() != v1::Model::ON_INVALID_UTF8_REPLACE) {
    return DataFaultError(
        absl::StrCat(status.message(),
                     "; model.on_invalid_utf8: replace puts U+FFFD there"));
  }
  *replaced = ReplaceInvalidUtf8(text);
  return *replaced;
}

// The texts of media in the order of their marks.
std::vector<ImagePieces> InOrder(MediaPieces pieces, const MediaOrder& order) {
  std::vector<ImagePieces> all;
  MediaCounts used;
  for (const MediumKind kind : order) {
    all.push_back(std::move(pieces[kind][used[kind]++]));
  }
  return all;
}

// MarkMedia of a conversation's turns.
absl::StatusOr<MediaOrder> MarkTurns(const MediaCounts& media,
                                     const RowsRule* rows,
                                     std::vector<Turn>* turns) {
  std::vector<std::string*> texts;
  for (Turn& turn : *turns) texts.push_back(&turn.text);
  return MarkMedia(media, rows, texts);
}

// Whether the model is LLaVA-Video's, as LLaVA-NeXT trains it.
bool IsLlavaVideo(const ModelImages& images) {
  return images.video() != nullptr && images.video()->rule == VideoRule::kLlava;
}

// The name of the placeholder of videos.
std::string VideoPlaceholder(const v1::Model& model) {
  const v1::ModelProfile* profile = GetProfile(model);
  return profile == nullptr ? "" : profile->videos().placeholder();
}

}  // namespace

ModelText::ModelText(const v1::Model& model, ModelImages images,
                     const Tokenizer* tokenizer)
    : model_(model),
      images_(std::move(images)),
      tokenizer_(tokenizer),
      chat_(GetChat(model)),
      videos_have_own_id_(images_.video() != nullptr &&
                          !images_.video()->frames_are_crops),
      turn_marks_(GetTurnMarks(model)) {}

absl::StatusOr<std::unique_ptr<const ModelText>> ModelText::Create(
    const v1::Model& model, const Tokenizer* tokenizer,
    std::unique_ptr<const TemplateRenderer> renderer,
    std::shared_ptr<const ImageRecipe> recipe) {
  BALLAST_ASSIGN_OR_RETURN(ModelImages images,
                           ModelImages::Create(model, std::move(recipe)));
  // Here, and not in the configuration: a job without videos stays what it was.
  v1::Model own = model;
  if (images.video() != nullptr && !images.video()->frames_are_crops &&
      own.token_ids().video() < 0) {
    const std::string name = VideoPlaceholder(model);
    own.mutable_token_ids()->set_video(
        name.empty() ? own.token_ids().image()
                     : tokenizer->SpecialTokenId(name).value_or(-1));
  }
  // Around images that no keys describe, and in a model's own template, the
  // tokenizer has the tokens, whatever ids the configuration gives.
  if (!HasImageKeys(model)) {
    own.mutable_token_ids()->set_vision_start(-1);
    own.mutable_token_ids()->set_vision_end(-1);
    if (FindChat(model.chat_template()) != nullptr) {
      own.mutable_token_ids()->set_im_start(-1);
      own.mutable_token_ids()->set_im_end(-1);
    }
  }
  std::unique_ptr<ModelText> text(
      new ModelText(own, std::move(images), tokenizer));
  if (!model.system_prompt().empty() && text->chat_.no_system()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.system_prompt: the chat template of ",
                     model.chat_template(), " has no system turn"));
  }
  BALLAST_RETURN_IF_ERROR(
      Annotate(text->CheckTokens(),
               absl::StrCat("model.tokenizer: ", model.tokenizer())));
  text->renderer_ = std::move(renderer);
  return text;
}

// Every special token of the images is one of the tokenizer's or has an id, and
// every one of a model's own template.
absl::Status ModelText::CheckTokens() const {
  const ImageMarks& marks = images_.family().marks;
  std::vector<const std::string*> texts = GetTexts(marks);
  if (FindChat(model_.chat_template()) != nullptr) {
    const std::vector<const std::string*> of_chat = GetTexts(chat_);
    texts.insert(texts.begin(), of_chat.begin(), of_chat.end());
  }
  std::vector<std::string> tokens;
  for (const std::string* text : texts) {
    for (const absl::string_view token : SpecialTokensIn(*text)) {
      tokens.emplace_back(token);
    }
  }
  for (const std::string& token : tokens) {
    // Tiles are numbered; of these tokens some are enough.
    const std::string name = absl::StrReplaceAll(
        token,
        {{"{row}", "1"}, {"{column}", "1"}, {"{tile}", "1"}, {"{image}", "0"}});
    if (HasToken(token) || HasToken(name)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the tokenizer lacks the token ", name, " of the family ",
        images_.family().name, "; give the tokenizer of its checkpoint"));
  }
  return absl::OkStatus();
}

bool ModelText::HasToken(absl::string_view token) const {
  const ImageMarks& marks = images_.family().marks;
  const v1::TokenIds& ids = model_.token_ids();
  return (token == kEndOfText && ids.end_of_text() >= 0) ||
         (token == marks.placeholder && ids.image() >= 0) ||
         (token == marks.before && ids.vision_start() >= 0) ||
         (token == marks.after && ids.vision_end() >= 0) ||
         tokenizer_->SpecialTokenId(token).has_value();
}

absl::StatusOr<std::vector<ImagePieces>> ModelText::ImageTexts(
    const SampleImages& images) const {
  std::vector<ImagePieces> texts;
  texts.reserve(images.size());
  for (size_t i = 0; i < images.size(); ++i) {
    BALLAST_ASSIGN_OR_RETURN(const ImagePlan plan, images_.Plan(images, i));
    texts.push_back(
        ImageText(images_.family(), plan, static_cast<uint32_t>(i)));
    // The family's own marks have been checked.
    if (plan.recipe == nullptr || plan.recipe->text.empty()) continue;
    for (const ImageTextPiece& piece : texts.back()) {
      for (const absl::string_view token : SpecialTokensIn(piece.text)) {
        if (HasToken(token)) continue;
        return DataFaultError(absl::StrCat(
            "the recipe: image_plan gave text with ", token,
            ", which the tokenizer lacks; wanted special tokens that it has"));
      }
    }
  }
  return texts;
}

absl::StatusOr<MediaPieces> ModelText::Pieces(
    const SampleImages& images, absl::Span<const StreamText> streams) const {
  MediaPieces pieces;
  BALLAST_ASSIGN_OR_RETURN(pieces[MediumKind::kImage], ImageTexts(images));
  const v1::AudioFamily::Marks* const of_rows =
      images_.rows() == nullptr ? nullptr : &images_.rows()->marks();
  for (const StreamText& stream : streams) {
    std::vector<ImagePieces>& of_kind = pieces[stream.kind];
    of_kind.push_back(stream.kind == MediumKind::kVideo
                          ? VideoPieces(stream, images_.family().marks,
                                        videos_have_own_id_, of_rows)
                          : RowsPieces(stream, *of_rows, of_kind.size() + 1));
  }
  return pieces;
}

absl::Status ModelText::CheckTakesRows(MediumKind kind) const {
  const absl::string_view name = MediumName(kind);
  if (images_.rows() == nullptr || images_.rows()->kind() != kind) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is not supported for this model.profile"));
  }
  const v1::AudioFamily::Marks& marks = images_.rows()->marks();
  if (marks.placeholder().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ", and how the model ", model_.profile(),
        " marks it in a text is not known; wanted a model whose file has ",
        kind == MediumKind::kAudio ? "audio.marks (docs/audio.md)"
                                   : "medium.marks"));
  }
  if (!model_.token_ids().has_audio()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ", and the tokenizer ", model_.tokenizer(), " has no token ",
        marks.placeholder(),
        " for it; give the tokenizer of the model's checkpoint, or "
        "model.token_ids.audio"));
  }
  if (model_.tokenizer() == "bytes") return absl::OkStatus();  // spelled out
  for (const std::string* text : {&marks.before(), &marks.after()}) {
    for (const absl::string_view token : SpecialTokensIn(*text)) {
      if (tokenizer_->SpecialTokenId(token).has_value()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          name, ", and the tokenizer ", model_.tokenizer(), " has no token ",
          token, "; give the tokenizer of the model's checkpoint"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TextTokens> ModelText::Tokenize(
    absl::string_view text, TextForm form, const SampleImages& sizes,
    absl::Span<const StreamText> streams, bool notes_turns) const {
  BALLAST_ASSIGN_OR_RETURN(MediaPieces pieces, Pieces(sizes, streams));
  const MediaCounts counts = CountsOf(pieces);
  const bool has_videos = counts[MediumKind::kVideo] != 0;
  // The kind that travels as rows, if the sample has some.
  const auto in_rows = std::find_if(
      streams.begin(), streams.end(),
      [](const auto& stream) { return stream.kind != MediumKind::kVideo; });
  const bool has_rows = in_rows != streams.end();
  const bool is_packed =
      form == TextForm::kPackedBytes || form == TextForm::kPackedJson;
  if (has_videos && is_packed) {
    return DataFaultError(
        "video is not supported in a text of token ids; write the sample as a "
        "conversation or a document");
  }
  if (has_videos && videos_have_own_id_ && video_placeholder() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a video, and the tokenizer ", model_.tokenizer(),
                     " has no token ", VideoPlaceholder(model_),
                     " for its frames; give the tokenizer of the model's "
                     "checkpoint, or model.token_ids.video"));
  }
  const bool in_video = has_videos && !streams[0].with_audio.empty();
  if (has_rows || in_video) {
    const MediumKind kind = has_rows ? in_rows->kind : MediumKind::kAudio;
    BALLAST_RETURN_IF_ERROR(CheckTakesRows(kind));
    if (is_packed || renderer_ != nullptr) {
      return DataFaultError(absl::StrCat(
          MediumName(kind), " is not supported ",
          is_packed ? "in a text of token ids"
                    : "with chat_template: checkpoint",
          "; write the sample as a conversation or a document, with "
          "chat_template: chatml or custom"));
    }
  }
  if (IsLlavaVideo(images_)) {
    BALLAST_RETURN_IF_ERROR(
        CheckLlavaVideos(counts, form == TextForm::kConversation));
  }
  if (form == TextForm::kPackedBytes) {
    return ParsePacked(text, /*is_json=*/false, pieces[MediumKind::kImage]);
  }
  std::string replaced;
  BALLAST_ASSIGN_OR_RETURN(text, ValidText(text, model_, &replaced));
  if (form == TextForm::kPackedJson) {
    return ParsePacked(text, /*is_json=*/true, pieces[MediumKind::kImage]);
  }
  // In a sample without videos, models whose images no keys describe take the
  // mark of one for text; a model without audio takes `<audio>` for text.
  const RowsRule* const rows = images_.rows();
  const bool has_marks = has_videos || rows != nullptr || HasImageKeys(model_);
  const auto in_order = [&](const MediaOrder& order) {
    return InOrder(std::move(pieces), order);
  };
  std::vector<ImagePieces> media;
  if (form == TextForm::kDocument) {
    std::string marked(text);
    if (has_marks) {
      BALLAST_ASSIGN_OR_RETURN(const MediaOrder order,
                               MarkMedia(counts, rows, {&marked}));
      media = in_order(order);
    } else {
      media = std::move(pieces[MediumKind::kImage]);
    }
    return TokenizeDocument(marked, media);
  }
  if (renderer_ != nullptr) {
    BALLAST_ASSIGN_OR_RETURN(const SupervisedText rendered,
                             Render(text, counts));
    if (!rendered.left_out.empty()) {
      return DataFaultError(absl::StrCat(
          rendered.left_out,
          ": the chat template leaves it out, so nothing would be learnt of "
          "it; wanted a template that writes it, or a sample without it"));
    }
    return TokenizeRendered(rendered, sizes, streams, notes_turns);
  }
  BALLAST_ASSIGN_OR_RETURN(std::vector<Turn> turns, ParseConversation(text));
  for (const Turn& turn : turns) {
    if (turn.audios == 0 || counts[MediumKind::kAudio] != 0) continue;
    return DataFaultError(absl::StrCat(
        "turn ", turn.number,
        ": a part of type \"audio\" in a sample without audio; wanted the path "
        "of its file in the part, and a model that takes audio"));
  }
  if (has_videos && !streams[0].times.empty()) {
    BALLAST_RETURN_IF_ERROR(AddTimes(streams[0].times, &turns));
  }
  if (has_marks) {
    BALLAST_ASSIGN_OR_RETURN(const MediaOrder order,
                             MarkTurns(counts, rows, &turns));
    media = in_order(order);
  } else {
    media = std::move(pieces[MediumKind::kImage]);
  }
  return TokenizeConversation(std::move(turns), media, /*record=*/nullptr,
                              notes_turns);
}

absl::StatusOr<SupervisedText> ModelText::Render(
    absl::string_view json, const MediaCounts& media) const {
  if (renderer_ == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("model.chat_template: found ", model_.chat_template(),
                     "; wanted checkpoint, whose text can be rendered alone"));
  }
  return RenderSupervised(*renderer_, turn_marks_, json,
                          media[MediumKind::kImage] > 0,
                          media[MediumKind::kVideo] > 0);
}

absl::StatusOr<std::vector<MediaMark>> ModelText::FindMarks(
    const SupervisedText& rendered, const MediaCounts& media) const {
  return FindMedia(rendered.text, media, images_.family().marks,
                   VideoPlaceholder(model_));
}

absl::StatusOr<TextTokens> ModelText::TokenizeRendered(
    const SupervisedText& rendered, const SampleImages& sizes,
    absl::Span<const StreamText> streams, bool notes_turns) const {
  if (!streams.empty() && !streams[0].times.empty()) {
    return DataFaultError(
        "a video whose times LLaVA-Video's training code writes, which "
        "chat_template: checkpoint does not; wanted chat_template: chatml");
  }
  BALLAST_ASSIGN_OR_RETURN(const MediaPieces pieces, Pieces(sizes, streams));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<MediaMark> marks,
                           FindMarks(rendered, CountsOf(pieces)));
  return ballast::TokenizeRendered(rendered, marks, pieces,
                                   images_.family().marks, model_.token_ids(),
                                   *tokenizer_, notes_turns);
}

absl::StatusOr<std::string> ModelText::WholeText(absl::string_view json,
                                                 size_t images) const {
  std::string whole;
  if (renderer_ == nullptr) {
    BALLAST_ASSIGN_OR_RETURN(std::vector<Turn> turns, ParseConversation(json));
    BALLAST_RETURN_IF_ERROR(
        TokenizeConversation(std::move(turns), std::vector<ImagePieces>(images),
                             &whole)
            .status());
    return whole;
  }
  MediaCounts counts;
  counts[MediumKind::kImage] = images;
  BALLAST_ASSIGN_OR_RETURN(const SupervisedText rendered, Render(json, counts));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<MediaMark> marks,
                           FindMarks(rendered, counts));
  size_t done = 0;
  for (const MediaMark& mark : marks) {
    absl::StrAppend(&whole, rendered.text.substr(done, mark.begin - done),
                    kImageMark);
    done = mark.end;
  }
  absl::StrAppend(&whole, rendered.text.substr(done));
  return whole;
}

absl::StatusOr<MediaOrder> ModelText::FindOrder(
    absl::string_view text, TextForm form, const MediaCounts& media) const {
  std::string replaced;
  BALLAST_ASSIGN_OR_RETURN(text, ValidText(text, model_, &replaced));
  if (form == TextForm::kDocument) {
    std::string marked(text);
    return MarkMedia(media, images_.rows(), {&marked});
  }
  if (renderer_ == nullptr) {
    BALLAST_ASSIGN_OR_RETURN(std::vector<Turn> turns, ParseConversation(text));
    return MarkTurns(media, images_.rows(), &turns);
  }
  BALLAST_ASSIGN_OR_RETURN(const SupervisedText rendered, Render(text, media));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<MediaMark> marks,
                           FindMarks(rendered, media));
  MediaOrder order;
  for (const MediaMark& mark : marks) order.push_back(mark.kind);
  return order;
}

absl::StatusOr<TextTokens> ModelText::TokenizeConversation(
    std::vector<Turn> turns, absl::Span<const ImagePieces> images,
    std::string* record, bool notes_turns) const {
  const std::string system = SystemPrompt(model_);
  if (!system.empty() && (turns.empty() || turns[0].role != Role::kSystem)) {
    turns.insert(turns.begin(), {Role::kSystem, system});
  }
  TokenWriter writer(tokenizer_, &model_.token_ids(), &images_.family().marks);
  writer.RecordTo(record);
  BALLAST_RETURN_IF_ERROR(WriteConversation(
      turns, images, chat_, model_.chat_template(), &writer, notes_turns));
  BALLAST_ASSIGN_OR_RETURN(TextTokens text, std::move(writer).Finish());
  for (const Turn& turn : turns) {
    if (turn.weight == 0 || turn.weight == 1) continue;
    text.weight =
        absl::StrCat("turn ", turn.number, ": `weight` is ", turn.weight);
    break;
  }
  return text;
}

absl::StatusOr<TextTokens> ModelText::TokenizeDocument(
    absl::string_view text, absl::Span<const ImagePieces> images) const {
  TokenWriter writer(tokenizer_, &model_.token_ids(), &images_.family().marks);
  // What a tokenizer of the model writes before each text.
  if (FindChat(model_.chat_template()) != nullptr) {
    writer.AddTemplateText(chat_.begin(), Kind::kContext);
  }
  const std::vector<absl::string_view> texts = SplitAtImageMarks(text);
  if (texts.size() == 1) {
    for (const ImagePieces& image : images) writer.AddImage(image);
  } else {
    BALLAST_RETURN_IF_ERROR(CheckMarks(texts.size() - 1, images.size()));
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) writer.AddImage(images[i - 1]);
    writer.AddText(texts[i], Kind::kSupervised);
  }
  writer.AddEndOfText(Kind::kSupervised);
  return std::move(writer).Finish();
}

absl::StatusOr<TextTokens> ModelText::ParsePacked(
    absl::string_view text, bool is_json,
    absl::Span<const ImagePieces> images) const {
  const v1::TokenIds& ids = model_.token_ids();
  TextTokens packed;
  std::vector<int32_t> marks;
  for (const ImagePieces& pieces : images) {
    for (const ImageTextPiece& piece : pieces) {
      if (piece.placeholders != 0) {
        packed.runs.push_back(static_cast<uint32_t>(piece.placeholders));
        continue;
      }
      // Those with ids are checked.
      if (ids.vision_start() >= 0 && ids.vision_end() >= 0) continue;
      for (const absl::string_view token : SpecialTokensIn(piece.text)) {
        if (const auto id = tokenizer_->SpecialTokenId(token)) {
          marks.push_back(*id);
        }
      }
    }
  }
  const PackedRuns runs = {packed.runs, marks};
  BALLAST_ASSIGN_OR_RETURN(packed.tokens,
                           is_json ? ParsePackedJson(text, runs, ids)
                                   : ParsePackedBytes(text, runs, ids));
  return packed;
}

absl::Status ModelText::Place(absl::Span<const int32_t> ids,
                              const SampleImages& images,
                              absl::Span<const GridThw> videos,
                              absl::Span<int32_t> out) const {
  // On one axis a tile counts as any token.
  if (model_.position_axes() == 1) {
    if (out.size() != ids.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("room for ", out.size(), " position ids; wanted ",
                       ids.size(), " for as many tokens"));
    }
    std::iota(out.begin(), out.end(), 0);
    return absl::OkStatus();
  }
  const uint32_t patch = images_.family().patch;
  const uint32_t merge = images_.family().merge;
  std::vector<GridThw> grids;
  for (size_t i = 0; i < images.size(); ++i) {
    BALLAST_ASSIGN_OR_RETURN(const ImagePlan plan, images_.Plan(images, i));
    // One crop, of whole tokens.
    const PixelRect& crop = plan.stages.back().crop;
    grids.push_back({1, crop.height / (patch * merge) * merge,
                     crop.width / (patch * merge) * merge});
  }
  return ComputePositions(ids, grids, model_, out, videos);
}

int32_t ModelText::video_placeholder() const {
  return videos_have_own_id_ ? model_.token_ids().video()
                             : model_.token_ids().image();
}

}  // namespace ballast
