// ballast_shim_exchange_embeddings and ballast_shim_return_gradients.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "trainer_shim/c_api/c_api.h"
#include "trainer_shim/c_api/call.h"
#include "trainer_shim/c_api/handles.h"
#include "trainer_shim/embedding_moves.h"

namespace ballast {
namespace {

constexpr uint64_t kMaxWidth = uint64_t{1} << 32;

absl::StatusOr<uint64_t> ElementBytes(int32_t dtype) {
  switch (dtype) {
    case BALLAST_BFLOAT16:
    case BALLAST_FLOAT16:
      return 2;
    case BALLAST_FLOAT32:
      return 4;
    case BALLAST_FLOAT64:
      return 8;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "rows.dtype is ", dtype,
          ", wanted BALLAST_FLOAT32 (4), BALLAST_BFLOAT16 (5), BALLAST_FLOAT16 "
          "(7) or BALLAST_FLOAT64 (8)"));
  }
}

absl::StatusOr<EmbeddingRows> GetRows(const ballast_embedding_rows* given) {
  BALLAST_ASSIGN_OR_RETURN(const ballast_embedding_rows known,
                           ReadStruct(given, "rows"));
  EmbeddingRows rows;
  BALLAST_ASSIGN_OR_RETURN(const uint64_t element, ElementBytes(known.dtype));
  if (known.width == 0 || known.width > kMaxWidth) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows.width is ", known.width, ", wanted 1 to ",
                     kMaxWidth, " elements"));
  }
  rows.row_bytes = element * known.width;
  rows.tower = static_cast<uint8_t*>(known.tower);
  rows.tower_rows = known.tower_rows;
  rows.text = static_cast<uint8_t*>(known.text);
  rows.text_rows = known.text_rows;
  return rows;
}

absl::Status Exchange(ballast_shim* shim, const ballast_batch* batch,
                      const ballast_embedding_rows* given,
                      EmbeddingDirection direction, void* stream) {
  BALLAST_RETURN_IF_ERROR(CheckStream(shim, stream));
  BALLAST_RETURN_IF_ERROR(CheckGiven(batch, "batch"));
  BALLAST_ASSIGN_OR_RETURN(const EmbeddingRows rows, GetRows(given));
  return shim->shim->ExchangeEmbeddings(GetEntry(batch)->info(), rows,
                                        direction, stream);
}

}  // namespace
}  // namespace ballast

int ballast_shim_exchange_embeddings(ballast_shim* shim,
                                     const ballast_batch* batch,
                                     const ballast_embedding_rows* rows,
                                     void* stream) {
  return ballast::Call([=] {
    return ballast::Exchange(shim, batch, rows,
                             ballast::EmbeddingDirection::kToText, stream);
  });
}

int ballast_shim_return_gradients(ballast_shim* shim,
                                  const ballast_batch* batch,
                                  const ballast_embedding_rows* rows,
                                  void* stream) {
  return ballast::Call([=] {
    return ballast::Exchange(shim, batch, rows,
                             ballast::EmbeddingDirection::kToTower, stream);
  });
}
