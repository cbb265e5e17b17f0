#ifndef BALLAST_SERVER_COMMAND_DRAW_PHOTO_H_
#define BALLAST_SERVER_COMMAND_DRAW_PHOTO_H_

#include "server/command/draw/canvas.h"
#include "server/command/draw/random.h"

// Adds to a drawing what a camera or a scanner adds. Equal calls give equal
// pixels on every processor; blurs and warps run on the calling thread.
namespace ballast {

// Lights the picture unevenly: each place keeps from `darkest` (0..255) to all
// of its brightness, smoothly over the picture.
void LightUnevenly(int darkest, Random* look, Canvas* canvas);

// Darkens a form by `darkness` (0..255), with edges that fade over about `blur`
// pixels.
void CastShadow(Form form, const Box& box, int darkness, int blur,
                Canvas* canvas);

// Brightens each pixel row of a form by amounts from `top` to `bottom`, which
// may be negative; 255 is the brightness of white.
void LightForm(Form form, const Box& box, int top, int bottom, Canvas* canvas);

// Blurs over 2*radius + 1 pixels with Gaussian weights.
void Blur(int radius, Canvas* canvas);

// New places of a picture's corners, in 1/1000 of its sides towards its centre;
// less than 0 is out of the picture.
struct Corners {
  int top_left[2];
  int top_right[2];
  int bottom_right[2];
  int bottom_left[2];
};

// Draws each of the eight numbers from [low, high].
Corners DrawCorners(int low, int high, Random* look);

// Views the picture from an angle: moves its corners, straight lines stay
// straight. Then bends it sidewards by up to `bend` pixels half way down.
// `outside` is the colour beyond the picture.
void Warp(const Corners& corners, int bend, Rgb outside, Canvas* canvas);

// The same without bend, where the picture's edges continue beyond it.
void Warp(const Corners& corners, Canvas* canvas);

// Adds a random grey level from -amplitude..amplitude-1 to each pixel, like the
// grain of a film. `amplitude` is 1, 2, 4 or 8.
void AddGrain(int amplitude, Random* random, Canvas* canvas);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_PHOTO_H_
