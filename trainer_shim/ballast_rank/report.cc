#include "trainer_shim/ballast_rank/report.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/table.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/module.h"

namespace ballast {
namespace {

std::string Mebibytes(uint64_t bytes) {
  return absl::StrFormat("%.1f MiB", bytes / double{1 << 20});
}

double MostOf(const google::protobuf::RepeatedField<double>& loads) {
  return loads.empty() ? 0 : *std::max_element(loads.begin(), loads.end());
}

}  // namespace

Report::Report(const std::vector<v1::Role>& roles, Clock* clock)
    : clock_(clock) {
  for (const v1::Role& role : roles) rows_.emplace_back().role = role;
}

void Report::Add(const RankBatch& got) {
  const v1::Role& role = got.batch->role;
  const v1::ModuleSchedule* module = FindModule(
      got.schedule->micro_batches(got.batch->micro_batch), role.module());
  MutexLock lock(&mutex_);
  Row& row = rows_[got.rank];
  row.before += module->load_before(role.dp_rank());
  row.after += module->load_after(role.dp_rank());
  row.totals += got.batch->totals;
  row.bytes_read += got.batch->bytes_read;
  row.bytes_moved += got.batch->bytes_moved;
  row.decoded = got.decoded;
  // Every module holds every image.
  const bool counts = role.module() == rows_[0].role.module();
  arrivals_.push_back({clock_->Now(), counts ? got.batch->totals.images : 0,
                       got.batch->bytes_read, got.next});
  // Once per micro-batch: with the first of the module's ranks.
  if (got.rank > 0 && rows_[got.rank - 1].role.module() == role.module()) {
    return;
  }
  Straggling& straggling = straggling_[role.module()];
  straggling.most_before += MostOf(module->load_before());
  straggling.most_after += MostOf(module->load_after());
  straggling.mean += std::accumulate(module->load_after().begin(),
                                     module->load_after().end(), 0.0) /
                     module->load_after_size();
}

std::string Report::Pace() const {
  const size_t half = arrivals_.size() / 2;
  if (half == 0) return "";
  const double seconds =
      absl::ToDoubleSeconds(arrivals_.back().at - arrivals_[half - 1].at);
  if (seconds <= 0) return "";
  uint64_t images = 0;
  uint64_t bytes = 0;
  std::vector<double> next_ms;
  for (size_t i = half; i < arrivals_.size(); ++i) {
    images += arrivals_[i].images;
    bytes += arrivals_[i].bytes;
    next_ms.push_back(absl::ToDoubleMilliseconds(arrivals_[i].next));
  }
  std::sort(next_ms.begin(), next_ms.end());
  const auto at = [&](double share) {
    return next_ms[static_cast<size_t>(share * (next_ms.size() - 1))];
  };
  return absl::StrFormat(
      "the later half, in %.2f s: %.1f images/s, %s/s read; Next took %.2f ms "
      "in the median, %.2f ms at p99, %.2f ms at most\n",
      seconds, images / seconds, Mebibytes(bytes / seconds), at(0.5), at(0.99),
      next_ms.back());
}

std::string Report::Decoding() const {
  JpegEngineCounts all;
  for (const Row& row : rows_) {
    all.by_hardware += row.decoded.by_hardware;
    all.by_host += row.decoded.by_host;
    all.bytes += row.decoded.bytes;
    all.busy += row.decoded.busy;
  }
  const uint64_t images = all.by_hardware + all.by_host;
  if (images == 0) return "";
  return absl::StrFormat(
      "images that travelled encoded: %d decoded by JPEG engines, %d by the "
      "CPU; %s of files, %.2f ms an image\n",
      all.by_hardware, all.by_host, Mebibytes(all.bytes),
      absl::ToDoubleMilliseconds(all.busy) / images);
}

std::string Report::ToString(absl::Duration elapsed) const {
  MutexLock lock(&mutex_);
  Table table({{"module", Table::kLeft},
               {"rank"},
               {"load before"},
               {"load after"},
               {"samples"},
               {"images"},
               {"read"},
               {"moved"}});
  uint64_t samples = 0;
  uint64_t images = 0;
  for (size_t first = 0; first < rows_.size();) {
    const v1::Module module = rows_[first].role.module();
    PackedTotals totals;
    size_t end = first;
    for (; end < rows_.size() && rows_[end].role.module() == module; ++end) {
      const Row& row = rows_[end];
      table.AddRow(
          {std::string(ModuleName(module)), absl::StrCat(row.role.dp_rank()),
           absl::StrFormat("%.0f", row.before),
           absl::StrFormat("%.0f", row.after), absl::StrCat(row.totals.samples),
           absl::StrCat(row.totals.images), Mebibytes(row.bytes_read),
           Mebibytes(row.bytes_moved)});
      totals += row.totals;
    }
    // Every module holds every sample of the ranks that ran.
    samples = std::max(samples, totals.samples);
    images = std::max(images, totals.images);
    first = end;
  }
  std::string balance;
  for (const auto& [module, straggling] : straggling_) {
    if (straggling.mean <= 0) continue;
    absl::StrAppendFormat(
        &balance,
        "%s: heaviest rank over mean of a micro-batch: %.3f before, "
        "%.3f after\n",
        ModuleName(module), straggling.most_before / straggling.mean,
        straggling.most_after / straggling.mean);
  }
  const double seconds = absl::ToDoubleSeconds(elapsed);
  const double rate = seconds > 0 ? 1 / seconds : 0;
  return absl::StrCat(
      table.ToString(), "\n", balance,
      absl::StrFormat(
          "%d samples, %d images in %.2f s: %.1f samples/s, %.1f images/s\n",
          samples, images, seconds, samples * rate, images * rate),
      Pace(), Decoding());
}

}  // namespace ballast
