#ifndef BALLAST_SERVER_COMMAND_DRAW_DRAW_RECEIPT_H_
#define BALLAST_SERVER_COMMAND_DRAW_DRAW_RECEIPT_H_

#include "server/command/draw/picture.h"
#include "server/command/draw/random.h"

namespace ballast {

// Draws a photographed receipt, creased and a little askew: a tall page of
// 600..2400 pixels, its height lognormal, with a logo, the lines of a Receipt
// that fill it, and a bar code.
Picture DrawReceipt(Random* random);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_DRAW_RECEIPT_H_
