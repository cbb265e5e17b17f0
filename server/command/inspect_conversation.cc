#include "server/command/inspect_conversation.h"

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/status_macros.h"
#include "server/command/json_lines.h"
#include "server/image_plan/image_family.h"
#include "server/image_plan/image_planner.h"
#include "server/text/conversation.h"
#include "server/text/family_conversation.h"
#include "server/text/family_template.h"

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
  BALLAST_ASSIGN_OR_RETURN(const FamilyTemplate chat,
                           FindFamilyTemplate(family));
  BALLAST_ASSIGN_OR_RETURN(const ImagePlanner planner,
                           ImagePlanner::Create(*FindImageFamily(family)));
  return TransformJsonLines(
      in, out,
      [&](const nlohmann::json& object)
          -> absl::StatusOr<nlohmann::ordered_json> {
        BALLAST_ASSIGN_OR_RETURN(const std::vector<TileShape> sizes,
                                 SizesOf(object));
        BALLAST_ASSIGN_OR_RETURN(const std::vector<Turn> turns,
                                 ParseConversation(object.dump()));
        BALLAST_ASSIGN_OR_RETURN(
            const TextSample sample,
            TokenizeFamilyConversation(turns, sizes, planner, chat, tokenizer));
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
                "a family of docs/families.md with a chat template")
      .OneOf(ImageFamilyNames())
      .Required()
      .TypeName("MODEL");
  command
      ->AddText("--tokenizer", &options->tokenizer,
                "the tokenizer.json of the family's checkpoint")
      .Required()
      .TypeName("FILE");
}

}  // namespace ballast
