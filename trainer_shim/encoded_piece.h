#ifndef BALLAST_TRAINER_SHIM_ENCODED_PIECE_H_
#define BALLAST_TRAINER_SHIM_ENCODED_PIECE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/image/plane_form.h"

namespace ballast {

// What to do about an image that cannot be decoded; follows a message.
inline constexpr char kCheckAdvice[] =
    "; wanted a file that `ballast-server index --check` found clean: check "
    "the "
    "index, and leave out model.device_unchecked";

// An image of a batch that travelled encoded.
struct EncodedPiece {
  uint32_t image = 0;      // index into the batch's images
  uint64_t position = 0;   // of its sample, for messages
  absl::string_view file;  // the bytes as they arrived
  // The sample is a placeholder: the image is grey, whatever `file` holds.
  bool grey = false;
};

// The form of the image's planes, from its file's header. Errors: DATA_LOSS
// (not a file that travels encoded), naming the position.
absl::StatusOr<PlaneForm> FormOf(const EncodedPiece& piece);

// Turns the failure to decode the image into DATA_LOSS that names the position
// and says what to do; other errors than INVALID_ARGUMENT keep their code.
absl::Status NamePosition(const EncodedPiece& piece,
                          const absl::Status& status);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_ENCODED_PIECE_H_
