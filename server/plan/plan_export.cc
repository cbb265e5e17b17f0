#include "server/plan/plan_export.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/schedule/fingerprint.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"
#include "server/config/topology.h"

namespace ballast {

absl::StatusOr<std::unique_ptr<PlanRowWriter>> PlanRowWriter::Create(
    const std::string& path, const v1::Config& config) {
  std::unique_ptr<PlanRowWriter> writer(new PlanRowWriter);
  writer->path_ = path;
  const std::string part = absl::StrCat(path, ".part.", getpid());
  BALLAST_ASSIGN_OR_RETURN(writer->table_, PlanTableWriter::Create(part));
  writer->part_ = part;
  for (const v1::Source& source : config.sources()) {
    writer->columns_.names.push_back(source.name());
  }
  return writer;
}

PlanRowWriter::~PlanRowWriter() {
  if (!part_.empty()) std::remove(part_.c_str());
}

absl::Status PlanRowWriter::Add(const Row& row) {
  if (row.step != step_) times_.clear();
  step_ = row.step;
  columns_.step.push_back(static_cast<int64_t>(row.step));
  columns_.micro_batch.push_back(row.micro_batch);
  columns_.pack.push_back(row.pack);
  columns_.source.push_back(row.source);
  columns_.sample.push_back(static_cast<int64_t>(row.sample));
  // Where an epoch ends, or a small source has a large weight.
  columns_.repeat.push_back(times_[{row.source, row.sample}]++);
  columns_.epoch.push_back(static_cast<int64_t>(row.epoch));
  ++rows_;
  return columns_.size() < kGroupRows ? absl::OkStatus() : Flush();
}

absl::Status PlanRowWriter::Flush() {
  if (columns_.size() == 0) return absl::OkStatus();
  BALLAST_RETURN_IF_ERROR(table_->WriteGroup(columns_));
  columns_.step.clear();
  columns_.micro_batch.clear();
  columns_.pack.clear();
  columns_.source.clear();
  columns_.sample.clear();
  columns_.repeat.clear();
  columns_.epoch.clear();
  return absl::OkStatus();
}

absl::Status PlanRowWriter::Finish() {
  BALLAST_RETURN_IF_ERROR(Flush());
  BALLAST_RETURN_IF_ERROR(table_->Finish());
  if (std::rename(part_.c_str(), path_.c_str()) != 0) {
    return absl::UnavailableError(
        absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path_))
            .message());
  }
  part_.clear();
  return absl::OkStatus();
}

namespace {

// Adds the rows of a step of `scheduler`, in order of position.
absl::Status AddStep(const v1::StepSchedule& schedule,
                     const Scheduler& scheduler, bool with_packs,
                     uint32_t micro, uint32_t grid, PlanRowWriter* writer) {
  std::vector<std::pair<uint64_t, PlanRowWriter::Row>> rows;
  for (int m = 0; m < schedule.micro_batches_size(); ++m) {
    const v1::MicroBatchSchedule& columns = schedule.micro_batches(m);
    const v1::ModuleSchedule* const language =
        FindModule(columns, v1::MODULE_LANGUAGE);
    for (int i = 0; i < columns.position_size(); ++i) {
      PlanRowWriter::Row row;
      row.step = schedule.step();
      row.source = columns.source(i);
      row.sample = columns.ordinal(i);
      row.epoch = scheduler.OrderedAt(columns.position(i)).epoch;
      if (with_packs) {
        row.micro_batch = m;
        row.pack = int64_t{m} * grid + language->owner(i);
      }
      rows.push_back({columns.position(i), row});
    }
  }
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!with_packs) rows[i].second.micro_batch = i / micro;
    BALLAST_RETURN_IF_ERROR(writer->Add(rows[i].second));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> ExportPlan(const v1::Config& config,
                                    const Scheduler& scheduler, uint64_t first,
                                    uint64_t last, const std::string& path) {
  const uint32_t grid = Grid(config.topology());
  const bool with_packs =
      config.packing().mode() == v1::Packing::MODE_SCHEDULED &&
      DynamicCp(config) == 1 && DpSize(config, v1::MODULE_LANGUAGE) == grid;
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<PlanRowWriter> writer,
                           PlanRowWriter::Create(path, config));
  for (uint64_t step = first; step <= last; ++step) {
    BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule schedule,
                             scheduler.Schedule(step));
    BALLAST_RETURN_IF_ERROR(AddStep(schedule, scheduler, with_packs,
                                    config.batch().micro(), grid,
                                    writer.get()));
  }
  BALLAST_RETURN_IF_ERROR(writer->Finish());
  return writer->rows();
}

std::vector<PlanDifference> ComparePlans(const v1::Fingerprint& a,
                                         const v1::Fingerprint& b) {
  std::map<std::string, PlanDifference> all;
  const auto add = [&](const v1::Fingerprint& from,
                       std::optional<std::string> PlanDifference::*value) {
    for (const v1::Fingerprint::Entry& entry : from.entries()) {
      PlanDifference& found = all[entry.key()];
      found.key = entry.key();
      found.*value = entry.value();
    }
  };
  add(a, &PlanDifference::old_value);
  add(b, &PlanDifference::new_value);
  std::vector<PlanDifference> differences;
  for (auto& [key, each] : all) {
    if (each.old_value == each.new_value) continue;
    each.is_data = IsDataKey(key);
    const std::optional<uint64_t> step = StepOfKey(key);
    if (step.has_value()) {
      each.from_step = *step;
      each.key = key.substr(FromStepKey(*step, "").size());
    }
    differences.push_back(std::move(each));
  }
  std::stable_sort(differences.begin(), differences.end(),
                   [](const PlanDifference& x, const PlanDifference& y) {
                     return std::make_tuple(!x.is_data, x.from_step) <
                            std::make_tuple(!y.is_data, y.from_step);
                   });
  return differences;
}

}  // namespace ballast
