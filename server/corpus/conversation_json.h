#ifndef BALLAST_SERVER_CORPUS_CONVERSATION_JSON_H_
#define BALLAST_SERVER_CORPUS_CONVERSATION_JSON_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// What the corpus must know of a conversation's JSON; the rest of it is the
// business of server/text. Both return INVALID_ARGUMENT with the reason where
// `json` is not an object, or has a video: a key `video` that is not null, or
// the mark `<video>` in a turn of `conversations`.
absl::Status CheckConversation(absl::string_view json);

// The same, and the paths of `image`: a string, a list of strings, null or
// absent. At most kMaxImages; each passes CheckDataPath.
absl::StatusOr<std::vector<std::string>> ConversationImages(
    absl::string_view json);

// INVALID_ARGUMENT where the text holds the mark `<video>`.
absl::Status CheckNoVideoMark(absl::string_view text);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_CONVERSATION_JSON_H_
