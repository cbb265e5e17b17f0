#ifndef BALLAST_TRAINER_SHIM_BALLAST_RANK_REPORT_H_
#define BALLAST_TRAINER_SHIM_BALLAST_RANK_REPORT_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/job.pb.h"
#include "trainer_shim/ballast_rank/world.h"
#include "trainer_shim/batch_info.h"
#include "trainer_shim/host/packed_batch.h"

namespace ballast {

// Summarises a run for people. Thread-safe.
class Report {
 public:
  // `clock` outlives it.
  explicit Report(const std::vector<v1::Role>& roles,
                  Clock* clock = Clock::Real());

  void Add(const RankBatch& batch);

  // A table with one row per rank: total cost without and with balancing (from
  // the schedule), samples, images, bytes read and bytes moved to other ranks.
  // Below it: for each module, the heaviest rank's load over the mean; the
  // throughput over `elapsed`; and the throughput and the time of Next over the
  // later half of the batches, which excludes connecting and batches prepared
  // in advance; and, if images passed through encoded, what decoded them and
  // how long it took. Ends in a line break.
  std::string ToString(absl::Duration elapsed) const;

 private:
  struct Row {
    v1::Role role;
    double before = 0;
    double after = 0;
    PackedTotals totals;
    uint64_t bytes_read = 0;
    uint64_t bytes_moved = 0;
    JpegEngineCounts decoded;  // so far
  };
  std::string Decoding() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Pace() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Sums over micro-batches, for all of the module's ranks, in this process or
  // another.
  struct Straggling {
    double most_before = 0;
    double most_after = 0;
    double mean = 0;
  };

  Clock* const clock_;
  mutable Mutex mutex_;
  struct Arrival {
    absl::Time at;
    uint64_t images = 0;  // 0 except in the first rank's module
    uint64_t bytes = 0;
    absl::Duration next;
  };
  std::vector<Arrival> arrivals_ ABSL_GUARDED_BY(mutex_);
  std::vector<Row> rows_ ABSL_GUARDED_BY(mutex_);
  std::map<v1::Module, Straggling> straggling_ ABSL_GUARDED_BY(mutex_);
  // Of the sum of all modules' loads, which is what ranks with all modules
  // wait for; empty where modules differ in ranks.
  Straggling together_ ABSL_GUARDED_BY(mutex_);
};

// One batch as a JSON object in one line, without a line break. Keys: step,
// micro_batch, module, dp_rank, samples ("SOURCE:ORDINAL", in packing order),
// placeholders (their number), tokens, padded_tokens, images, patches, digest
// (ComputeDigest), bytes_read, bytes_moved, next_ms (time of Next); tp_rank,
// pp_rank and cp_rank, only if one of them is not 0; and dummy_image (true),
// only if there is one. The digest covers what a rank at that place receives;
// the numbers before it count whole samples. All values except next_ms are the
// same on every run.
std::string BatchLine(const PackedBatch& batch, absl::Duration next);

// Writes the lines of several ranks, which run at their own pace, in a fixed
// order: every rank's first line, in order of rank, then every rank's second
// line, and so on. Thread-safe.
class InterleavedLines {
 public:
  // `out` is not owned; it is written under a lock.
  InterleavedLines(uint32_t ranks, std::ostream* out);

  // Takes the next line of `rank`, and writes all lines that are now due.
  void Add(uint32_t rank, std::string line);

 private:
  std::ostream* const out_;
  Mutex mutex_;
  std::vector<std::deque<std::string>> waiting_ ABSL_GUARDED_BY(mutex_);
  uint32_t next_ ABSL_GUARDED_BY(mutex_) = 0;  // rank whose line is due
};

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

#endif  // BALLAST_TRAINER_SHIM_BALLAST_RANK_REPORT_H_
