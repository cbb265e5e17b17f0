#ifndef BALLAST_SERVER_COMMAND_DRAW_DRAW_PICTURE_H_
#define BALLAST_SERVER_COMMAND_DRAW_DRAW_PICTURE_H_

#include "server/command/draw/prose.h"
#include "server/command/draw/random.h"

namespace ballast {

// Draws a page of a report: a title over two columns of text, 700..1500 pixels
// wide.
Picture DrawTextPage(Random* random);

// Draws a table of numbers with a header, row names and a row of sums.
Picture DrawTable(Random* random);

// Draws a photograph of a room with coloured shapes and their names, on the
// wall and on the floor: 320..2048 pixels wide, in the aspect ratios of
// photographs. No two shapes share a colour or a name.
Picture DrawScene(Random* random);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_DRAW_PICTURE_H_
