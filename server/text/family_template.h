#ifndef BALLAST_SERVER_TEXT_FAMILY_TEMPLATE_H_
#define BALLAST_SERVER_TEXT_FAMILY_TEMPLATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/text/conversation.h"

namespace ballast {

// The chat template of an image family's released checkpoints: how it renders a
// conversation whose messages are parts, each an image or a text. Special
// tokens are spelled out; a message's image becomes its family's text
// (server/image_plan/image_text.h).
struct FamilyTemplate {
  // A turn of one role is written as prefix, parts, end, suffix. The parts and
  // `end` of the assistant are supervised.
  struct Turn {
    absl::string_view prefix;
    absl::string_view end;
    absl::string_view suffix;
  };

  absl::string_view begin;  // before the first turn
  Turn system;
  Turn user;
  Turn assistant;
  // Before each image of a message. `{number}` stands for its place among the
  // images of the conversation, from 1.
  absl::string_view image_before;
  absl::string_view image_after;  // after each image of a message
  absl::string_view text_before;  // before each text of a message
  absl::string_view text_after;   // after each text of a message
  // After the prefix of a message that does not begin with an image.
  absl::string_view text_first;
  // Between the images and texts of a message.
  absl::string_view part_seam;
  // After the prefix of the assistant's turns behind the last question, which
  // is a turn of the user that is not a `<tool_response>`. Never supervised.
  absl::string_view answer_first;
  // After the prefix of the assistant's turns that say anything. Never
  // supervised.
  absl::string_view answer_before;
  // The beginning of the user's prefix by which a model ends its answer, where
  // `assistant.end` is empty: supervised behind a turn of the assistant.
  absl::string_view answer_stop;
  bool images_first = false;  // a message's images stand before its texts
  // A message's only image stands before its text, on a line of its own. If it
  // stood elsewhere, the text loses white space at both ends.
  bool only_image_first = false;
  bool trim = false;          // each text loses white space at both ends
  bool trim_message = false;  // likewise, of a whole message
  bool trim_answer = false;   // likewise, of a whole message of the assistant
  bool trim_system = false;   // likewise, of a system turn at the start alone
  // A system turn at the start is written within the first user turn, after its
  // prefix and followed by a blank line.
  bool system_in_user = false;

  // What is refused, since the template does not render it or since nobody
  // knows for certain how: each a bad sample.

  bool allows_system = true;
  bool system_first = false;  // a system turn later, or with an image
  // A conversation without a question. Implies system_first.
  bool needs_question = false;
  // A text of the assistant with one of these, unless it is empty: the template
  // moves or drops the thoughts that they surround.
  absl::string_view thought_begin;
  absl::string_view thought_end;
  bool answers_have_no_images = false;
  bool answers_stand_apart = false;  // an answer right behind an answer
  // Other orders than user and assistant in turn, the user first.
  bool alternates = false;
  bool one_answer = false;  // more than a question and its answer

  const Turn& turn(Role role) const {
    if (role == Role::kSystem) return system;
    return role == Role::kAssistant ? assistant : user;
  }
};

// The template of the family of this name (docs/families.md says of which
// checkpoints). Errors: NOT_FOUND for a family whose template is not covered,
// with those that are.
absl::StatusOr<FamilyTemplate> FindFamilyTemplate(absl::string_view family);

// Families with a template, in alphabetical order.
std::vector<std::string> FamilyTemplateNames();

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_FAMILY_TEMPLATE_H_
