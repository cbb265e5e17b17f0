#include "trainer_shim/ballast_rank/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

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

template <typename Loads>
double GetMost(const Loads& loads) {
  return loads.empty() ? 0 : *std::max_element(loads.begin(), loads.end());
}

}  // namespace

Report::Report(const std::vector<v1::Role>& roles, Clock* clock)
    : clock_(clock) {
  for (const v1::Role& role : roles) rows_.emplace_back().role = role;
}

void Report::Add(const RankBatch& got) {
  const v1::Role& role = got.batch->role;
  const v1::MicroBatchSchedule& columns =
      got.schedule->micro_batches(got.batch->micro_batch);
  const v1::ModuleSchedule* module = FindModule(columns, role.module());
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
  straggling.most_before += GetMost(module->load_before());
  straggling.most_after += GetMost(module->load_after());
  straggling.mean += std::accumulate(module->load_after().begin(),
                                     module->load_after().end(), 0.0) /
                     module->load_after_size();
  const std::vector<double> after =
      SumOfModules(columns, &v1::ModuleSchedule::load_after);
  if (!counts || after.empty()) return;
  together_.most_before +=
      GetMost(SumOfModules(columns, &v1::ModuleSchedule::load_before));
  together_.most_after += GetMost(after);
  together_.mean +=
      std::accumulate(after.begin(), after.end(), 0.0) / after.size();
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
  if (together_.mean > 0) {
    absl::StrAppendFormat(
        &balance,
        "Heaviest rank over mean of a micro-batch, all modules together: %.3f "
        "before, %.3f after.\nThe sum of a rank's loads is what is balanced; "
        "a module alone need not be even.\n",
        together_.most_before / together_.mean,
        together_.most_after / together_.mean);
  }
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

std::string BatchLine(const PackedBatch& batch, absl::Duration next) {
  using Json = nlohmann::ordered_json;
  Json samples = Json::array();
  int placeholders = 0;
  for (const PackedSample& sample : batch.samples) {
    samples.push_back(sample.name);
    placeholders += sample.placeholder;
  }
  Json line = {{"step", batch.step},
               {"micro_batch", batch.micro_batch},
               {"module", std::string(ModuleName(batch.role.module()))},
               {"dp_rank", batch.role.dp_rank()},
               {"samples", std::move(samples)},
               {"placeholders", placeholders},
               {"tokens", batch.totals.tokens},
               {"padded_tokens", batch.totals.padded_tokens},
               {"images", batch.totals.images},
               {"patches", batch.totals.patches},
               {"digest", ComputeDigest(batch)},
               {"bytes_read", batch.bytes_read},
               {"bytes_moved", batch.bytes_moved},
               {"next_ms", absl::ToDoubleMilliseconds(next)}};
  if (batch.place != TrainerPlace()) {
    line["tp_rank"] = batch.place.tp_rank;
    line["pp_rank"] = batch.place.pp_rank;
    line["cp_rank"] = batch.place.cp_rank;
  }
  if (batch.dummy_image) line["dummy_image"] = true;
  if (batch.totals.videos != 0) line["videos"] = batch.totals.videos;
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

InterleavedLines::InterleavedLines(uint32_t ranks, std::ostream* out)
    : out_(out), waiting_(ranks) {}

void InterleavedLines::Add(uint32_t rank, std::string line) {
  MutexLock lock(&mutex_);
  waiting_[rank].push_back(std::move(line));
  while (!waiting_[next_].empty()) {
    *out_ << waiting_[next_].front() << "\n";
    waiting_[next_].pop_front();
    next_ = (next_ + 1) % waiting_.size();
  }
  out_->flush();
}

absl::StatusOr<std::unique_ptr<History>> History::Open(const std::string& path,
                                                       std::string run) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--history ", path, ": ", std::strerror(errno)));
  }
  return std::unique_ptr<History>(new History(fd, path, std::move(run)));
}

History::History(int fd, std::string path, std::string run)
    : fd_(fd), path_(std::move(path)), run_(std::move(run)) {}

History::~History() { close(fd_); }

absl::Status History::Add(const PackedBatch& batch, absl::Duration next) {
  using Json = nlohmann::ordered_json;
  const std::vector<std::string> digests = SampleDigests(batch);
  Json samples = Json::array();
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    const PackedSample& sample = batch.samples[i];
    samples.push_back({{"sample", sample.name},
                       {"position", sample.position},
                       {"digest", digests[i]}});
    if (sample.placeholder) samples.back()["placeholder"] = true;
  }
  const Json object = {{"run", run_},
                       {"step", batch.step},
                       {"micro_batch", batch.micro_batch},
                       {"module", std::string(ModuleName(batch.role.module()))},
                       {"dp_rank", batch.role.dp_rank()},
                       {"samples", std::move(samples)},
                       {"next_ms", absl::ToDoubleMilliseconds(next)}};
  const std::string line =
      object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  // One call a line: appends of several threads and processes do not mix.
  ssize_t written = 0;
  do {
    written = write(fd_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "--history ", path_, ": ",
      written < 0 ? std::strerror(errno) : "the file system is full"));
}

}  // namespace ballast
