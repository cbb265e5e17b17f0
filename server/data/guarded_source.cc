#include "server/data/guarded_source.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/sample/data_fault.h"

namespace ballast {

namespace {

// The result of a read, shared by reader and waiter; either may outlive the
// other.
struct Outcome {
  absl::StatusOr<FaultOr<RawSample>> sample = absl::UnknownError("not read");
};

class GuardedSource final : public SampleSource {
 public:
  GuardedSource(std::shared_ptr<SampleSource> source,
                std::shared_ptr<const LiveValue<ReadPolicy>> policy,
                std::shared_ptr<BlockingCalls> calls, Clock* clock,
                OnReadAgain on_read_again)
      : source_(std::move(source)),
        policy_(std::move(policy)),
        calls_(std::move(calls)),
        clock_(clock),
        on_read_again_(std::move(on_read_again)) {}

  const SourceIndex& index() const override { return source_->index(); }

  SampleLocation Locate(uint64_t ordinal) const override {
    return source_->Locate(ordinal);
  }

  bool IsHere(uint64_t ordinal) const override {
    return source_->IsHere(ordinal);
  }
  absl::StatusOr<uint64_t> FetchAhead(
      uint64_t ordinal, const MakeRoom& make_room) const override {
    return source_->FetchAhead(ordinal, make_room);
  }
  void AddOwners(uint64_t ordinal,
                 std::vector<uint64_t>* owners) const override {
    source_->AddOwners(ordinal, owners);
  }
  bool InStore() const override { return source_->InStore(); }

  absl::StatusOr<FaultOr<RawSample>> Read(uint64_t ordinal,
                                          ReadParts parts) const override {
    // The bytes are usually in memory; then no other thread need be woken to
    // fetch them. The read below handles any failure.
    ReadParts here = parts;
    here.from = ReadFrom::kMemory;
    absl::StatusOr<FaultOr<RawSample>> in_memory = source_->Read(ordinal, here);
    if (in_memory.ok() && in_memory->ok()) return in_memory;
    // A read that hangs outlives this call, and must not write to its caller's
    // memory then.
    parts.places = nullptr;
    const ReadPolicy policy = policy_->Get();
    const absl::Time start = clock_->Now();
    for (uint32_t attempts = 1;; ++attempts) {
      absl::StatusOr<FaultOr<RawSample>> sample =
          ReadOnce(ordinal, parts, policy, start);
      if (sample.ok()) return sample;
      const std::optional<absl::Duration> wait = RetryReadAfter(
          policy, attempts, clock_->Now() - start, sample.status());
      if (!wait.has_value()) {
        if (attempts == 1) return sample;
        return Annotate(sample.status(),
                        absl::StrCat("after ", attempts, " attempts"));
      }
      if (on_read_again_ != nullptr) {
        on_read_again_(source_->Locate(ordinal).file,
                       sample.status().message());
      }
      clock_->NewSleeper()->Sleep(*wait);
    }
  }

 private:
  absl::StatusOr<FaultOr<RawSample>> ReadOnce(uint64_t ordinal, ReadParts parts,
                                              const ReadPolicy& policy,
                                              absl::Time start) const {
    const auto outcome = std::make_shared<Outcome>();
    const absl::Status ran = calls_->Run(
        [source = source_, ordinal, parts, outcome] {
          outcome->sample = source->Read(ordinal, parts);
        },
        policy.timeout - (clock_->Now() - start));
    if (ran.ok()) return std::move(outcome->sample);
    const SampleLocation at = source_->Locate(ordinal);
    const std::string where = absl::StrCat(Printable(at.file), ": sample ",
                                           ordinal, " at byte ", at.offset);
    if (absl::IsDeadlineExceeded(ran)) {
      return absl::DeadlineExceededError(absl::StrCat(
          where, ": not read within ", absl::FormatDuration(policy.timeout),
          " (serve.read_timeout); does the disk or file server hang?"));
    }
    return Annotate(ran, absl::StrCat(where, ": not read"));
  }

  const std::shared_ptr<SampleSource> source_;
  const std::shared_ptr<const LiveValue<ReadPolicy>> policy_;
  const std::shared_ptr<BlockingCalls> calls_;
  Clock* const clock_;
  const OnReadAgain on_read_again_;
};

}  // namespace

std::optional<absl::Duration> RetryReadAfter(const ReadPolicy& policy,
                                             uint32_t attempts,
                                             absl::Duration elapsed,
                                             const absl::Status& status) {
  if (!absl::IsUnavailable(status) && !absl::IsAborted(status)) {
    return std::nullopt;
  }
  if (attempts >= policy.attempts) return std::nullopt;
  const absl::Duration wait =
      policy.backoff * (int64_t{1} << std::min(attempts - 1, 30u));
  if (elapsed + wait >= policy.timeout) return std::nullopt;
  return wait;
}

std::unique_ptr<SampleSource> GuardSource(
    std::shared_ptr<SampleSource> source,
    std::shared_ptr<const LiveValue<ReadPolicy>> policy,
    std::shared_ptr<BlockingCalls> calls, Clock* clock,
    OnReadAgain on_read_again) {
  return std::make_unique<GuardedSource>(std::move(source), std::move(policy),
                                         std::move(calls), clock,
                                         std::move(on_read_again));
}

}  // namespace ballast
