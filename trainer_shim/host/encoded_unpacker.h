#ifndef BALLAST_TRAINER_SHIM_HOST_ENCODED_UNPACKER_H_
#define BALLAST_TRAINER_SHIM_HOST_ENCODED_UNPACKER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/image/resample_weights.h"
#include "trainer_shim/encoded_piece.h"
#include "trainer_shim/host/host_image_decoder.h"
#include "trainer_shim/host/pack_cpu.h"
#include "trainer_shim/jpeg_engine.h"

namespace ballast {

// Makes the pixels of a batch's encoded images on the CPU, one after the other,
// into memory that grows to the pixels of the largest batch so far.
// Thread-compatible.
class EncodedUnpacker {
 public:
  // `resampling` of all images, as ResamplePlanner's.
  explicit EncodedUnpacker(const Resampling& resampling)
      : decoder_(resampling) {}

  // Points images[piece.image].pixels of each of `pieces` to the image's
  // pixels, valid until the next call. Errors: DATA_LOSS (a file that cannot be
  // decoded), RESOURCE_EXHAUSTED, both naming the position.
  absl::Status Unpack(absl::Span<const EncodedPiece> pieces,
                      absl::Span<ImagePiece> images);

  JpegEngineCounts counts() const { return decoder_.counts(); }

 private:
  HostImageDecoder decoder_;
  std::vector<uint8_t> pixels_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_ENCODED_UNPACKER_H_
