#ifndef BALLAST_SERVER_COMMAND_DRAW_PROSE_H_
#define BALLAST_SERVER_COMMAND_DRAW_PROSE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/command/draw/canvas.h"
#include "server/command/draw/random.h"

namespace ballast {

struct Question {
  std::string question;
  std::string answer;
};

// A drawn picture and questions about it. The answers come from the values that
// were drawn, so they are right.
struct Picture {
  Canvas canvas;
  // At least one; the most natural first.
  std::vector<Question> questions;
};

// A made-up statement and a question about it.
struct Statement {
  std::string sentence;  // "The old baker counted seven apples in Porto."
  Question question;     // "How many apples did the old baker count?"
};

// Generates a statement: in ASCII, which the font can draw, unless `foreign`;
// then places may be spelt in any script, as UTF-8.
Statement MakeStatement(Random* random, bool foreign);

// Generates a title: two or three capitalised words in ASCII.
std::string MakeTitle(Random* random);

// Breaks `text` at spaces into lines of at most `columns` bytes; a longer word
// gets a separate line. `columns` is at least 1.
std::vector<std::string> WrapText(absl::string_view text, int columns);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_PROSE_H_
