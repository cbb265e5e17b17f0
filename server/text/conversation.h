#ifndef BALLAST_SERVER_TEXT_CONVERSATION_H_
#define BALLAST_SERVER_TEXT_CONVERSATION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// What a text holds where an image stands.
inline constexpr absl::string_view kImageMark = "<image>";

enum class Role { kSystem, kUser, kAssistant };

// "system", "user", "assistant": the names that chat templates print.
absl::string_view RoleName(Role role);

// One thing said.
struct Turn {
  Role role = Role::kUser;
  std::string text;  // UTF-8, image marks still in it
};

// Reads a conversation: an object with a list of turns, in one of two forms.
//
//   LLaVA/ShareGPT   {"conversations": [{"from": "human", "value": "Hi"}, …]}
//   OpenAI           {"messages": [{"role": "user", "content": "Hi"}, …]}
//
// Other keys are ignored. `from` or `role` is human or user, gpt or assistant,
// system or developer. `content` may be a list of parts: {"type": "text",
// "text": "Hi"}, or of type image or image_url, whose path (server/corpus reads
// it) does not matter here; parts follow one another without anything between.
// An image part is written as an image mark. Turns may come in any order.
// Errors: INVALID_ARGUMENT (not JSON, no turns, a turn that is none of these),
// naming the turn, counted from 1.
absl::StatusOr<std::vector<Turn>> ParseConversation(absl::string_view json);

// The pieces of `text` between its image marks, as they are: n marks give n+1
// pieces, of which any may be empty. They point into `text`.
std::vector<absl::string_view> SplitAtImageMarks(absl::string_view text);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_CONVERSATION_H_
