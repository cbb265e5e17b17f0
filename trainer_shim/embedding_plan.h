#ifndef BALLAST_TRAINER_SHIM_EMBEDDING_PLAN_H_
#define BALLAST_TRAINER_SHIM_EMBEDDING_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/schedule.pb.h"

namespace ballast {

// How an encoder's embeddings of one micro-batch move from the encoder's
// owners to their language owners (balance.placement `split`), as one rank of
// both modules sees it: an all-to-all, then a permutation. Rows are tokens of
// its medium, one embedding each. Where the modules have separate ranks, an
// encoder's rank sends only, and a language rank receives only. A plain value.
//
// The rows of a rank's tower are in the order in which they are sent: an
// encoder's rank holds its samples in ascending order of place, and language
// owners ascend with it. Of a sample with images and videos, the rows of its
// images come first, whatever its text says, which an encoder's rank need not
// have. The rows of a pack that ranks share are sent once for each of them. A
// dummy's rows, the last, are not sent.
struct EmbeddingPlan {
  v1::Module encoder = v1::MODULE_UNSPECIFIED;  // whose rows move

  // Entry r: rows that this rank sends to language rank r, and receives from
  // the encoder's rank r. Empty with placement `paired`, and on ranks that send
  // only, or receive only.
  std::vector<int64_t> send;
  std::vector<int64_t> receive;
  // Entry i: the received row that belongs to the i-th placeholder of the
  // encoder's in this rank's packed text. Received rows are rank 0's, then rank
  // 1's, ….
  std::vector<int64_t> order;

  // Several ranks may share a pack of language (packing.dynamic_cp): each of
  // them receives the rows of all its samples. Entry i of `send_order`: the row
  // of the tower that is sent as the i-th. Each row is there once for each rank
  // of its pack. Empty where packs have one rank each.
  bool shared = false;
  std::vector<int64_t> send_order;

  // The same sample by sample, for an exchange that writes rows to their final
  // places (embedding_moves.h): rows `first` to `first + rows - 1` go to or
  // come from `peer`, which may be this rank. Empty if each module has its
  // own ranks, or if ranks share packs.
  struct Run {
    uint32_t peer = 0;
    int64_t first = 0;
    int64_t rows = 0;
  };
  // Rows of the tower, and placeholders of the text, in ascending order
  // without gaps. The k-th run that rank a sends to b is the k-th that b
  // receives from a, and has the same length. Runs have at least one row.
  std::vector<Run> sent_runs;
  std::vector<Run> received_runs;

  bool planned() const { return !send.empty() || !receive.empty(); }
  // The modules have separate ranks.
  bool apart() const { return send.empty() != receive.empty(); }
};

// A micro-batch's plans: one for each encoder that the rank knows of.
using EmbeddingPlans = std::vector<EmbeddingPlan>;

// The encoder's plan; an empty one if there is none. Valid as long as `plans`.
const EmbeddingPlan& FindPlan(const EmbeddingPlans& plans, v1::Module encoder);

// The name of a batch's tensor that has a part of an encoder's plan ("order",
// "send_host", "send_order", "receive_host"): "embedding_order" for vision,
// else with the encoder's name before it, such as "audio_embedding_order".
std::string PlanTensorName(v1::Module encoder, absl::string_view part);

// What a rank has of an encoder and language: both, or one of them.
struct EmbeddingRank {
  uint32_t rank = 0;
  bool encodes = true;
  bool has_text = true;
  v1::Module encoder = v1::MODULE_VISION;
};

// Plans the embeddings of one rank. Pure; replaces `plan` and reuses its
// memory; O(samples + rows). `merge`: model.merge; merge * merge patches make
// one row. `micro_batch` must have passed CheckColumns. Errors:
// INVALID_ARGUMENT (not one such encoder and language; audio without the number
// of their tokens; a rank of both whose modules differ in ranks; modules that
// lack this one; language owners that do not ascend with place).
absl::Status PlanEmbeddings(const v1::MicroBatchSchedule& micro_batch,
                            const EmbeddingRank& rank, uint32_t merge,
                            EmbeddingPlan* plan);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_EMBEDDING_PLAN_H_
