#include "trainer_shim/jpeg_engine.h"

#include "absl/strings/str_cat.h"
#include "proto/image/engine_jpeg.h"

namespace ballast {

absl::StatusOr<PlaneForm> GetForm(const EncodedPiece& piece) {
  const auto judged = JudgeForEngines(piece.file);
  if (!judged.ok()) {
    return NamePosition(piece,
                        absl::InvalidArgumentError(judged.status().message()));
  }
  if (judged->refusal != EngineRefusal::kNone) {
    return NamePosition(
        piece, absl::InvalidArgumentError(EngineRefusalText(judged->refusal)));
  }
  return judged->form;
}

absl::Status NamePosition(const EncodedPiece& piece,
                          const absl::Status& status) {
  if (status.ok()) return status;
  const bool damaged = absl::IsInvalidArgument(status);
  return absl::Status(
      damaged ? absl::StatusCode::kDataLoss : status.code(),
      absl::StrCat("image ", piece.image, " of the batch, at position ",
                   piece.position, ", travelled encoded (", piece.file.size(),
                   " bytes) and cannot be decoded: ", status.message(),
                   damaged ? kCheckAdvice : ""));
}

}  // namespace ballast
