#ifndef BALLAST_TRAINER_SHIM_JPEG_ENGINE_H_
#define BALLAST_TRAINER_SHIM_JPEG_ENGINE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/image/engine_jpeg.h"

namespace ballast {

// A JPEG to decode and the memory for its planes.
struct EncodedJpeg {
  absl::string_view bytes;  // the whole file, in host memory
  PlaneForm form;           // as JudgeForEngines returns it
  // LayOutPlanes(form).bytes bytes at a multiple of kPlaneAlignment, in the
  // engine's memory. Bytes of a row beyond its plane's width may be written.
  uint8_t* planes = nullptr;
  uint64_t position = 0;  // of its sample, for messages
};

// An engine's work so far.
struct JpegEngineCounts {
  uint64_t by_hardware = 0;  // images that JPEG engines decoded
  uint64_t by_host = 0;      // images that libjpeg decoded
  uint64_t bytes = 0;        // of all these files
  absl::Duration busy;       // spent in Decode
};

// Decodes batches of JPEGs to planes. For every file that JudgeForEngines does
// not refuse, every implementation makes the samples of libjpeg-turbo's default
// decode (integer DCT, before upsampling). Thread-compatible.
class JpegEngine {
 public:
  virtual ~JpegEngine() = default;

  // Decodes each image to its planes; blocks until all planes are complete. An
  // image that the hardware does not take is decoded on the host. Damage that
  // libjpeg repairs is not an error. Errors: INVALID_ARGUMENT (damaged beyond
  // repair, or not of `form`; names the position), others as the implementation
  // says. After an error the content of all planes is unspecified.
  virtual absl::Status Decode(absl::Span<const EncodedJpeg> images) = 0;

  virtual JpegEngineCounts counts() const = 0;
};

// Advice about an image that cannot be decoded; the end of a message.
inline constexpr char kCheckAdvice[] =
    "; wanted a file that `ballast-server index --check` found clean: check "
    "the "
    "index, and leave out model.device_unchecked";

// An image of a batch that passed through encoded.
struct EncodedPiece {
  uint32_t image = 0;      // index into the batch's images
  uint64_t position = 0;   // of its sample, for messages
  absl::string_view file;  // the bytes as they arrived
  // The sample is a placeholder: the image is grey, whatever `file` holds.
  bool grey = false;
};

// The form of the image's planes, from its file's header. Errors: DATA_LOSS
// (not a file that may pass through encoded), naming the position.
absl::StatusOr<PlaneForm> GetForm(const EncodedPiece& piece);

// Maps decode errors: INVALID_ARGUMENT becomes DATA_LOSS that names the
// position and says what to do; other errors keep their code.
absl::Status NamePosition(const EncodedPiece& piece,
                          const absl::Status& status);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_JPEG_ENGINE_H_
