#include "server/text/sample_text.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "proto/image/job_images.h"
#include "server/model/image_family_config.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"
#include "server/sample/data_fault.h"
#include "server/text/chat_writer.h"

namespace ballast {
namespace {

// Serialises the whole template: any difference gives another text.
std::string OneLine(const v1::ChatTemplate& chat) {
  std::vector<std::string> fields = {chat.begin()};
  for (const v1::ChatTemplate::Turn* turn :
       {&chat.system(), &chat.user(), &chat.assistant()}) {
    fields.insert(fields.end(), {turn->prefix(), turn->end(), turn->suffix(),
                                 turn->supervised() ? "learnt" : ""});
  }
  fields.push_back(chat.trim() ? "trim" : "");
  for (std::string& field : fields) field = absl::CHexEscape(field);
  return absl::StrJoin(fields, "|");
}

// The marks around the turns that a checkpoint's own template teaches, which
// the profile names.
std::string TurnsKey(const v1::Model& model) {
  if (!IsCheckpointTemplate(model.chat_template())) return "";
  const TurnMarks marks = GetTurnMarks(model);
  return absl::StrCat("\nturns=", absl::CHexEscape(marks.begin), "|",
                      absl::CHexEscape(marks.end));
}

// The part of a text's key on media that travel as rows: their placeholder and
// marks.
std::string RowsKey(const v1::Model& model) {
  const v1::AudioFamily::Marks* const marks = GetRowsMarks(model);
  if (marks == nullptr || !model.token_ids().has_audio()) return "";
  return absl::StrCat("\naudio=", model.token_ids().audio(), "|",
                      absl::CHexEscape(marks->before()), "|",
                      absl::CHexEscape(marks->after()));
}

uint32_t Saturated(uint64_t count) {
  return static_cast<uint32_t>(
      std::min<uint64_t>(count, std::numeric_limits<uint32_t>::max()));
}

struct FieldedText {
  TextTokens text;  // before any limit
  SampleFields fields;
};

absl::StatusOr<FieldedText> TokenizeFielded(absl::string_view text,
                                            TextForm form,
                                            const SampleImages& images,
                                            const TextOptions& options,
                                            absl::Span<const StreamText> videos,
                                            const TextFields& fields) {
  const bool notes_turns = std::any_of(
      fields.specs.begin(), fields.specs.end(), [](const FieldSpec& spec) {
        return spec.per == v1::Source::Field::PER_TURN;
      });
  FieldedText built;
  BALLAST_ASSIGN_OR_RETURN(
      built.text,
      options.text->Tokenize(text, form, images, videos, notes_turns));
  const bool has_weights = std::any_of(
      fields.specs.begin(), fields.specs.end(),
      [](const FieldSpec& spec) { return spec.name == kWeightField; });
  if (!built.text.weight.empty() && !has_weights) {
    return DataFaultError(absl::StrCat(
        built.text.weight,
        ", which scales loss_mask: name it in the source's fields, `weight: "
        "{type: float32, per: turn, default: 1}`; without the field a "
        "weight is 0 or 1"));
  }
  if (fields.specs.empty()) return built;
  BALLAST_ASSIGN_OR_RETURN(built.fields, ReadFields(fields));
  BALLAST_RETURN_IF_ERROR(CheckFields(fields.specs, built.fields, built.text));
  return built;
}

}  // namespace

absl::StatusOr<TextSample> BuildText(absl::string_view text, TextForm form,
                                     const SampleImages& images,
                                     const TextOptions& options,
                                     absl::Span<const StreamText> videos,
                                     const TextFields& fields) {
  BALLAST_ASSIGN_OR_RETURN(
      FieldedText built,
      TokenizeFielded(text, form, images, options, videos, fields));
  std::vector<uint32_t> places;
  if (!fields.specs.empty()) places = GetPlaces(built.text);
  // Checked before anything is expanded: a hostile image count costs no memory.
  BALLAST_RETURN_IF_ERROR(
      LimitTokens(options.max_tokens, options.on_too_long, &built.text,
                  fields.specs.empty() ? nullptr : &places));
  TextSample sample =
      ExpandTokens(built.text, options.text->model().token_ids());
  WriteFields(fields.specs, built.fields, built.text, places, &sample);
  return sample;
}

namespace {

// MeasuredText::unlearnt of a text of which `learnt` tokens are learnt, and
// `uncut` before any limit.
std::string WhyUnlearnt(absl::string_view text, TextForm form, uint64_t learnt,
                        uint64_t uncut) {
  // The ends of empty answers are few tokens.
  constexpr uint64_t kFew = 16;
  if (learnt > kFew) return "";
  if (learnt == 0 && uncut > 0) return "batch.max_tokens cuts off all answers";
  if (form != TextForm::kConversation) {
    return learnt > 0 ? "" : "no token has a label";
  }
  const absl::StatusOr<std::vector<Turn>> turns = ParseConversation(text);
  std::vector<Turn> answers;
  if (turns.ok()) {
    std::copy_if(
        turns->begin(), turns->end(), std::back_inserter(answers),
        [](const Turn& turn) { return turn.role == Role::kAssistant; });
  }
  const auto all = [&](bool (*holds)(const Turn&)) {
    return turns.ok() && std::all_of(answers.begin(), answers.end(), holds);
  };
  if (!answers.empty() && all([](const Turn& turn) {
        return StripWhiteSpace(turn.text).empty();
      })) {
    return "all answers are empty, so that at most their ends are learnt";
  }
  if (learnt > 0) return "";
  if (turns.ok() && answers.empty()) return "no turn of the assistant";
  if (all([](const Turn& turn) { return turn.weight == 0; })) {
    return "all answers have weight 0";
  }
  return "the chat template teaches none of the answers";
}

struct FieldedPair {
  std::array<FieldedText, 2> texts;
  std::array<TextCounts, 2> counts;

