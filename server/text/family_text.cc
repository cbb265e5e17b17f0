#include "server/text/family_text.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/config/family_profile.h"
#include "server/corpus/data_fault.h"
#include "server/text/chat_template.h"
#include "server/text/conversation.h"
#include "server/text/family_conversation.h"
#include "server/text/family_positions.h"
#include "server/text/family_videos.h"
#include "server/text/packed_tokens.h"
#include "server/text/text_token.h"
#include "server/text/tokenize_text.h"

namespace ballast {
namespace {

using Kind = TextToken::Kind;

// Adds texts between image marks, and the images.
class MarkedText {
 public:
  MarkedText(absl::Span<const ImagePieces> images, FamilyTokenWriter* writer)
      : images_(images), writer_(*writer) {}

  void AddImage() {
    if (added_ < images_.size()) writer_.AddImage(images_[added_]);
    ++added_;
  }

  void Add(absl::string_view text, Kind kind) {
    bool is_first = true;
    for (const absl::string_view piece : SplitAtImageMarks(text)) {
      if (!is_first) AddImage();
      is_first = false;
      writer_.AddText(piece, kind);
    }
  }

  absl::Status Check() const {
    if (added_ == images_.size()) return absl::OkStatus();
    return DataFaultError(absl::StrCat(
        "text has ", added_, " ", kImageMark, " marks, the sample has ",
        images_.size(), " images; each mark stands for one image"));
  }

 private:
  const absl::Span<const ImagePieces> images_;
  FamilyTokenWriter& writer_;
  size_t added_ = 0;
};

const v1::ChatTemplate::Turn& TurnOf(const v1::ChatTemplate& chat, Role role) {
  if (role == Role::kSystem) return chat.system();
  return role == Role::kAssistant ? chat.assistant() : chat.user();
}

PositionRule RuleOfAxes(uint32_t axes) {
  if (axes == 4) return PositionRule::kColumnsRowsImage;
  return axes == 3 ? PositionRule::kRowsAndColumns : PositionRule::kSequence;
}

// The texts of images and videos in the order of their marks.
std::vector<ImagePieces> InOrder(std::vector<ImagePieces> images,
                                 std::vector<ImagePieces> videos,
                                 const std::vector<bool>& order) {
  std::vector<ImagePieces> both;
  size_t image = 0;
  size_t video = 0;
  for (const bool is_video : order) {
    both.push_back(std::move(is_video ? videos[video++] : images[image++]));
  }
  return both;
}

// MarkFrames of a conversation's turns.
absl::StatusOr<std::vector<bool>> MarkTurns(size_t images, size_t videos,
                                            std::vector<Turn>* turns) {
  std::vector<std::string*> texts;
  for (Turn& turn : *turns) texts.push_back(&turn.text);
  return MarkFrames(images, videos, texts);
}

// Whether the model is LLaVA-Video's, as LLaVA-NeXT trains it.
bool IsLlavaVideo(const ModelImages& images) {
  return images.video() != nullptr && images.video()->rule == VideoRule::kLlava;
}

// Whether a placeholder of their own stands for videos, as for LLaVA-OneVision.
bool VideosHaveOwnId(const ModelImages& images) {
  return images.video() != nullptr && !images.video()->frames_are_crops;
}

uint32_t Saturated(uint64_t count) {
  return static_cast<uint32_t>(
      std::min<uint64_t>(count, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<const FamilyText>> FamilyText::Create(
    const v1::Model& model, const Tokenizer* tokenizer) {
  BALLAST_ASSIGN_OR_RETURN(ModelImages images, ModelImages::Create(model));
  // Here, and not in the configuration: a job without videos stays what it was.
  v1::Model own = model;
  if (VideosHaveOwnId(images) && own.token_ids().video() < 0) {
    // LLaVA-NeXT writes the mark of images for both.
    own.mutable_token_ids()->set_video(
        IsLlavaVideo(images)
            ? own.token_ids().image()
            : tokenizer->SpecialTokenId(kVideoMark).value_or(-1));
  }
  std::unique_ptr<FamilyText> text(
      new FamilyText(own, std::move(images), tokenizer));
  const ImageFamily& family = text->planner().family();
  const std::string key =
      absl::StrCat("model.chat_template: ", model.chat_template(), ": ");
  FamilyTemplate chat;
  if (FindFamilyProfile(model.chat_template()) != nullptr) {
    absl::StatusOr<FamilyTemplate> found =
        FindFamilyTemplate(model.chat_template());
    if (!found.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          key, found.status().message(), ", chatml, llama3 or custom"));
    }
    chat = *std::move(found);
    if (!model.system_prompt().empty() && !chat.allows_system) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.system_prompt: the chat template of ",
                       model.chat_template(), " has no system turn"));
    }
    text->family_template_ = chat;
  }
  BALLAST_RETURN_IF_ERROR(
      Annotate(CheckFamilyTokens(family, chat, *tokenizer),
               absl::StrCat("model.tokenizer: ", model.tokenizer())));
  return std::unique_ptr<const FamilyText>(std::move(text));
}

