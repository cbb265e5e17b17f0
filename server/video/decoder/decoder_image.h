#ifndef BALLAST_SERVER_VIDEO_DECODER_DECODER_IMAGE_H_
#define BALLAST_SERVER_VIDEO_DECODER_DECODER_IMAGE_H_

#include <cstddef>

namespace ballast {

// The program decoder_main.cc, embedded in the server.
extern const unsigned char kDecoderImage[];
extern const size_t kDecoderImageBytes;

}  // namespace ballast

#endif  // BALLAST_SERVER_VIDEO_DECODER_DECODER_IMAGE_H_
