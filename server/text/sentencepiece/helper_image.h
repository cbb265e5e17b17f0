#ifndef BALLAST_SERVER_TEXT_SENTENCEPIECE_HELPER_IMAGE_H_
#define BALLAST_SERVER_TEXT_SENTENCEPIECE_HELPER_IMAGE_H_

#include <cstddef>

namespace ballast {

// The program helper.cc, embedded in the server: both always come from one
// build, and there is one file to install.
extern const unsigned char kHelperImage[];
extern const size_t kHelperImageBytes;

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_SENTENCEPIECE_HELPER_IMAGE_H_