absl::StatusOr<FamilyTokens> FamilyText::Tokenize(
    absl::string_view text, TextForm form, absl::Span<const TileShape> sizes,
    absl::Span<const VideoText> videos) const {
  BALLAST_ASSIGN_OR_RETURN(std::vector<ImagePieces> images,
                           ImageTextsOf(sizes, planner()));
  if (!videos.empty() &&
      (form == TextForm::kPackedBytes || form == TextForm::kPackedJson)) {
    return DataFaultError("a sample of token ids with videos is not supported");
  }
  if (!videos.empty() && VideosHaveOwnId(images_) &&
      model_.token_ids().video() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a video, and the tokenizer ", model_.tokenizer(),
                     " has no token ", kVideoMark,
                     " to stand for its frames; give the tokenizer of the "
                     "model's checkpoint"));
  }
  if (IsLlavaVideo(images_)) {
    BALLAST_RETURN_IF_ERROR(CheckLlavaVideos(sizes.size(), videos.size(),
                                             form == TextForm::kConversation));
  }
  std::vector<ImagePieces> frames;
  for (const VideoText& video : videos) {
    frames.push_back(VideoPiecesOf(video, planner().family().marks,
                                   VideosHaveOwnId(images_)));
  }
  if (form == TextForm::kPackedBytes) {
    return ParsePacked(text, /*is_json=*/false, images);
  }
  std::string replaced;
  BALLAST_ASSIGN_OR_RETURN(text, ValidText(text, model_, &replaced));
  if (form == TextForm::kPackedJson) {
    return ParsePacked(text, /*is_json=*/true, images);
  }
  if (form == TextForm::kDocument) {
    std::string marked(text);
    std::string* const marked_text[] = {&marked};
    if (!videos.empty()) {
      BALLAST_ASSIGN_OR_RETURN(
          const std::vector<bool> order,
          MarkFrames(sizes.size(), videos.size(), marked_text));
      images = InOrder(std::move(images), std::move(frames), order);
    }
    return TokenizeDocument(marked, images);
  }
  BALLAST_ASSIGN_OR_RETURN(std::vector<Turn> turns, ParseConversation(text));
  if (!videos.empty()) {
    if (!videos[0].times.empty()) {
      BALLAST_RETURN_IF_ERROR(AddTimes(videos[0].times, &turns));
    }
    BALLAST_ASSIGN_OR_RETURN(const std::vector<bool> order,
                             MarkTurns(sizes.size(), videos.size(), &turns));
    images = InOrder(std::move(images), std::move(frames), order);
  }
  return TokenizeConversation(std::move(turns), images);
}

absl::StatusOr<std::vector<uint32_t>> FamilyText::ImagesBehind(
    absl::string_view text, TextForm form, size_t images, size_t videos) const {
  std::string replaced;
  BALLAST_ASSIGN_OR_RETURN(text, ValidText(text, model_, &replaced));
  if (form == TextForm::kDocument) {
    std::string marked(text);
    std::string* const marked_text[] = {&marked};
    BALLAST_ASSIGN_OR_RETURN(const std::vector<bool> order,
                             MarkFrames(images, videos, marked_text));
    return ImagesBehindVideos(order);
  }
  BALLAST_ASSIGN_OR_RETURN(std::vector<Turn> turns, ParseConversation(text));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<bool> order,
                           MarkTurns(images, videos, &turns));
  return ImagesBehindVideos(order);
}

absl::StatusOr<FamilyTokens> FamilyText::TokenizeConversation(
    std::vector<Turn> turns, absl::Span<const ImagePieces> images) const {
  if (!model_.system_prompt().empty() &&
      (turns.empty() || turns[0].role != Role::kSystem)) {
    turns.insert(turns.begin(), {Role::kSystem, model_.system_prompt()});
  }
  if (family_template_.has_value()) {
    return WriteFamilyConversation(turns, images, *family_template_,
                                   planner().family().name, *tokenizer_,
                                   model_.token_ids());
  }
  const v1::ChatTemplate chat = MakeChatTemplate(model_);
  FamilyTokenWriter writer(tokenizer_, &model_.token_ids());
  MarkedText marked(images, &writer);
  writer.AddTemplateText(chat.begin(), Kind::kContext);
  for (const Turn& turn : turns) {
    const v1::ChatTemplate::Turn& form = TurnOf(chat, turn.role);
    const Kind said = form.supervised() ? Kind::kSupervised : Kind::kContext;
    writer.AddTemplateText(form.prefix(), Kind::kContext);
    marked.Add(chat.trim() ? StripWhiteSpace(turn.text) : turn.text, said);
    writer.AddTemplateText(form.end(), said);
    writer.AddTemplateText(form.suffix(), Kind::kContext);
  }
  BALLAST_RETURN_IF_ERROR(marked.Check());
  return std::move(writer).Finish();
}

