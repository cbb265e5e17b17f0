#include "server/schedule/plan_export.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <numeric>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "proto/schedule/fingerprint.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"
#include "server/config/topology.h"
#include "server/files/file.h"

namespace ballast {

absl::StatusOr<std::unique_ptr<PlanRowWriter>> PlanRowWriter::Create(
    const std::string& path, const v1::Config& config,
    const std::vector<const SampleSource*>& sources) {
  BALLAST_RETURN_IF_ERROR(CheckReplaceable(path));
  std::unique_ptr<PlanRowWriter> writer(new PlanRowWriter);
  writer->path_ = path;
  writer->sources_ = sources;
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
  BALLAST_ASSIGN_OR_RETURN(const IndexedSample sample,
                           sources_[row.source]->index().sample(row.sample));
  columns_.check.push_back(sample.text_check);
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
  columns_.check.clear();
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

absl::StatusOr<uint64_t> ExportPlan(
    const v1::Config& config, const Scheduler& scheduler,
    const std::vector<const SampleSource*>& sources, uint64_t first,
    uint64_t last, const std::string& path) {
  const uint32_t grid = Grid(config.topology());
  const bool with_packs =
      config.packing().mode() == v1::Packing::MODE_SCHEDULED &&
      DynamicCp(config) == 1 && DpSize(config, v1::MODULE_LANGUAGE) == grid;
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<PlanRowWriter> writer,
                           PlanRowWriter::Create(path, config, sources));
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

namespace {

// The room of packs, by the first that has enough.
class Rooms {
 public:
  Rooms(size_t packs, uint64_t capacity)
      : leaves_(std::bit_ceil(std::max<size_t>(packs, 1))),
        room_(2 * leaves_, capacity) {}

  // Takes `length`, at most the capacity, from the first pack with room for it.
  size_t Take(uint64_t length) {
    size_t at = 1;
    while (at < leaves_) at = 2 * at + (room_[2 * at] < length ? 1 : 0);
    room_[at] -= length;
    for (size_t up = at / 2; up > 0; up /= 2) {
      room_[up] = std::max(room_[2 * up], room_[2 * up + 1]);
    }
    return at - leaves_;
  }

 private:
  const size_t leaves_;
  std::vector<uint64_t> room_;  // a tree: of each node the most below it
};

struct Sample {
  uint32_t source = 0;
  uint64_t ordinal = 0;
  uint32_t tokens = 0;
  uint32_t first_tokens = 0;  // of a pair's first sequence
  uint64_t epoch = 0;
};

// Takes samples in order and writes packs.
class Packer {
 public:
  Packer(const v1::Config& config, const PackOptions& options,
         PlanRowWriter* writer)
      : options_(options),
        grid_(Grid(config.topology())),
        align_(PackAlign(config, v1::MODULE_LANGUAGE)),
        writer_(*writer) {}

  absl::Status Add(const Sample& sample, const v1::StepSchedule& schedule) {
    uint64_t length = 0;
    ForEachSequence(sample.tokens, sample.first_tokens, [&](uint32_t tokens) {
      length += AlignUp(tokens, align_);
    });
    if (length > options_.tokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("sample ", schedule.sources(sample.source), ":",
                       sample.ordinal, " has ", length,
                       " tokens with padding; a pack holds ", options_.tokens,
                       " (--tokens): raise that, or lower "
                       "batch.max_tokens"));
    }
    window_.push_back(sample);
    lengths_.push_back(static_cast<uint32_t>(length));
    return window_.size() < options_.window ? absl::OkStatus() : Flush();
  }

  // Packs what is left. Returns the figures of what was written.
  absl::StatusOr<PackFigures> Finish() {
    BALLAST_RETURN_IF_ERROR(Flush());
    for (const auto& pack : step_) figures_.left_out += pack.size();
    if (figures_.steps == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the samples fill ", step_.size(), " packs of ",
                       options_.tokens, " tokens; wanted at least ",
                       options_.packs, ", the packs of a step (--packs)"));
    }
    return figures_;
  }

