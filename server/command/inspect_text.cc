#include "server/command/commands.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "proto/image/engine_jpeg.h"
#include "server/model/model_profile.h"
#include "server/model/model_videos.h"
#include "server/model/profiles.h"
#include "server/sample/data_fault.h"
#include "server/settings/source_fields.h"
#include "server/text/chat_writer.h"
#include "server/text/media_text.h"
#include "server/text/model_tokenizer.h"
#include "server/text/positions.h"
#include "server/text/sample_fields.h"
#include "server/text/sample_text.h"
#include "server/text/template/rendered_text.h"
#include "server/text/template/template_renderer.h"

namespace ballast {

absl::Status InspectText(const Tokenizer& tokenizer, std::istream& in,
                         std::ostream& out) {
  return TransformJsonLines(
      in, out,
      [&](const nlohmann::json& object,
          const std::string&) -> absl::StatusOr<nlohmann::ordered_json> {
        const auto text = object.find("text");
        if (text == object.end() || !text->is_string()) {
          return absl::InvalidArgumentError(
              "`text` is missing or not a string");
        }
        std::vector<int32_t> ids;
        BALLAST_RETURN_IF_ERROR(
            tokenizer.Encode(text->get_ref<const std::string&>(), &ids));
        return nlohmann::ordered_json{{"ids", ids}};
      });
}

void AddInspectText(CommandLine* line, Command* inspect) {
  auto tokenizer = std::make_shared<std::string>();
  Command* command = line->AddCommand(
      inspect, "text",
      R"(Prints the token ids of texts, without special tokens.
Reads lines {"text": …} from standard input and prints for each {"ids": […]}.)",
      R"(  echo '{"text": "Hello"}' |
    ballast-server inspect text --tokenizer tokenizer.json)",
      [tokenizer]() -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(const auto made, MakeTokenizer(*tokenizer));
        return InspectText(*made, std::cin, std::cout);
      });
  command
      ->AddText("--tokenizer", tokenizer.get(),
                "a tokenizer.json, a SentencePiece .model, or `bytes` (one "
                "token a byte)")
      .Required()
      .TypeName("FILE|bytes");
}

namespace {

absl::StatusOr<std::vector<ImageSize>> GetSizes(const nlohmann::json& object) {
  std::vector<ImageSize> sizes;
  const auto images = object.find("images");
  if (images == object.end()) return sizes;
  const auto is_size = [](const nlohmann::json& size) {
    return size.is_array() && size.size() == 2 &&
           size[0].is_number_unsigned() && size[1].is_number_unsigned();
  };
  if (!images->is_array()) {
    return absl::InvalidArgumentError("`images` is no list of [height, width]");
  }
  for (const nlohmann::json& size : *images) {
    if (!is_size(size)) {
      return absl::InvalidArgumentError(
          "`images` has an item that is no [height, width]");
    }
    sizes.push_back(
        {.width = size[1].get<uint32_t>(), .height = size[0].get<uint32_t>()});
  }
  return sizes;
}

}  // namespace

namespace {

// A message's `weight`, as a source's field has it.
const FieldSpec& WeightSpec() {
  static const auto* const spec =
      new FieldSpec{.name = std::string(kWeightField),
                    .type = v1::Source::Field::TYPE_FLOAT32,
                    .per = v1::Source::Field::PER_TURN,
                    .missing = 1};
  return *spec;
}

// A text, its tokens, and what of it is learnt. If the sample has a row of
// fields, it is the weights of the tokens' messages; else each is 1.
struct Inspected {
  TextSample sample;
  SupervisedText rendered;
  absl::Status refused;  // a data fault: the text is known, its labels are not
};

// What inspects one conversation.
using Inspect = std::function<absl::StatusOr<Inspected>(
    const std::string& json, absl::Span<const ImageSize> sizes)>;

absl::StatusOr<Inspect> InspectFamily(const ConversationOptions& options,
                                      const Tokenizer& tokenizer) {
  v1::Model model;
  model.set_profile(UnderRules(options.family, options.rules));
  BALLAST_RETURN_IF_ERROR(ApplyModelProfile(&model));
  const v1::ModelProfile& profile = *GetProfile(model);
  model.set_chat_template(HasChat(profile) ? profile.name()
                                           : profile.chat_template());
  // Only conversations are written: no other id than the placeholder's is
  // needed.
  const std::string& placeholder = profile.images().marks().placeholder();
  if (const auto id = tokenizer.SpecialTokenId(placeholder)) {
    model.mutable_token_ids()->set_image(*id);
  }
  if (model.token_ids().image() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tokenizer lacks the placeholder ", placeholder,
                     " of ", options.family));
  }
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const ModelText> text,
                           ModelText::Create(model, &tokenizer));
  return
      [text](const std::string& json,
             absl::Span<const ImageSize> sizes) -> absl::StatusOr<Inspected> {
        BALLAST_ASSIGN_OR_RETURN(
            TextSample sample,
            BuildText(json, TextForm::kConversation, sizes,
                      {text.get(), UINT32_MAX}, {},
                      {absl::MakeConstSpan(&WeightSpec(), 1), json}));
        return Inspected{std::move(sample), {}, {}};
      };
}

