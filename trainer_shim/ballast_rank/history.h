#ifndef BALLAST_TRAINER_SHIM_BALLAST_RANK_HISTORY_H_
#define BALLAST_TRAINER_SHIM_BALLAST_RANK_HISTORY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer_shim/host/packed_batch.h"

namespace ballast {

// A record of what ranks trained on, one JSON object a batch and line, appended
// to a file: run, step, micro_batch, module, dp_rank, samples (in packing
// order: sample as "SOURCE:ORDINAL", position, digest of its part of the
// tensors, and placeholder, true only if it is one) and next_ms. A process that
// is killed leaves whole lines. Thread-safe.
class History {
 public:
  // Errors: INVALID_ARGUMENT (the file cannot be opened), naming the file.
  static absl::StatusOr<std::unique_ptr<History>> Open(const std::string& path,
                                                       std::string run);
  ~History();

  // Errors: UNAVAILABLE (the file cannot be written), naming the file.
  absl::Status Add(const PackedBatch& batch, absl::Duration next);

 private:
  History(int fd, std::string path, std::string run);

  const int fd_;
  const std::string path_;
  const std::string run_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BALLAST_RANK_HISTORY_H_