 private:
  absl::Status Flush() {
    for (const auto& members : FirstFitDecreasing(lengths_, options_.tokens)) {
      std::vector<Sample>& pack = step_.emplace_back();
      for (const uint32_t i : members) pack.push_back(window_[i]);
      if (step_.size() == options_.packs) BALLAST_RETURN_IF_ERROR(WriteStep());
    }
    window_.clear();
    lengths_.clear();
    return absl::OkStatus();
  }

  absl::Status WriteStep() {
    for (uint32_t p = 0; p < step_.size(); ++p) {
      for (const Sample& sample : step_[p]) {
        PlanRowWriter::Row row;
        row.step = figures_.steps;
        row.micro_batch = p / grid_;
        row.pack = p;
        row.source = sample.source;
        row.sample = sample.ordinal;
        row.epoch = sample.epoch;
        BALLAST_RETURN_IF_ERROR(writer_.Add(row));
        ++figures_.samples;
        figures_.tokens += sample.tokens;
      }
    }
    figures_.packs += step_.size();
    ++figures_.steps;
    step_.clear();
    return absl::OkStatus();
  }

  const PackOptions& options_;
  const uint32_t grid_;
  const uint32_t align_;
  PlanRowWriter& writer_;
  std::vector<Sample> window_;
  std::vector<uint32_t> lengths_;
  std::vector<std::vector<Sample>> step_;  // packs
  PackFigures figures_;
};

}  // namespace

std::vector<std::vector<uint32_t>> FirstFitDecreasing(
    absl::Span<const uint32_t> lengths, uint64_t capacity) {
  std::vector<uint32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return lengths[a] > lengths[b];
  });
  Rooms rooms(lengths.size(), capacity);
  std::vector<std::vector<uint32_t>> packs;
  for (const uint32_t i : order) {
    const size_t pack = rooms.Take(lengths[i]);
    if (pack >= packs.size()) packs.resize(pack + 1);
    packs[pack].push_back(i);
  }
  for (std::vector<uint32_t>& pack : packs) std::sort(pack.begin(), pack.end());
  std::sort(packs.begin(), packs.end());
  return packs;
}

absl::StatusOr<PackFigures> WritePacks(
    const v1::Config& config, const Scheduler& scheduler,
    const std::vector<const SampleSource*>& sources, const PackOptions& options,
    const std::string& path) {
  const uint64_t multiple =
      uint64_t{Grid(config.topology())} *
      std::max(config.packing().virtual_pipeline_group(), 1u);
  if (options.packs == 0 || options.packs % multiple != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--packs is ", options.packs,
                     "; wanted a multiple of the grid times "
                     "packing.virtual_pipeline_group, ",
                     multiple));
  }
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<PlanRowWriter> writer,
                           PlanRowWriter::Create(path, config, sources));
  Packer packer(config, options, writer.get());
  for (uint64_t step = options.first_step; step <= options.last_step; ++step) {
    BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule schedule,
                             scheduler.Schedule(step));
    std::vector<std::pair<uint64_t, Sample>> samples;  // by position
    for (const v1::MicroBatchSchedule& columns : schedule.micro_batches()) {
      for (int i = 0; i < columns.position_size(); ++i) {
        samples.push_back({columns.position(i),
                           {columns.source(i), columns.ordinal(i),
                            columns.tokens(i), FirstTokens(columns, i),
                            scheduler.OrderedAt(columns.position(i)).epoch}});
      }
    }
    std::sort(samples.begin(), samples.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [position, sample] : samples) {
      BALLAST_RETURN_IF_ERROR(packer.Add(sample, schedule));
    }
  }
  BALLAST_ASSIGN_OR_RETURN(const PackFigures figures, packer.Finish());
  BALLAST_RETURN_IF_ERROR(writer->Finish());
  return figures;
}

}  // namespace ballast
