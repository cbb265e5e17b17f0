#include "trainer_shim/host/encoded_unpacker.h"

#include <algorithm>
#include <cstddef>

#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "proto/image/plane_form.h"

namespace ballast {

absl::Status EncodedUnpacker::Unpack(absl::Span<const EncodedPiece> pieces,
                                     absl::Span<ImagePiece> images) {
  uint64_t bytes = 0;
  for (const EncodedPiece& piece : pieces) {
    bytes += PixelBytes(images[piece.image].record);
  }
  if (pixels_.size() < bytes) pixels_.resize(bytes);
  uint64_t offset = 0;
  for (const EncodedPiece& piece : pieces) {
    ImagePiece& image = images[piece.image];
    const absl::Span<uint8_t> out =
        absl::MakeSpan(pixels_).subspan(offset, PixelBytes(image.record));
    if (piece.grey) {
      std::fill(out.begin(), out.end(), kGreyPixel);
    } else {
      BALLAST_ASSIGN_OR_RETURN(const PlaneForm form, FormOf(piece));
      BALLAST_RETURN_IF_ERROR(NamePosition(
          piece, decoder_.DecodeResized(piece.file, form, image.record.width,
                                        image.record.height, out)));
    }
    image.pixels = out.data();
    offset += out.size();
  }
  return absl::OkStatus();
}

}  // namespace ballast
