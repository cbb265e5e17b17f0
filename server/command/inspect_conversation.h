#ifndef BALLAST_SERVER_COMMAND_INSPECT_CONVERSATION_H_
#define BALLAST_SERVER_COMMAND_INSPECT_CONVERSATION_H_

#include <istream>
#include <ostream>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/command_line.h"
#include "server/text/tokenizer.h"

namespace ballast {

// Adds `inspect conversation`, which prints the token ids of conversations with
// images, as the processor of a model family makes them.
void AddInspectConversation(CommandLine* line, Command* inspect);

// Runs the command: for each line of `in`, a conversation (ParseConversation)
// with `images`, [[height, width], ...], writes {"ids", "labels"}. Errors:
// NOT_FOUND for a family without a chat template; as TransformJsonLines
// (json_lines.h) and TokenizeFamilyConversation.
absl::Status InspectConversations(absl::string_view family,
                                  const Tokenizer& tokenizer, std::istream& in,
                                  std::ostream& out);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_CONVERSATION_H_
