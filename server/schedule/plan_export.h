#ifndef BALLAST_SERVER_SCHEDULE_PLAN_EXPORT_H_
#define BALLAST_SERVER_SCHEDULE_PLAN_EXPORT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "server/data/parquet/parquet_tables.h"
#include "server/sample/sample_source.h"
#include "server/schedule/scheduler.h"

namespace ballast {

// Writes the rows of a plan file in groups of kGroupRows. Until Finish has
// returned OK they are in a file next to `path`, which then replaces it.
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

  // `sources` are config.sources, are not owned and outlive this. Errors: as
  // PlanTableWriter::Create, CheckReplaceable.
  static absl::StatusOr<std::unique_ptr<PlanRowWriter>> Create(
      const std::string& path, const v1::Config& config,
      const std::vector<const SampleSource*>& sources);
  // Removes the file next to `path` unless Finish has succeeded.
  ~PlanRowWriter();

  // Errors: UNAVAILABLE; as SourceIndex::sample.
  absl::Status Add(const Row& row);
  absl::Status Finish();

  uint64_t rows() const { return rows_; }

 private:
  PlanRowWriter() = default;
  absl::Status Flush();

  std::string path_;
  std::string part_;  // the file next to it; empty: no file
  std::unique_ptr<PlanTableWriter> table_;
  std::vector<const SampleSource*> sources_;
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
absl::StatusOr<uint64_t> ExportPlan(
    const v1::Config& config, const Scheduler& scheduler,
    const std::vector<const SampleSource*>& sources, uint64_t first,
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

// Packs samples first-fit decreasing: the longest first, each into the first
// pack that has room. `lengths` are at most `capacity`. Returns the packs in
// the order of their first members, and members in ascending order. Pure; O(n
// log n).
std::vector<std::vector<uint32_t>> FirstFitDecreasing(
    absl::Span<const uint32_t> lengths, uint64_t capacity);

struct PackOptions {
  uint64_t tokens = 0;      // of a pack, samples padded as packing.align says
  uint32_t packs = 0;       // of a step
  uint32_t window = 65536;  // samples that are packed together
  // Steps whose samples are packed.
  uint64_t first_step = 0;
  uint64_t last_step = 0;
};

struct PackFigures {
  uint64_t samples = 0;
  uint64_t packs = 0;
  uint64_t steps = 0;
  uint64_t tokens = 0;    // without padding
  uint64_t left_out = 0;  // samples of packs that are less than a step

  // Share of the packs' tokens that are real.
  double fill(uint64_t capacity) const {
    return packs == 0 ? 0 : static_cast<double>(tokens) / packs / capacity;
  }
};

// Packs the samples of steps of train offline, in windows in the order of
// training, into a plan file of steps from 0 on. Packs that do not fill the
// last step are left out. Errors: INVALID_ARGUMENT (a sample longer than a
// pack; no whole step; options.packs is no multiple of the grid times
// packing.virtual_pipeline_group); as Scheduler::Schedule, PlanRowWriter.
absl::StatusOr<PackFigures> WritePacks(
    const v1::Config& config, const Scheduler& scheduler,
    const std::vector<const SampleSource*>& sources, const PackOptions& options,
    const std::string& path);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PLAN_EXPORT_H_
