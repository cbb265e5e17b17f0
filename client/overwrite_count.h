#ifndef BALLAST_CLIENT_OVERWRITE_COUNT_H_
#define BALLAST_CLIENT_OVERWRITE_COUNT_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "client/batch_fetcher.h"

namespace ballast {

// Bounds how often a block that keeps being overwritten is fetched.
// Thread-compatible.
class OverwriteCount {
 public:
  // Most times that one block is fetched.
  static constexpr int kMostFetches = 8;

  // Call for each block that is not intact. OK: fetch it again. Errors, final:
  // as CheckIntact, if the same block was overwritten kMostFetches times in a
  // row.
  absl::Status Note(const FetchedBlock& block) {
    if (!status_.ok()) return status_;
    const std::pair<uint64_t, uint32_t> id(block.step(), block.micro_batch());
    count_ = last_ == id ? count_ + 1 : 1;
    last_ = id;
    if (count_ == kMostFetches) status_ = CheckIntact(block);
    return status_;
  }

  const absl::Status& status() const { return status_; }

 private:
  std::optional<std::pair<uint64_t, uint32_t>> last_;
  int count_ = 0;
  absl::Status status_;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_OVERWRITE_COUNT_H_
