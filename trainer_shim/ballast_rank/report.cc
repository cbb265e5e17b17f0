#include "trainer_shim/ballast_rank/report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/table.h"
#include "proto/module.h"

namespace ballast {
namespace {

std::string Mebibytes(uint64_t bytes) {
  return absl::StrFormat("%.1f MiB", bytes / double{1 << 20});
}

// Heaviest over mean; 1 where nothing costs anything.
double MaxOverMean(const std::vector<double>& loads) {
  double sum = 0;
  double most = 0;
  for (const double load : loads) {
    sum += load;
    most = std::max(most, load);
  }
  return sum > 0 ? most * loads.size() / sum : 1.0;
}

}  // namespace

Report::Report(const std::vector<v1::Role>& roles) {
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
  std::string balance;
  uint64_t samples = 0;
  uint64_t images = 0;
  for (size_t first = 0; first < rows_.size();) {
    const v1::Module module = rows_[first].role.module();
    std::vector<double> before, after;
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
      before.push_back(row.before);
      after.push_back(row.after);
      totals += row.totals;
    }
    absl::StrAppendFormat(
        &balance, "%s: heaviest rank over mean %.3f before, %.3f after\n",
        ModuleName(module), MaxOverMean(before), MaxOverMean(after));
    // Every module holds every sample of the ranks that ran.
    samples = std::max(samples, totals.samples);
    images = std::max(images, totals.images);
    first = end;
  }
  const double seconds = absl::ToDoubleSeconds(elapsed);
  const double rate = seconds > 0 ? 1 / seconds : 0;
  return absl::StrCat(
      table.ToString(), "\n", balance,
      absl::StrFormat(
          "%d samples, %d images in %.2f s: %.1f samples/s, %.1f images/s\n",
          samples, images, seconds, samples * rate, images * rate));
}

}  // namespace ballast
