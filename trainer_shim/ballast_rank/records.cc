#include "trainer_shim/ballast_rank/records.h"

#include <fcntl.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/schedule/module.h"

namespace ballast {

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
               {"digest", DigestOf(batch)},
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
