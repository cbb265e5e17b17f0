#include "trainer_shim/cuda/device_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/role_source.h"

namespace ballast {
namespace {

// Of ExchangeHeader::place.
BatchPlace GetPlace(uint64_t place) { return {place >> 24, place & 0xFFFFFF}; }

std::string GetName(const BatchPlace& place) {
  return absl::StrCat("step ", place.step, " micro-batch ", place.micro_batch);
}

Finding Read(const volatile Finding& from) {
  Finding finding;
  finding.kind = from.kind;
  finding.index = from.index;
  for (int i = 0; i < 2; ++i) {
    finding.found[i] = from.found[i];
    finding.wanted[i] = from.wanted[i];
  }
  return finding;
}

}  // namespace

absl::Status ToStatus(const Finding& finding, const std::string& batch) {
  switch (finding.kind) {
    case Finding::kNothing:
      return absl::OkStatus();
    case Finding::kHeader:
      return absl::DataLossError(absl::StrFormat(
          "%s: rank %d is at %s with fingerprint %011x..., this rank at %s "
          "with %011x...; all ranks must start at the same step of the same "
          "job",
          batch, finding.found[0] & kHeaderRankMask,
          GetName(GetPlace(finding.found[1])),
          finding.found[0] >> kHeaderRankBits,
          GetName(GetPlace(finding.wanted[1])),
          finding.wanted[0] >> kHeaderRankBits));
    case Finding::kSent:
      return ForeignBatch(GetPlace(finding.found[1]),
                          GetPlace(finding.wanted[1]));
    default:
      return absl::DataLossError(absl::StrCat(
          batch, ": sample ", finding.index, " of the batch is position ",
          finding.found[0], " with ", finding.found[1],
          " bytes, wanted position ", finding.wanted[0], " with ",
          finding.wanted[1], " bytes; a peer follows another schedule"));
  }
}

DeviceWatch::DeviceWatch(std::vector<Communicator*> communicators,
                         const volatile Finding* finding,
                         const Options& options)
    : communicators_(std::move(communicators)),
      finding_(finding),
      options_(options),
      sleeper_(options.clock->NewSleeper()) {}

absl::StatusOr<std::unique_ptr<DeviceWatch>> DeviceWatch::Create(
    std::vector<Communicator*> communicators, const volatile Finding* finding,
    const Options& options) {
  std::unique_ptr<DeviceWatch> watch(
      new DeviceWatch(std::move(communicators), finding, options));
  BALLAST_ASSIGN_OR_RETURN(
      watch->thread_,
      StartThread("watch the device", [raw = watch.get()] { raw->Run(); }));
  return watch;
}

DeviceWatch::~DeviceWatch() {
  sleeper_->Wake();
  if (thread_.joinable()) thread_.join();
}

void DeviceWatch::Begin(std::string name, const Event* done) {
  MutexLock lock(&mutex_);
  // Looks are infrequent: an event may be reused before a look saw it done.
  // Work on other streams may not be done yet.
  const auto former =
      std::find_if(works_.begin(), works_.end(),
                   [done](const Work& work) { return work.done == done; });
  if (former != works_.end()) works_.erase(former);
  last_ = name;
  works_.push_back(
      {std::move(name), done, options_.clock->Now(), /*given=*/false});
}

void DeviceWatch::Given(const Event* done) {
  MutexLock lock(&mutex_);
  for (Work& work : works_) {
    if (work.done == done) work.given = true;
  }
}

absl::Status DeviceWatch::status() const {
  MutexLock lock(&mutex_);
  return status_;
}

void DeviceWatch::Abort(const absl::Status& reason) {
  {
    MutexLock lock(&mutex_);
    if (!status_.ok()) return;
    status_ = reason;
  }
  for (Communicator* each : communicators_) {
    if (each != nullptr) each->Abort(reason);
  }
}

void DeviceWatch::Run() {
  // Querying events needs the device's context.
  absl::Status status = UseDevice(options_.device);
  while (status.ok() && sleeper_->Sleep(options_.interval)) {
    if (options_.on_look) options_.on_look();
    status = Look();
  }
  if (!status.ok()) Abort(status);
}

absl::Status DeviceWatch::Look() {
  const Finding finding = Read(*finding_);
  absl::Status late;
  {
    MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    while (!works_.empty() && works_.front().given) {
      BALLAST_ASSIGN_OR_RETURN(const bool done, works_.front().done->Done());
      if (!done) break;
      works_.pop_front();
    }
    BALLAST_RETURN_IF_ERROR(
        ToStatus(finding, works_.empty() ? last_ : works_.front().name));
    if (!works_.empty() &&
        options_.clock->Now() - works_.front().begun > options_.timeout) {
      late = absl::DeadlineExceededError(absl::StrCat(
          works_.front().name, " was given to the device ",
          absl::FormatDuration(options_.timeout),
          " ago and is not done; a peer has died, or is that far behind"));
    }
  }
  BALLAST_RETURN_IF_ERROR(late);
  for (Communicator* each : communicators_) {
    if (each != nullptr) BALLAST_RETURN_IF_ERROR(each->Check());
  }
  return absl::OkStatus();
}

}  // namespace ballast