// True if a message has a weight between 0 and 1: its tokens note their turns.
bool HasWeights(const SupervisedText& rendered) {
  return !rendered.weight.empty();
}

absl::Status Weigh(const std::string& json, const TextTokens& tokens,
                   Inspected* inspected) {
  if (!HasWeights(inspected->rendered)) return absl::OkStatus();
  const auto specs = absl::MakeConstSpan(&WeightSpec(), 1);
  BALLAST_ASSIGN_OR_RETURN(const SampleFields values,
                           ReadFields({specs, json}));
  WriteFields(specs, values, tokens, GetPlaces(tokens), &inspected->sample);
  return absl::OkStatus();
}

// What `loss_mask` is for each label: 0 where nothing is learnt.
std::vector<float> GetWeights(const TextSample& sample) {
  std::vector<float> weights(sample.labels.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    if (sample.labels[i] == kUnsupervised) continue;
    weights[i] = sample.field_rows.empty()
                     ? 1
                     : std::bit_cast<float>(sample.field_rows[i + 1]);
  }
  return weights;
}

// With the template of a file, of a model.
absl::StatusOr<Inspect> InspectOwn(
    const ConversationOptions& options,
    std::unique_ptr<const TemplateRenderer> renderer) {
  v1::Model model;
  model.set_profile(UnderRules(options.family, options.rules));
  BALLAST_RETURN_IF_ERROR(ApplyModelProfile(&model));
  const v1::ModelProfile& profile = *GetProfile(model);
  model.set_chat_template(HasChat(profile) ? profile.name()
                                           : profile.chat_template());
  model.set_tokenizer(options.tokenizer);
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer,
                           OpenModelTokenizer(&model));
  model.set_chat_template("checkpoint");
  BALLAST_ASSIGN_OR_RETURN(
      const std::shared_ptr<const ModelText> text,
      ModelText::Create(model, tokenizer.get(), std::move(renderer)));
  return [tokenizer, text](
             const std::string& json,
             absl::Span<const ImageSize> sizes) -> absl::StatusOr<Inspected> {
    Inspected result;
    BALLAST_ASSIGN_OR_RETURN(result.rendered,
                             text->Render(json, {{sizes.size()}}));
    BALLAST_ASSIGN_OR_RETURN(
        const TextTokens tokens,
        text->TokenizeRendered(result.rendered, sizes, {},
                               HasWeights(result.rendered)));
    result.sample = ExpandTokens(tokens, text->model().token_ids());
    BALLAST_RETURN_IF_ERROR(Weigh(json, tokens, &result));
    return result;
  };
}

