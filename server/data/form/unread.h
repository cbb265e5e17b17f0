#ifndef BALLAST_SERVER_DATA_FORM_UNREAD_H_
#define BALLAST_SERVER_DATA_FORM_UNREAD_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace simdjson::dom {
class object;
}

namespace ballast {

// Every key of a record is accounted for. One that no form reads is harmless
// only if it cannot be media, values of marks or a verdict on the answer, by
// its name and its value. Pure. `read`: whether the form reads or ignores the
// key, or only keys within it ("within").
enum class KeyUse { kUnread, kWithin, kRead };
using GetKeyUse = std::function<KeyUse(const std::string& path)>;

// The kind of a record with a key that the form does not read.
inline constexpr char kFormKeyUnread[] = "a key that the form does not read";

// Errors: a data fault that names the key, what it was taken for, and the two
// lines that settle it.
struct MediaOfSample {
  // Names and addresses of media are those of its own, if it has some…
  bool any = false;
  // …unless these are the paths of all that it has, and the name is another.
  std::vector<absl::string_view> paths = {};
  bool any_video = false;  // or audio
  // The text of a form's question; its options may stand in it.
  std::optional<std::string> question = {};
};
absl::Status CheckEveryKey(const simdjson::dom::object& root,
                           const MediaOfSample& media, const GetKeyUse& use);

// Errors: a data fault if `text` is an object of JSON with turns or answers,
// which would be learnt as it stands.
absl::Status CheckNoRecordWithin(absl::string_view key, absl::string_view text);

// Whether a text is a medium in base64, by its first letters, or a `data:`
// address of one.
bool LooksLikeMedia(absl::string_view text);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_FORM_UNREAD_H_