  uint64_t tokens() const { return counts[0].total() + counts[1].total(); }
};

absl::StatusOr<FieldedPair> TokenizePair(absl::string_view chosen,
                                         absl::string_view rejected,
                                         const SampleImages& images,
                                         const TextOptions& options,
                                         const TextFields& fields) {
  FieldedPair pair;
  for (size_t i = 0; i < 2; ++i) {
    const absl::string_view text = i == 0 ? chosen : rejected;
    const TextFields own = {fields.specs,
                            fields.json.empty() ? text : fields.json,
                            /*of_pair=*/true};
    auto built = TokenizeFielded(text, TextForm::kConversation, images, options,
                                 {}, own);
    if (!built.ok()) {
      return Annotate(built.status(),
                      i == 0 ? "the chosen answer" : "the rejected answer");
    }
    pair.texts[i] = *std::move(built);
    pair.counts[i] = CountTokens(pair.texts[i].text);
  }
  return pair;
}

}  // namespace

absl::StatusOr<std::array<TextSample, 2>> BuildPair(absl::string_view chosen,
                                                    absl::string_view rejected,
                                                    const SampleImages& images,
                                                    const TextOptions& options,
                                                    const TextFields& fields) {
  BALLAST_ASSIGN_OR_RETURN(
      const FieldedPair pair,
      TokenizePair(chosen, rejected, images, options, fields));
  if (pair.tokens() > options.max_tokens) {
    return absl::OutOfRangeError(
        absl::StrCat("the two sequences of a preference pair have ",
                     pair.tokens(), " tokens; batch.max_tokens is ",
                     options.max_tokens, " for both together"));
  }
  std::array<TextSample, 2> samples;
  for (size_t i = 0; i < 2; ++i) {
    const FieldedText& built = pair.texts[i];
    samples[i] = ExpandTokens(built.text, options.text->model().token_ids());
    if (fields.specs.empty()) continue;
    WriteFields(fields.specs, built.fields, built.text, GetPlaces(built.text),
                &samples[i]);
  }
  return samples;
}

absl::StatusOr<MeasuredText> MeasurePair(absl::string_view chosen,
                                         absl::string_view rejected,
                                         const SampleImages& images,
                                         const TextOptions& options,
                                         const TextFields& fields) {
  BALLAST_ASSIGN_OR_RETURN(
      const FieldedPair pair,
      TokenizePair(chosen, rejected, images, options, fields));
  const auto& [first, second] = pair.counts;
  MeasuredText measured;
  measured.text_tokens = Saturated(first.text_tokens + second.text_tokens);
  measured.label_tokens = Saturated(first.label_tokens + second.label_tokens);
  measured.first_text_tokens = Saturated(first.text_tokens);
  measured.too_long = pair.tokens() > options.max_tokens;
  measured.unlearnt =
      WhyUnlearnt(chosen, TextForm::kConversation, measured.label_tokens, 0);
  return measured;
}

absl::StatusOr<MeasuredText> MeasureText(absl::string_view text, TextForm form,
                                         const SampleImages& images,
                                         const TextOptions& options,
                                         absl::Span<const StreamText> videos,
                                         const TextFields& fields) {
  BALLAST_ASSIGN_OR_RETURN(
      FieldedText fielded,
      TokenizeFielded(text, form, images, options, videos, fields));
  TextTokens& built = fielded.text;
  const size_t whole = built.tokens.size();
  const uint64_t uncut = CountTokens(built).label_tokens;
  const absl::Status fits =
      LimitTokens(options.max_tokens, options.on_too_long, &built);
  const TextCounts counts = CountTokens(built);
  const bool is_packed =
      form == TextForm::kPackedBytes || form == TextForm::kPackedJson;
  MeasuredText measured;
  measured.text_tokens = Saturated(counts.text_tokens);
  measured.label_tokens = Saturated(counts.label_tokens);
  measured.too_long = !fits.ok();
  // Ids, and numbers of tokens, are checked against the sample's placeholders.
  const bool has_places =
      is_packed ||
      std::any_of(fields.specs.begin(), fields.specs.end(),
                  [](const FieldSpec& spec) {
                    return spec.per == v1::Source::Field::PER_TOKEN;
                  });
  measured.limited = built.tokens.size() != whole || !videos.empty() ||
                     (has_places && images.size() > 0);
  measured.unlearnt = WhyUnlearnt(text, form, counts.label_tokens, uncut);
  return measured;
}

MeasuredText MeasureTokenIds(uint64_t tokens, const TextOptions& options) {
  MeasuredText measured;
  measured.too_long =
      tokens > options.max_tokens &&
      options.on_too_long != v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT;
  measured.limited = tokens > options.max_tokens && !measured.too_long;
  measured.text_tokens =
      measured.limited ? options.max_tokens : Saturated(tokens);
  measured.label_tokens = measured.text_tokens - (tokens > 0 ? 1 : 0);
  return measured;
}

bool TextFits(uint32_t text_tokens, const SampleImages& images,
              const TextOptions& options, bool is_pair) {
  const absl::StatusOr<uint64_t> placeholders =
      options.text->images().Placeholders(images);
  const uint64_t texts = is_pair ? 2 : 1;
  return placeholders.ok() &&
         texts * *placeholders + text_tokens <= options.max_tokens;
}

std::string TextLengthKey(const v1::Model& model, const Tokenizer& tokenizer) {
  const v1::TokenIds& ids = model.token_ids();
  // The marks of an image depend on how it is cut. Numbers that are keys of the
  // model alone bound a length: TextLimitKey has them.
  const std::string family =
      HasImageKeys(model) ? "" : FamilyYaml(GetImageFamily(model));
  return absl::StrCat(
      "text_version=", kTextVersion, "\ntokenizer=", tokenizer.digest(),
      "\nchat_template=", WithoutRules(model.chat_template()),
      FollowsAuthors(model.chat_template()) ? "\nrules=authors" : "",
      "\nimage=", ids.image(), "\nvideo=", ids.video(),
      "\nvision_start=", ids.vision_start(), "\nvision_end=", ids.vision_end(),
      "\nim_start=", ids.im_start(), "\nim_end=", ids.im_end(),
      "\nend_of_text=", ids.end_of_text(),
      "\ncustom_template=", OneLine(model.custom_template()),
      "\nsystem_prompt=", absl::CHexEscape(SystemPrompt(model)),
      model.template_date().empty() ? "" : "\ntemplate_date=",
      model.template_date(),
      model.reasoning() > v1::Model::REASONING_TEMPLATE
          ? absl::StrCat("\nreasoning=", static_cast<int>(model.reasoning()))
          : "",
      TurnsKey(model), RowsKey(model),
      "\non_invalid_utf8=", static_cast<int>(model.on_invalid_utf8()), "\n",
      family,
      // A recipe that only makes pixels changes no text.
      absl::StrContains(model.recipe(), kPlansOfRecipe)
          ? absl::StrCat("recipe=", model.recipe(), "\n")
          : "");
}

std::string TextLimitKey(const v1::Config& config) {
  const v1::Model& model = config.model();
  return absl::StrCat(
      "min_pixels=", model.min_pixels(), "\nmax_pixels=", model.max_pixels(),
      "\npatch=", model.patch(), "\nmerge=", model.merge(),
      "\nmax_tokens=", config.batch().max_tokens(),
      "\non_too_long=", static_cast<int>(config.batch().on_too_long()), "\n");
}

}  // namespace ballast
