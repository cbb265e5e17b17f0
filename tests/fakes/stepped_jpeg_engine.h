#ifndef BALLAST_TESTS_FAKES_STEPPED_JPEG_ENGINE_H_
#define BALLAST_TESTS_FAKES_STEPPED_JPEG_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "trainer_shim/jpeg_engine.h"

namespace ballast {

// Holds engines back: each batch takes a permit, so that the test decides when
// it ends. Thread-safe.
class EngineGate {
 public:
  void Permit(int batches) {
    MutexLock lock(&mutex_);
    permits_ += batches;
    changed_.NotifyAll();
  }
  void Enter(uint32_t batch) {
    MutexLock lock(&mutex_);
    order_.push_back(batch);
    changed_.NotifyAll();
    while (permits_ == 0) changed_.Wait(&mutex_);
    --permits_;
  }
  // The batches that engines have taken, once there are `count`.
  std::vector<uint32_t> Taken(size_t count) {
    MutexLock lock(&mutex_);
    while (order_.size() < count) changed_.Wait(&mutex_);
    return order_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int permits_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<uint32_t> order_ ABSL_GUARDED_BY(mutex_);
};

// Decodes nothing. The first image's width names the batch; the bytes "bad" are
// damaged.
class SteppedJpegEngine final : public JpegEngine {
 public:
  explicit SteppedJpegEngine(EngineGate* gate) : gate_(gate) {}

  absl::Status Decode(absl::Span<const EncodedJpeg> images) override {
    gate_->Enter(images[0].form.width);
    counts_.by_hardware += images.size();
    counts_.bytes += 10 * images.size();
    if (images[0].bytes == "bad") return absl::InvalidArgumentError("bad");
    return absl::OkStatus();
  }
  JpegEngineCounts counts() const override { return counts_; }

 private:
  EngineGate* const gate_;
  JpegEngineCounts counts_;
};

inline std::vector<std::unique_ptr<JpegEngine>> SteppedEngines(
    int engines, EngineGate* gate) {
  std::vector<std::unique_ptr<JpegEngine>> stepped;
  for (int i = 0; i < engines; ++i) {
    stepped.push_back(std::make_unique<SteppedJpegEngine>(gate));
  }
  return stepped;
}

// A batch for stepped engines.
inline std::vector<EncodedJpeg> SteppedBatch(uint32_t name, size_t images,
                                             absl::string_view bytes = "good") {
  EncodedJpeg image;
  image.bytes = bytes;
  image.form = {name, 1, ChromaSampling::kGrey};
  return std::vector<EncodedJpeg>(images, image);
}

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_STEPPED_JPEG_ENGINE_H_