// With the template of a file, of no model: without images.
Inspect InspectAlone(const Tokenizer& tokenizer,
                     std::shared_ptr<const TemplateRenderer> renderer) {
  return [renderer = std::move(renderer), &tokenizer](
             const std::string& json,
             absl::Span<const ImageSize> sizes) -> absl::StatusOr<Inspected> {
    if (!sizes.empty()) {
      return absl::InvalidArgumentError(
          "`images`, and no model says what they become in the text; give "
          "--model");
    }
    Inspected result;
    absl::StatusOr<SupervisedText> rendered =
        RenderSupervised(*renderer, TurnMarks(), json, /*has_images=*/false);
    if (rendered.ok()) {
      result.rendered = *std::move(rendered);
    } else if (IsDataFault(rendered.status())) {
      result.refused = rendered.status();
      BALLAST_ASSIGN_OR_RETURN(RenderedConversation text,
                               renderer->Render({.json = json}));
      result.rendered.text = std::move(text.text);
      result.rendered.left_out = std::move(text.left_out);
    } else {
      return rendered.status();
    }
    v1::TokenIds none;
    for (const auto set :
         {&v1::TokenIds::set_image, &v1::TokenIds::set_video,
          &v1::TokenIds::set_vision_start, &v1::TokenIds::set_vision_end,
          &v1::TokenIds::set_im_start, &v1::TokenIds::set_im_end,
          &v1::TokenIds::set_end_of_text}) {
      (none.*set)(-1);
    }
    BALLAST_ASSIGN_OR_RETURN(
        const TextTokens tokens,
        TokenizeRendered(result.rendered, {}, {}, ImageMarks(), none, tokenizer,
                         HasWeights(result.rendered)));
    result.sample = ExpandTokens(tokens, none);
    BALLAST_RETURN_IF_ERROR(Weigh(json, tokens, &result));
    return result;
  };
}

absl::StatusOr<Inspect> GetInspect(const ConversationOptions& options,
                                   const Tokenizer& tokenizer) {
  if (options.chat_template.empty()) {
    if (options.family.empty()) {
      return absl::InvalidArgumentError(
          "neither --model nor --chat-template; wanted a model whose template "
          "is known, or the file of a checkpoint's");
    }
    if (options.with_text) {
      return absl::InvalidArgumentError(
          "--text without --chat-template; wanted both");
    }
    if (options.reasoning != "template") {
      return absl::InvalidArgumentError(
          "--reasoning without --chat-template; wanted both");
    }
    return InspectFamily(options, tokenizer);
  }
  JinjaTemplate source;
  BALLAST_ASSIGN_OR_RETURN(
      const std::string file,
      ReadSmallFile(options.chat_template, size_t{16} << 20));
  // The file of a checkpoint's tokenizer has it as a key.
  const TemplateFiles files = {{}, file, {}};
  source.text = OwnTemplate(files);
  source.tool_use = OwnTemplate(files, "tool_use");
  if (source.text.empty()) source.text = file;
  source.variables = ReadTemplateVariables(options.tokenizer);
  absl::StatusOr<std::unique_ptr<const TemplateRenderer>> renderer =
      TemplateRenderer::Create(source,
                               {.date = "now", .reasoning = options.reasoning});
  if (!renderer.ok()) return Annotate(renderer.status(), options.chat_template);
  if (options.family.empty()) {
    return InspectAlone(tokenizer, *std::move(renderer));
  }
  absl::StatusOr<Inspect> inspect = InspectOwn(options, *std::move(renderer));
  if (!inspect.ok()) return Annotate(inspect.status(), options.chat_template);
  return inspect;
}

}  // namespace

absl::Status InspectConversations(const ConversationOptions& options,
                                  std::istream& in, std::ostream& out) {
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                           MakeTokenizer(options.tokenizer));
  BALLAST_ASSIGN_OR_RETURN(const Inspect inspect,
                           GetInspect(options, *tokenizer));
  const auto describe =
      [&](const nlohmann::json& object, const std::string& line,
          absl::Status* refused) -> absl::StatusOr<nlohmann::ordered_json> {
    BALLAST_ASSIGN_OR_RETURN(const std::vector<ImageSize> sizes,
                             GetSizes(object));
    BALLAST_ASSIGN_OR_RETURN(const Inspected inspected, inspect(line, sizes));
    *refused = inspected.refused;
    nlohmann::ordered_json result = {{"ids", inspected.sample.ids}};
    if (refused->ok()) {
      result["labels"] = inspected.sample.labels;
      result["weights"] = GetWeights(inspected.sample);
    }
    const SupervisedText& rendered = inspected.rendered;
    if (!rendered.left_out.empty()) result["left_out"] = rendered.left_out;
    if (!options.with_text) return result;
    result["text"] = rendered.text;
    if (!refused->ok()) return result;
    result["supervised"] = nlohmann::ordered_json::array();
    for (const auto& span : rendered.supervised) {
      result["supervised"].push_back(
          rendered.text.substr(span.begin, span.end - span.begin));
    }
    return result;
  };
  size_t conversations = 0;
  size_t refusals = 0;
  std::string first;
  BALLAST_RETURN_IF_ERROR(TransformJsonLines(
      in, out,
      [&](const nlohmann::json& object,
          const std::string& line) -> absl::StatusOr<nlohmann::ordered_json> {
        ++conversations;
        absl::Status refused;
        auto result = describe(object, line, &refused);
        if (IsDataFault(result.status())) {
          refused = result.status();
          result = nlohmann::ordered_json::object();
        }
        if (result.ok() && !refused.ok()) {
          if (refusals++ == 0) {
            first = absl::StrCat(conversations, ": ", refused.message());
          }
          (*result)["error"] = std::string(refused.message());
        }
        return result;
      }));
  if (refusals == 0) return absl::OkStatus();
  return DataFaultError(absl::StrCat(
      refusals, " of ", conversations,
      " conversations are refused; see `error` in their lines. The first is ",
      first));
}

