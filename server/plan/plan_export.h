#ifndef BALLAST_SERVER_PLAN_PLAN_EXPORT_H_
#define BALLAST_SERVER_PLAN_PLAN_EXPORT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "server/corpus/parquet/plan_table.h"
#include "server/schedule/scheduler.h"

namespace ballast {

// Writes the rows of a plan file in groups of kGroupRows. Until Finish has
// returned OK they are in a file beside `path`, which then replaces it.
// Thread-compatible; blocks on the disk.
class PlanRowWriter {
 public:
  static constexpr uint64_t kGroupRows = uint64_t{1} << 20;

  struct Row {
    uint64_t step = 0;
    uint32_t micro_batch = 0;
    int64_t pack = -1;
    uint32_t source = 0;  // in config.sources
    uint64_t sample = 0;
    uint64_t epoch = 0;
  };

  // Errors: as PlanTableWriter::Create.
  static absl::StatusOr<std::unique_ptr<PlanRowWriter>> Create(
      const std::string& path, const v1::Config& config);
  // Removes the file beside `path` unless Finish has succeeded.
  ~PlanRowWriter();

  // Errors: UNAVAILABLE.
  absl::Status Add(const Row& row);
  absl::Status Finish();

  uint64_t rows() const { return rows_; }

 private:
  PlanRowWriter() = default;
  absl::Status Flush();

  std::string path_;
  std::string part_;  // the file beside it; empty: there is none
  std::unique_ptr<PlanTableWriter> table_;
  PlanColumns columns_;
  uint64_t rows_ = 0;
  // How often the present step has had each sample.
  uint64_t step_ = 0;
  std::map<std::pair<uint32_t, uint64_t>, int64_t> times_;
};

// Writes what the steps `first` to `last` of train would train on to a plan
// file, rows in the order of positions. With packing.mode `scheduled` and a
// language dp of the grid rows have the packs of the schedule; otherwise none,
// and their micro-batches are those in which samples are read. Returns the
// number of rows. Errors: as Scheduler::Schedule, PlanRowWriter.
absl::StatusOr<uint64_t> ExportPlan(const v1::Config& config,
                                    const Scheduler& scheduler, uint64_t first,
                                    uint64_t last, const std::string& path);

// A setting or a source in which the schedules of two jobs differ.
struct PlanDifference {
  // The first step that it alters; of layout always 0.
  uint64_t from_step = 0;
  // Whether it alters which samples the steps of train have, or their content;
  // else who reads and trains on them, or another split.
  bool is_data = false;
  std::string key;  // of Fingerprint.entries, without the step
  std::optional<std::string> old_value;  // nullopt: absent
  std::optional<std::string> new_value;
};

// Compares the fingerprints of two jobs, of train. Data come first, in the
// order of steps, then by key. Pure.
std::vector<PlanDifference> ComparePlans(const v1::Fingerprint& a,
                                         const v1::Fingerprint& b);

}  // namespace ballast

#endif  // BALLAST_SERVER_PLAN_PLAN_EXPORT_H_
