#ifndef BALLAST_SERVER_COMMAND_DRAW_PASSAGE_H_
#define BALLAST_SERVER_COMMAND_DRAW_PASSAGE_H_

#include <string>
#include <vector>

#include "server/command/draw/picture.h"
#include "server/command/draw/random.h"

namespace ballast {

// A text to ask questions about, in several scripts.
struct Passage {
  std::string text;                 // UTF-8
  std::vector<Question> questions;  // three
};

// Draws a passage. The text's length is lognormal, 60 to about 4000 bytes.
Passage MakePassage(Random* random);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_PASSAGE_H_
