#include "server/plan/pack_plan.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "proto/schedule/schedule_table.h"
#include "server/config/topology.h"
#include "server/plan/plan_export.h"

namespace ballast {
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

absl::StatusOr<PackFigures> WritePacks(const v1::Config& config,
                                       const Scheduler& scheduler,
                                       const PackOptions& options,
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
                           PlanRowWriter::Create(path, config));
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
