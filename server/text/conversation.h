#ifndef BALLAST_SERVER_TEXT_CONVERSATION_H_
#define BALLAST_SERVER_TEXT_CONVERSATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/sample/medium_kind.h"

namespace ballast {

// Marks the place of an image in a text.
inline constexpr absl::string_view kImageMark =
    WordsOf(MediumKind::kImage).mark;
inline constexpr absl::string_view kVideoMark =
    WordsOf(MediumKind::kVideo).mark;
inline constexpr absl::string_view kAudioMark =
    WordsOf(MediumKind::kAudio).mark;

enum class Role { kSystem, kUser, kAssistant };

// "system", "user" or "assistant", as chat templates print it.
absl::string_view RoleName(Role role);

// One message of a conversation.
struct Turn {
  Role role = Role::kUser;
  std::string text;  // UTF-8, including image marks
  // Of an assistant's: how much its tokens count, from 0, not learnt, to 1.
  float weight = 1;
  uint32_t number = 0;    // in the conversation, from 1; 0: not of it
  uint32_t audios = 0;    // parts of type audio, whose marks `text` has
  bool of_parts = false;  // `text` is a list of parts, joined
};

// Parses a conversation: an object with a list of turns, in one of two forms.
//
//   LLaVA/ShareGPT   {"conversations": [{"from": "human", "value": "Hi"}, …]}
//   OpenAI           {"messages": [{"role": "user", "content": "Hi"}, …]}
//
// The list may also be `conversation`, or its JSON as a text. Other keys are
// ignored, but for those that make it another text than it says: `system` and
// `tools` next to the turns, and of an assistant's turn `tool_calls`,
// `function_call` and `reasoning_content`. Such a conversation is invalid here,
// and so are turns of tools: the status is of the kind kForOwnTemplate, since a
// checkpoint's own template may write it.
//
// An assistant's turn of `weight` 0, or of `loss` or `train` 0 or false, has
// weight 0, else `weight`, from 0 to 1.
//
// `from` or `role` is human or user, gpt or assistant, system or developer.
// `content` may be a list of parts: {"type": "text", "text": "Hi"}, or of type
// image, image_url, video, video_url or audio, whose path (read by
// server/data) is ignored here. Parts are concatenated; an image, video or
// audio part becomes its mark. Turns may come in any order. Errors:
// INVALID_ARGUMENT (not JSON, no turns, an invalid turn), naming the turn,
// counted from 1.
absl::StatusOr<std::vector<Turn>> ParseConversation(absl::string_view json);

// INVALID_ARGUMENT, of the kind kForOwnTemplate, if a conversation has keys
// that ParseConversation ignores: `functions` or `documents` next to the turns,
// `thinking` or `reasoning` of a turn. New indexes lack such samples; indexes
// of earlier releases may have them.
absl::Status CheckAllIsRead(absl::string_view json);

// Splits `text` at its image marks: n marks give n+1 pieces, any of which may
// be empty. The pieces point into `text`.
std::vector<absl::string_view> SplitAtImageMarks(absl::string_view text);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_CONVERSATION_H_
