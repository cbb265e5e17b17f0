#ifndef BALLAST_TESTS_FAKES_FAKE_SAMPLE_BUILDER_H_
#define BALLAST_TESTS_FAKES_FAKE_SAMPLE_BUILDER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "common/mutex.h"
#include "server/delivery/block.h"

namespace ballast {

// Byte `offset` of the payload that FakeSampleBuilder writes.
inline uint8_t FakePayloadByte(v1::Module module, uint64_t position,
                               uint64_t offset) {
  return static_cast<uint8_t>(position * 31 + offset * 7 + module);
}

// Fills payloads with a formula; fails and blocks on request. Thread-safe.
class FakeSampleBuilder : public SampleBuilder {
 public:
  absl::StatusOr<SampleOutcome> Build(
      const SampleRequest& request) const override {
    {
      MutexLock lock(&mutex_);
      ++working_;
      begun_.insert(request.record.position);
      ++builds_;
      if (request.module == v1::MODULE_LANGUAGE &&
          seen_.count(request.record.position) == 0) {
        unseen_.insert(request.record.position);
      }
      changed_.NotifyAll();
      while (IsClosed(request.module)) changed_.Wait(&mutex_);
      if (request.module == v1::MODULE_VISION) {
        seen_.insert(request.record.position);
      }
      --working_;
      changed_.NotifyAll();
      const auto failing = failing_.find(request.record.position);
      if (failing != failing_.end()) return failing->second;
    }
    for (uint64_t i = 0; i < request.payload.size(); ++i) {
      request.payload[i] =
          FakePayloadByte(request.module, request.record.position, i);
    }
    return SampleOutcome::kBuilt;
  }

  void FailAt(uint64_t position,
              const absl::Status& why = absl::DataLossError("told to fail")) {
    MutexLock lock(&mutex_);
    failing_[position] = why;
  }

  // While the gate is shut every Build blocks, or every Build of module `only`.
  void ShutGate(v1::Module only = v1::MODULE_UNSPECIFIED) {
    MutexLock lock(&mutex_);
    closed_ = only;
  }
  void OpenGate() {
    MutexLock lock(&mutex_);
    closed_.reset();
    changed_.NotifyAll();
  }
  // Waits until this many threads are inside Build.
  void AwaitWorking(int threads) const {
    MutexLock lock(&mutex_);
    while (working_ < threads) changed_.Wait(&mutex_);
  }

  // Number of samples begun so far; a sample begun twice counts twice.
  uint64_t builds() const {
    MutexLock lock(&mutex_);
    return builds_;
  }
  // Positions begun so far.
  std::set<uint64_t> begun() const {
    MutexLock lock(&mutex_);
    return begun_;
  }
  // Positions whose language sample was begun before their vision sample was
  // built.
  std::set<uint64_t> unseen() const {
    MutexLock lock(&mutex_);
    return unseen_;
  }

 private:
  bool IsClosed(v1::Module module) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closed_.has_value() &&
           (*closed_ == v1::MODULE_UNSPECIFIED || *closed_ == module);
  }

  mutable Mutex mutex_;
  mutable CondVar changed_;
  mutable int working_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable std::set<uint64_t> begun_ ABSL_GUARDED_BY(mutex_);
  mutable uint64_t builds_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, absl::Status> failing_ ABSL_GUARDED_BY(mutex_);
  mutable std::set<uint64_t> seen_
      ABSL_GUARDED_BY(mutex_);  // positions that vision has built
  mutable std::set<uint64_t> unseen_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::Module> closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_FAKE_SAMPLE_BUILDER_H_
