#ifndef BALLAST_SERVER_COMMAND_DRAW_DRAW_SCENE_H_
#define BALLAST_SERVER_COMMAND_DRAW_DRAW_SCENE_H_

#include "server/command/draw/prose.h"
#include "server/command/draw/random.h"

namespace ballast {

// Draws a photograph of a room with coloured shapes and their names, on the
// wall and on the floor: 320..2048 pixels wide, in the aspect ratios of
// photographs. No two shapes share a colour or a name.
Picture DrawScene(Random* random);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_DRAW_SCENE_H_