void AddInspectConversation(CommandLine* line, Command* inspect) {
  auto options = std::make_shared<ConversationOptions>();
  Command* command = line->AddCommand(
      inspect, "conversation",
      R"(Prints token ids and labels of conversations, as a model family's processor
or a checkpoint's own chat template makes them. Reads lines {"messages": […],
"tools": […], "images": [[height, width], …]} from standard input and prints
for each {"ids": […], "labels": […], "weights": […]}: a label's weight is its
message's, and 0 where nothing is learnt. `left_out` says what the template
leaves out of the conversation, which makes it a bad sample. What is refused has
`error`, and its text where only its labels are not known; the command then
fails at the end. Give --model, --chat-template or both: images need a model.)",
      R"(  echo '{"messages": [{"role": "user", "content": "<image>Why?"}],
         "images": [[480, 640]]}' | tr -d '\n' |
    ballast-server inspect conversation --model internvl3 \
      --tokenizer tokenizer.json
  ballast-server inspect conversation --chat-template chat_template.jinja \
    --tokenizer tokenizer.json --text < chats.jsonl)",
      [options]() -> absl::Status {
        return InspectConversations(*options, std::cin, std::cout);
      });
  command
      ->AddText("--model", &options->family,
                "a model of docs/families.md with a chat template")
      .OneOf(ProfileNames([](const v1::ModelProfile& profile) {
        return !IsEncoder(profile) && TakesImages(profile);
      }))
      .TypeName("MODEL");
  AddRules(command, &options->rules);
  command
      ->AddText(
          "--chat-template", &options->chat_template,
          "a checkpoint's chat_template.jinja, rendered by jinja2, or the "
          "JSON file whose key chat_template has it")
      .TypeName("FILE");
  command
      ->AddText("--tokenizer", &options->tokenizer,
                "the tokenizer.json of the checkpoint")
      .Required()
      .TypeName("FILE");
  command
      ->AddText("--reasoning", &options->reasoning,
                "as model.reasoning: which of the assistant's earlier turns "
                "keep their reasoning")
      .OneOf({"template", "keep", "last", "drop"});
  command->AddFlag("--text", &options->with_text,
                   "print the rendered text, too, and the supervised pieces of "
                   "it: {\"text\": …, \"supervised\": […]}");
}

namespace {

// True if `value` is an integer that fits in Integer.
template <typename Integer>
bool Holds(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    return value.get<uint64_t>() <=
           uint64_t{std::numeric_limits<Integer>::max()};
  }
  if (!value.is_number_integer()) return false;
  return value.get<int64_t>() >= int64_t{std::numeric_limits<Integer>::min()};
}

