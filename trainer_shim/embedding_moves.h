#ifndef BALLAST_TRAINER_SHIM_EMBEDDING_MOVES_H_
#define BALLAST_TRAINER_SHIM_EMBEDDING_MOVES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/communicator.h"

namespace ballast {

// The embeddings of one micro-batch on one rank, in host or device memory: two
// dense arrays of rows of `row_bytes` bytes. The caller owns both.
struct EmbeddingRows {
  uint64_t row_bytes = 0;  // at least 1, the same on all ranks
  // One row for each token of the encoder's batch, in its order; the rows of
  // the dummy image or clip, one or more, are the last.
  uint8_t* tower = nullptr;
  uint64_t tower_rows = 0;
  // One row for each placeholder of the encoder's in the paired language batch,
  // in its order. Overlaps `tower` nowhere.
  uint8_t* text = nullptr;
  uint64_t text_rows = 0;
};

enum class EmbeddingDirection {
  kToText,   // embeddings: reads `tower`, writes all of `text`
  kToTower,  // gradients: reads `text`, writes all of `tower`
};

// The work of an exchange of embeddings on one rank: an all-to-all, copies of
// rows that stay, and the rows of the dummy. A plain value.
struct EmbeddingMoves {
  struct Copy {
    const uint8_t* from = nullptr;
    absl::Span<uint8_t> to;
  };
  std::vector<SendSlice> sends;
  std::vector<ReceiveSlice> receives;
  std::vector<Copy> copies;
  absl::Span<uint8_t> zero;  // the gradient of the dummy's rows
};

// Lists the moves for an encoder's batch by its plan. Each run of the plan is a
// slice, so rows arrive in their final places. With placement `paired` all rows
// stay. Pure; replaces `moves` and reuses its memory; O(samples). Errors:
// INVALID_ARGUMENT (a batch of language; numbers of rows other than the plan's;
// rows of no bytes; memory that is missing or overlaps).
absl::Status ListEmbeddingMoves(const BatchInfo& batch,
                                const EmbeddingRows& rows,
                                EmbeddingDirection direction,
                                EmbeddingMoves* moves);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_EMBEDDING_MOVES_H_
