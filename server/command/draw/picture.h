#ifndef BALLAST_SERVER_COMMAND_DRAW_PICTURE_H_
#define BALLAST_SERVER_COMMAND_DRAW_PICTURE_H_

#include <string>
#include <vector>

#include "server/command/draw/canvas.h"

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

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_PICTURE_H_
