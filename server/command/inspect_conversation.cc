#include "server/command/inspect_conversation.h"

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/command/json_lines.h"
#include "server/config/model_profile.h"
#include "server/config/profiles.h"
#include "server/text/model_text.h"

namespace ballast {
namespace {

struct Options {
  std::string family;
  std::string tokenizer;
};

absl::StatusOr<std::vector<TileShape>> SizesOf(const nlohmann::json& object) {
  std::vector<TileShape> sizes;
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
    sizes.push_back({size[0].get<uint32_t>(), size[1].get<uint32_t>()});
  }
  return sizes;
}

}  // namespace

absl::Status InspectConversations(absl::string_view family,
                                  const Tokenizer& tokenizer, std::istream& in,
                                  std::ostream& out) {
  v1::Model model;
  model.set_profile(std::string(family));
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
    return absl::InvalidArgumentError(absl::StrCat(
        "the tokenizer lacks the placeholder ", placeholder, " of ", family));
  }
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<const ModelText> text,
                           ModelText::Create(model, &tokenizer));
  const TextOptions options = {text.get(), UINT32_MAX};
  return TransformJsonLines(
      in, out,
      [&](const nlohmann::json& object)
          -> absl::StatusOr<nlohmann::ordered_json> {
        BALLAST_ASSIGN_OR_RETURN(const std::vector<TileShape> sizes,
                                 SizesOf(object));
        BALLAST_ASSIGN_OR_RETURN(
            const TextSample sample,
            BuildText(object.dump(), TextForm::kConversation, sizes, options));
        return nlohmann::ordered_json{{"ids", sample.ids},
                                      {"labels", sample.labels}};
      });
}

void AddInspectConversation(CommandLine* line, Command* inspect) {
  auto options = std::make_shared<Options>();
  Command* command = line->AddCommand(
      inspect, "conversation",
      R"(Prints token ids and labels of conversations, as a model family's processor
makes them. Reads lines {"messages": […], "images": [[height, width], …]} from
standard input and prints for each {"ids": […], "labels": […]}.)",
      R"(  echo '{"messages": [{"role": "user", "content": "<image>Why?"}],
         "images": [[480, 640]]}' | tr -d '\n' |
    ballast-server inspect conversation --model internvl3 \
      --tokenizer tokenizer.json)",
      [options]() -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(const auto tokenizer,
                                 MakeTokenizer(options->tokenizer));
        return InspectConversations(options->family, *tokenizer, std::cin,
                                    std::cout);
      });
  command
      ->AddText("--model", &options->family,
                "a model of docs/families.md with a chat template")
      .OneOf(ProfileNames(
          [](const v1::ModelProfile& profile) { return !IsEncoder(profile); }))
      .Required()
      .TypeName("MODEL");
  command
      ->AddText("--tokenizer", &options->tokenizer,
                "the tokenizer.json of the family's checkpoint")
      .Required()
      .TypeName("FILE");
}

}  // namespace ballast
