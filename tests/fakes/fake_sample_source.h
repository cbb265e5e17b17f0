#ifndef BALLAST_TESTS_FAKES_FAKE_SAMPLE_SOURCE_H_
#define BALLAST_TESTS_FAKES_FAKE_SAMPLE_SOURCE_H_

#include <climits>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "proto/config.pb.h"
#include "server/sample/sample_source.h"
#include "tests/fakes/fake_source_index.h"

namespace ballast {

// Channels of the pixel at (x, y) of the formula's images.
inline uint8_t FormulaPixel(uint64_t ordinal, uint32_t image, uint32_t x,
                            uint32_t y, uint32_t channel) {
  return static_cast<uint8_t>(ordinal * 37 + image * 101 + x * 3 + y * 5 +
                              channel * 17);
}

// An image of the formula as a PNG file.
std::string FormulaPng(uint64_t ordinal, uint32_t image, uint32_t width,
                       uint32_t height);

// Conversations in memory with 0, 1, 2, 3, 0, … images, PNG files whose sizes
// and pixels are formulas of the ordinal, and an index measured from them by
// the project's own text code. Thread-safe.
class FakeSampleSource : public SampleSource {
 public:
  // `config` is complete and names the bytes tokenizer.
  FakeSampleSource(const v1::Config& config, uint32_t samples);

  const SourceIndex& index() const override { return index_; }
  absl::StatusOr<FaultOr<RawSample>> Read(uint64_t ordinal,
                                          ReadParts parts) const override;

  // The stored sample, for tests to damage.
  RawSample* mutable_sample(uint64_t ordinal) { return &samples_[ordinal]; }
  FakeSourceIndex* mutable_index() { return &index_; }
  SampleLocation Locate(uint64_t ordinal) const override {
    return {"fake.jsonl", 100 * ordinal};
  }

  // Makes every Read of `ordinal`, or the next `times`, return `status`, or the
  // data fault that it reports (ToDataFault).
  void Fail(uint64_t ordinal, absl::Status status, int times = INT_MAX);
  // Makes every Read of `ordinal` block until Release.
  void Hang(uint64_t ordinal);
  void Release();
  // Waits until this many Reads are blocked.
  void AwaitHanging(int reads) const;

  // Lets `ordinal` be read from memory; other samples cannot be.
  void KeepInMemory(uint64_t ordinal);

  // Samples whose text, or whose images, have been read so far.
  std::set<uint64_t> texts_read() const;
  std::set<uint64_t> images_read() const;

 private:
  std::vector<RawSample> samples_;
  FakeSourceIndex index_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  struct Failure {
    absl::Status status;
    int times;
  };
  mutable std::map<uint64_t, Failure> failing_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> hanging_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> in_memory_ ABSL_GUARDED_BY(mutex_);
  mutable int hanging_reads_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable std::set<uint64_t> texts_read_ ABSL_GUARDED_BY(mutex_);
  mutable std::set<uint64_t> images_read_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_FAKE_SAMPLE_SOURCE_H_