absl::StatusOr<std::vector<int32_t>> ParseIds(const nlohmann::json& object) {
  const auto list = object.find("input_ids");
  if (list == object.end() || !list->is_array()) {
    return absl::InvalidArgumentError("`input_ids` is missing or not a list");
  }
  std::vector<int32_t> ids;
  ids.reserve(list->size());
  for (const nlohmann::json& id : *list) {
    if (!Holds<int32_t>(id)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "`input_ids`[", ids.size(), "] is not a 32-bit integer"));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

// The grids under `key`; none where it is missing.
absl::StatusOr<std::vector<GridThw>> ParseGrids(const nlohmann::json& object,
                                                absl::string_view key) {
  std::vector<GridThw> grids;
  const auto list = object.find(key);
  if (list == object.end()) return grids;
  if (!list->is_array()) {
    return absl::InvalidArgumentError(
        absl::StrCat("`", key, "` is not a list"));
  }
  for (const nlohmann::json& grid : *list) {
    if (!grid.is_array() || grid.size() != 3 || !Holds<uint32_t>(grid[0]) ||
        !Holds<uint32_t>(grid[1]) || !Holds<uint32_t>(grid[2])) {
      return absl::InvalidArgumentError(
          absl::StrCat("`", key, "`[", grids.size(),
                       "] is not [t, h, w] of three sizes in patches"));
    }
    grids.push_back({grid[0], grid[1], grid[2]});
  }
  return grids;
}

// The grids of runs of video placeholders, as the model's processor describes
// videos: `second_per_grid_ts` is 1 for each unless given.
absl::StatusOr<std::vector<GridThw>> ParseVideos(const nlohmann::json& object,
                                                 const v1::Model& model) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<GridThw> videos,
                           ParseGrids(object, "video_grid_thw"));
  const std::optional<VideoModel> video = GetVideoModel(model);
  if (!video.has_value() && !videos.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "`video_grid_thw`: ", model.profile(), " takes no videos"));
  }
  std::vector<double> seconds(videos.size(), 1);
  const auto list = object.find("second_per_grid_ts");
  if (list != object.end()) {
    if (!video.has_value() ||
        (!video->has_seconds && video->ids_per_second == 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("`second_per_grid_ts`: positions of ", model.profile(),
                       " do not follow seconds"));
    }
    if (!list->is_array() || list->size() != videos.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "`second_per_grid_ts` is not a list of a number for each of the ",
          videos.size(), " grids of `video_grid_thw`"));
    }
    for (size_t i = 0; i < videos.size(); ++i) {
      const nlohmann::json& of_video = (*list)[i];
      if (of_video.is_number()) seconds[i] = of_video.get<double>();
      if (of_video.is_number() && seconds[i] > 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "`second_per_grid_ts`[", i, "] is not a number above 0"));
    }
  }
  std::vector<GridThw> runs;
  for (size_t i = 0; i < videos.size(); ++i) {
    VideoPlan plan;
    plan.grid_t = videos[i].t;
    plan.grid_h = videos[i].h;
    plan.grid_w = videos[i].w;
    plan.seconds_per_patch = seconds[i];
    AppendGrids(*video, plan, &runs);
  }
  return runs;
}

absl::Status CheckPositionsKeys(const nlohmann::json& object) {
  for (const auto& [key, value] : object.items()) {
    if (key == "input_ids" || key == "image_grid_thw" ||
        key == "video_grid_thw" || key == "second_per_grid_ts") {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("unknown key `", Printable(key),
                     "`; wanted input_ids, image_grid_thw, video_grid_thw and "
                     "second_per_grid_ts"));
  }
  return absl::OkStatus();
}

absl::StatusOr<nlohmann::ordered_json> Positions(const nlohmann::json& object,
                                                 const v1::Model& model) {
  BALLAST_RETURN_IF_ERROR(CheckPositionsKeys(object));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ParseIds(object));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<GridThw> grids,
                           ParseGrids(object, "image_grid_thw"));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<GridThw> videos,
                           ParseVideos(object, model));
  const size_t axes = model.position_axes();
  std::vector<int32_t> positions(axes * ids.size());
  BALLAST_RETURN_IF_ERROR(
      ComputePositions(ids, grids, model, absl::MakeSpan(positions), videos));
  auto lists = nlohmann::ordered_json::array();
  const bool is_float = HasFloatPositions(model);
  for (size_t axis = 0; axis < axes; ++axis) {
    auto list = nlohmann::ordered_json::array();
    for (size_t i = 0; i < ids.size(); ++i) {
      const int32_t place = positions[axis * ids.size() + i];
      if (is_float) {
        list.push_back(std::bit_cast<float>(place));
      } else {
        list.push_back(place);
      }
    }
    lists.push_back(std::move(list));
  }
  return nlohmann::ordered_json{{"position_ids", lists}};
}

}  // namespace

