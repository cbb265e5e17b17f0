#include "trainer_shim/embedding_moves.h"

#include <functional>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"

namespace ballast {
namespace {

// `more`: at least one row more than wanted.
absl::Status CheckCount(const char* what, uint64_t found, uint64_t wanted,
                        bool more, const char* of) {
  if (more ? found > wanted : found == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("embeddings: found ", found, " rows of the ", what,
                   ", wanted ", more ? "more than " : "", wanted, ", ", of));
}

// The number of the tower's rows, without those of a dummy image.
uint64_t GetPlannedRows(const EmbeddingPlan& plan, const EmbeddingRows& rows) {
  if (!plan.planned()) return rows.text_rows;
  return std::accumulate(plan.send.begin(), plan.send.end(), uint64_t{0});
}

absl::Status CheckMemory(const EmbeddingRows& rows) {
  const uint64_t most =
      std::numeric_limits<int64_t>::max() / (rows.row_bytes + 1);
  if (rows.row_bytes == 0 || rows.tower_rows > most || rows.text_rows > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        "embeddings: found ", rows.tower_rows, " and ", rows.text_rows,
        " rows of ", rows.row_bytes, " bytes; wanted rows that fit in memory"));
  }
  if ((rows.tower == nullptr && rows.tower_rows > 0) ||
      (rows.text == nullptr && rows.text_rows > 0)) {
    return absl::InvalidArgumentError(
        "embeddings: the memory of the tower's or the text's rows is null");
  }
  const std::less<const uint8_t*> before;
  const bool apart =
      !before(rows.text, rows.tower + rows.row_bytes * rows.tower_rows) ||
      !before(rows.tower, rows.text + rows.row_bytes * rows.text_rows);
  if (apart || rows.tower_rows == 0 || rows.text_rows == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "embeddings: the rows of the tower and of the text overlap; wanted two "
      "arrays");
}

absl::Status CheckRows(const BatchInfo& batch, const EmbeddingRows& rows) {
  if (!IsEncoder(batch.role.module())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "embeddings: the batch is of ", ModuleName(batch.role.module()),
        "; wanted the encoder's batch of the micro-batch, which knows of the "
        "dummy"));
  }
  const EmbeddingPlan& plan = FindPlan(batch.embeddings, batch.role.module());
  BALLAST_RETURN_IF_ERROR(CheckCount(
      "tower", rows.tower_rows, GetPlannedRows(plan, rows), batch.dummy_image,
      batch.dummy_image
          ? "one for each token of this rank's media and the dummy's"
          : "one for each token of this rank's media"));
  if (plan.planned()) {
    BALLAST_RETURN_IF_ERROR(CheckCount(
        "text", rows.text_rows, plan.order.size(), /*more=*/false,
        "one for each placeholder of the encoder's in this rank's text"));
  }
  return CheckMemory(rows);
}

}  // namespace

absl::Status ListEmbeddingMoves(const BatchInfo& batch,
                                const EmbeddingRows& rows,
                                EmbeddingDirection direction,
                                EmbeddingMoves* moves) {
  moves->sends.clear();
  moves->receives.clear();
  moves->copies.clear();
  moves->zero = {};
  BALLAST_RETURN_IF_ERROR(CheckRows(batch, rows));
  const bool to_text = direction == EmbeddingDirection::kToText;
  const auto bytes = [&rows](uint8_t* array, uint64_t first, uint64_t count) {
    return absl::Span<uint8_t>(array + first * rows.row_bytes,
                               count * rows.row_bytes);
  };
  const auto copy = [&](uint64_t tower, uint64_t text, uint64_t count) {
    const absl::Span<uint8_t> there = bytes(rows.tower, tower, count);
    const absl::Span<uint8_t> here = bytes(rows.text, text, count);
    moves->copies.push_back(to_text ? EmbeddingMoves::Copy{there.data(), here}
                                    : EmbeddingMoves::Copy{here.data(), there});
  };
  const EmbeddingPlan& plan = FindPlan(batch.embeddings, batch.role.module());
  if (batch.dummy_image && !to_text) {
    const uint64_t planned = GetPlannedRows(plan, rows);
    moves->zero = bytes(rows.tower, planned, rows.tower_rows - planned);
  }
  if (!plan.planned()) {
    if (rows.text_rows > 0) copy(0, 0, rows.text_rows);
    return absl::OkStatus();
  }
  const uint32_t rank = batch.role.dp_rank();
  const auto move = [&](uint8_t* array, const EmbeddingPlan::Run& run,
                        bool send) {
    const absl::Span<uint8_t> slice = bytes(array, run.first, run.rows);
    if (send) {
      moves->sends.push_back({run.peer, slice});
    } else {
      moves->receives.push_back({run.peer, slice});
    }
  };
  for (const EmbeddingPlan::Run& run : plan.sent_runs) {
    if (run.peer != rank) move(rows.tower, run, to_text);
  }
  // Runs that stay are in the same order in both lists.
  auto sent = plan.sent_runs.begin();
  for (const EmbeddingPlan::Run& run : plan.received_runs) {
    if (run.peer != rank) {
      move(rows.text, run, !to_text);
      continue;
    }
    while (sent->peer != rank) ++sent;
    copy(sent->first, run.first, run.rows);
    ++sent;
  }
  return absl::OkStatus();
}

}  // namespace ballast
