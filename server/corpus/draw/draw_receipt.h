#ifndef BALLAST_SERVER_CORPUS_DRAW_DRAW_RECEIPT_H_
#define BALLAST_SERVER_CORPUS_DRAW_DRAW_RECEIPT_H_

#include "server/corpus/draw/picture.h"
#include "server/corpus/draw/random.h"

namespace ballast {

// A scanned receipt: a tall page of 600..2400 pixels, its height lognormal,
// with a logo, the lines of a Receipt that fill it, and a bar code.
Picture DrawReceipt(Random* random);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_DRAW_DRAW_RECEIPT_H_