absl::Status InspectPositions(const v1::Model& model, std::istream& in,
                              std::ostream& out) {
  return TransformJsonLines(
      in, out, [&](const nlohmann::json& object, const std::string&) {
        return Positions(object, model);
      });
}

void AddInspectPositions(CommandLine* line, Command* inspect) {
  auto profile = std::make_shared<std::string>();
  auto rules = std::make_shared<std::string>();
  Command* command = line->AddCommand(
      inspect, "positions",
      R"(Prints the position ids of samples.
Reads lines {"input_ids": […], "image_grid_thw": [[t, h, w], …]} from standard
input and prints for each {"position_ids": [[…], […], […]]}. Lines may have
"video_grid_thw", and "second_per_grid_ts" where positions follow seconds.)",
      R"(  echo '{"input_ids": [7, 8, 9], "image_grid_thw": []}' |
    ballast-server inspect positions --model qwen2_5_vl)",
      [profile, rules]() -> absl::Status {
        v1::Model model;
        model.set_profile(UnderRules(*profile, *rules));
        BALLAST_RETURN_IF_ERROR(ApplyModelProfile(&model));
        return InspectPositions(model, std::cin, std::cout);
      });
  command
      ->AddText("--model", profile.get(),
                "qwen2_vl, qwen2_5_vl, qwen3_vl or qwen3_5_vl")
      .OneOf(ProfileNames([](const v1::ModelProfile& profile) {
        return profile.has_token_ids();
      }))
      .Required()
      .TypeName("MODEL");
  AddRules(command, rules.get());
}

std::string MarksText(const ImageMarkCounts& marks) {
  std::vector<std::string> checks;
  const auto add = [&](ImageCheckResult check, const char* name) {
    const uint64_t count = marks.with(check);
    if (count > 0) checks.push_back(absl::StrCat(count, " ", name));
  };
  add(ImageCheckResult::kClean, "clean");
  add(ImageCheckResult::kUnsound, "unsound");
  add(ImageCheckResult::kChanged, "changed since they were indexed");
  add(ImageCheckResult::kUnchecked, "not checked");
  std::string text = absl::StrCat(
      "  JPEG engines may decode ", marks.marked(), " of ", marks.images,
      " images", checks.empty() ? "" : ": ", absl::StrJoin(checks, ", "), "\n");
  std::vector<std::string> refusals;
  for (size_t i = 0; i < marks.refusals.size(); ++i) {
    if (marks.refusals[i] == 0) continue;
    refusals.push_back(absl::StrCat(
        marks.refusals[i], " ",
        i == 0 ? "not judged"
               : EngineRefusalText(static_cast<EngineRefusal>(i))));
  }
  if (!refusals.empty()) {
    absl::StrAppend(
        &text, "  the server decodes: ", absl::StrJoin(refusals, ", "), "\n");
  }
  return text;
}

std::string CheckText(const SourceCheck& check, const Shard& shard) {
  const CheckReport& report = check.report;
  std::string text = absl::StrCat(check.source, ": ");
  if (shard.count > 1) {
    absl::StrAppend(&text, "shard ", shard.number, "/", shard.count, ": ");
  }
  absl::StrAppend(&text, report.images, " images checked");
  if (report.resumed > 0) {
    absl::StrAppend(&text, ", ", report.resumed, " of them by earlier runs");
  }
  absl::StrAppend(&text, ": ", report.clean, " clean, ", report.unsound,
                  " unsound, ", report.changed, " changed\n");
  for (const UncleanImage& image : report.unclean) {
    absl::StrAppend(&text, "  left to the server: ", image.reason, "\n");
  }
  if (report.unclean.size() == CheckReport::kMaxListed) {
    absl::StrAppend(&text, "  and perhaps more\n");
  }
  if (check.is_merged) return text + MarksText(check.marks);
  absl::StrAppend(&text,
                  "  once all shards are checked, `ballast-server index "
                  "--merge` enters their results in the index\n");
  return text;
}

}  // namespace ballast