absl::StatusOr<FamilyTokens> FamilyText::TokenizeDocument(
    absl::string_view text, absl::Span<const ImagePieces> images) const {
  FamilyTokenWriter writer(tokenizer_, &model_.token_ids());
  MarkedText marked(images, &writer);
  if (family_template_.has_value()) {
    writer.AddText(family_template_->begin, Kind::kContext);
  }
  if (!absl::StrContains(text, kImageMark)) {
    for (size_t i = 0; i < images.size(); ++i) marked.AddImage();
  }
  marked.Add(text, Kind::kSupervised);
  BALLAST_RETURN_IF_ERROR(marked.Check());
  writer.AddEndOfText(Kind::kSupervised);
  return std::move(writer).Finish();
}

absl::StatusOr<FamilyTokens> FamilyText::ParsePacked(
    absl::string_view text, bool is_json,
    absl::Span<const ImagePieces> images) const {
  FamilyTokens packed;
  std::vector<int32_t> marks;
  for (const ImagePieces& pieces : images) {
    for (const ImageTextPiece& piece : pieces) {
      if (piece.placeholders != 0) {
        packed.runs.push_back(static_cast<uint32_t>(piece.placeholders));
        continue;
      }
      for (const absl::string_view token : SpecialTokensIn(piece.text)) {
        if (const auto id = tokenizer_->SpecialTokenId(token)) {
          marks.push_back(*id);
        }
      }
    }
  }
  const PackedRuns runs = {packed.runs, marks};
  BALLAST_ASSIGN_OR_RETURN(
      packed.tokens, is_json
                         ? ParseFamilyJson(text, runs, model_.token_ids())
                         : ParseFamilyBytes(text, runs, model_.token_ids()));
  return packed;
}

absl::Status FamilyText::Place(absl::Span<const int32_t> ids,
                               absl::Span<const TileShape> sizes,
                               absl::Span<int32_t> out) const {
  const PositionRule rule = RuleOfAxes(model_.position_axes());
  std::vector<PlacedImage> placed;
  if (rule != PositionRule::kSequence) {
    const uint32_t side = planner().family().patch * planner().family().merge;
    size_t at = 0;
    for (const TileShape& size : sizes) {
      BALLAST_ASSIGN_OR_RETURN(
          const ImagePlan plan,
          planner().Plan(size.height, size.width,
                         static_cast<uint32_t>(sizes.size())));
      while (at < ids.size() && ids[at] != model_.token_ids().image()) ++at;
      const PlanStage& stage = plan.stages.back();
      placed.push_back({static_cast<uint32_t>(at), stage.crop.height / side,
                        stage.crop.width / side});
      at += plan.placeholders;
    }
  }
  return NumberTokens(rule, static_cast<uint32_t>(ids.size()), placed, out);
}

int32_t FamilyText::video_placeholder() const {
  return VideosHaveOwnId(images_) ? model_.token_ids().video()
                                  : model_.token_ids().image();
}

absl::StatusOr<uint64_t> FamilyText::Placeholders(
    absl::Span<const TileShape> sizes) const {
  uint64_t total = 0;
  for (const TileShape& size : sizes) {
    BALLAST_ASSIGN_OR_RETURN(
        const uint32_t count,
        images_.Placeholders(size.height, size.width,
                             static_cast<uint32_t>(sizes.size())));
    total += count;
  }
  return total;
}

absl::StatusOr<TextSample> BuildFamilyText(absl::string_view text,
                                           TextForm form,
                                           absl::Span<const TileShape> sizes,
                                           const TextOptions& options,
                                           absl::Span<const VideoText> videos) {
  BALLAST_ASSIGN_OR_RETURN(FamilyTokens built,
                           options.family->Tokenize(text, form, sizes, videos));
  BALLAST_RETURN_IF_ERROR(LimitTokens(built.runs, options.max_tokens,
                                      options.on_too_long, &built.tokens,
                                      /*ends=*/0));
  return ExpandTokens(built.tokens, built.runs,
                      options.family->model().token_ids(), /*ends=*/0,
                      built.first_video);
}

absl::StatusOr<MeasuredText> MeasureFamilyText(
    absl::string_view text, TextForm form, absl::Span<const TileShape> sizes,
    const TextOptions& options, absl::Span<const VideoText> videos) {
  BALLAST_ASSIGN_OR_RETURN(FamilyTokens built,
                           options.family->Tokenize(text, form, sizes, videos));
  const size_t whole = built.tokens.size();
  const absl::Status fits =
      LimitTokens(built.runs, options.max_tokens, options.on_too_long,
                  &built.tokens, /*ends=*/0);
  const TextCounts counts = CountTokens(built.tokens, built.runs, /*ends=*/0);
  const bool is_packed =
      form == TextForm::kPackedBytes || form == TextForm::kPackedJson;
  MeasuredText measured;
  measured.text_tokens = Saturated(counts.text_tokens);
  measured.label_tokens = Saturated(counts.label_tokens);
  measured.too_long = !fits.ok();
  measured.limited = built.tokens.size() != whole || !videos.empty() ||
                     (is_packed && !sizes.empty());
  return measured;
}

}  // namespace ballast
