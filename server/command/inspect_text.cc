#include "server/command/inspect_text.h"

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/status_macros.h"
#include "server/command/json_lines.h"

namespace ballast {

absl::Status InspectText(const Tokenizer& tokenizer, std::istream& in,
                         std::ostream& out) {
  return TransformJsonLines(in, out,
                            [&](const nlohmann::json& object)
                                -> absl::StatusOr<nlohmann::ordered_json> {
                              const auto text = object.find("text");
                              if (text == object.end() || !text->is_string()) {
                                return absl::InvalidArgumentError(
                                    "`text` is missing or not a string");
                              }
                              std::vector<int32_t> ids;
                              BALLAST_RETURN_IF_ERROR(tokenizer.Encode(
                                  text->get_ref<const std::string&>(), &ids));
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

}  // namespace ballast
