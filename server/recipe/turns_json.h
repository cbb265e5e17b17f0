#ifndef BALLAST_SERVER_RECIPE_TURNS_JSON_H_
#define BALLAST_SERVER_RECIPE_TURNS_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ballast {

// Appends `text` as a JSON string. Bytes that are not UTF-8 stay as they are.
void AppendJsonText(absl::string_view text, std::string* json);

// Writes turns as the JSON of a conversation, {"messages": [...]}. Bytes that
// are not UTF-8 stay as they are; server/text handles them. Texts must live
// until Finish. Thread-compatible.
class TurnsJson {
 public:
  // A turn whose content is a text.
  void AddTurn(absl::string_view role, absl::string_view text);
  // A turn of parts, which follow.
  void BeginTurn(absl::string_view role);
  // A turn without content, of calls of tools alone.
  void AddBareTurn(absl::string_view role);
  void AddText(absl::string_view text);
  // A further key of a turn or a part.
  struct Setting {
    absl::string_view key;
    double value = 0;  // finite
  };
  // Adds keys to the last turn, such as `weight`.
  void AddSettings(absl::Span<const Setting> settings);
  // Adds a key with its JSON to the last turn, or next to the turns.
  void AddKey(absl::string_view key, absl::string_view json);
  void AddBeside(absl::string_view key, absl::string_view json);
  // A part whose key `type` is a text, such as a thought.
  void AddTextPart(absl::string_view type, absl::string_view text);
  // A part without text: `image`, `image_url`, `video`, `video_url`, or one
  // that is refused later. `settings` are its other keys, such as a clip.
  void AddPart(absl::string_view type, absl::Span<const Setting> settings = {});

  // Whether Finish will refuse the turns because of their length.
  bool TooLong() const;
  bool IsEmpty() const { return turns_.empty(); }

  // The conversation of a sample of `images` images and `videos` videos. If no
  // turn has an image part or an `<image>` mark, marks go to the beginning
  // of the first turn of user or human, or else of the first turn; then,
  // likewise, marks of videos, and of audio. In a sample without images
  // `<image>` marks a video. Where a user asks, marks in the text of an
  // assistant do not count: an answer may spell them out. Errors:
  // INVALID_ARGUMENT (no turns; over kMaxTextBytes).
  absl::StatusOr<std::string> Finish(size_t images, size_t videos = 0,
                                     size_t audios = 0) &&;

 private:
  struct Part {
    absl::string_view type;  // empty: a text
    absl::string_view text;
    std::string settings = "";  // ",KEY:VALUE" each
  };
  struct Turn {
    absl::string_view role;
    bool is_parts = false;
    bool is_bare = false;
    std::vector<Part> parts = {};  // one text, unless is_parts
    std::string settings = "";
  };

  // The marks of media in the turns of one role.
  struct Mentioned {
    bool image = false;
    bool video = false;
    bool audio = false;
  };

  std::vector<Turn> turns_;
  std::string beside_;
  uint64_t bytes_ = 0;
  Mentioned mentioned_;  // also parts of answers
  Mentioned spelt_out_;  // in the texts of answers
};

}  // namespace ballast

#endif  // BALLAST_SERVER_RECIPE_TURNS_JSON_H_
