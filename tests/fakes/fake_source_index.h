#ifndef BALLAST_TESTS_FAKES_FAKE_SOURCE_INDEX_H_
#define BALLAST_TESTS_FAKES_FAKE_SOURCE_INDEX_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/sample/source_index.h"

namespace ballast {

// An index over samples given as values.
class FakeSourceIndex : public SourceIndex {
 public:
  struct Sample {
    uint32_t text_tokens = 0;
    uint32_t label_tokens = 0;
    std::vector<ImageSize> images;
    // Empty, or one for each image.
    std::vector<ImageMark> marks = {};
    std::vector<uint64_t> content_hashes = {};
    uint16_t text_check = 0;
  };

  explicit FakeSourceIndex(std::vector<Sample> samples,
                           std::string digest = std::string(32, '0'))
      : samples_(std::move(samples)), digest_(std::move(digest)) {}

  // For tests to change.
  Sample* mutable_sample(uint64_t ordinal) { return &samples_[ordinal]; }
  void set_rule(EncodedRule rule) { rule_ = rule; }

  uint64_t size() const override { return samples_.size(); }
  absl::StatusOr<IndexedSample> sample(uint64_t ordinal) const override {
    const Sample& sample = samples_[ordinal];
    IndexedSample indexed = {sample.text_tokens, sample.label_tokens,
                             MediaList(sample.images, sample.marks), rule_};
    indexed.text_check = sample.text_check;
    return indexed;
  }
  std::string digest() const override { return digest_; }
  absl::StatusOr<MediaHashes> media_hashes(uint64_t ordinal) const override {
    return MediaHashes{samples_[ordinal].content_hashes, {}};
  }

 private:
  std::vector<Sample> samples_;
  std::string digest_;
  EncodedRule rule_ = EncodedRule::kChecked;
};

// `n` samples that cycle through text only, one image and several images; sizes
// and lengths are a formula of the ordinal.
inline std::vector<FakeSourceIndex::Sample> FormulaSamples(uint32_t n) {
  std::vector<FakeSourceIndex::Sample> samples(n);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t images = i % 4;
    samples[i].text_tokens = 20 + i * 7 % 50 + 2 * images;
    samples[i].label_tokens = 5 + i % 11;
    for (uint32_t k = 0; k < images; ++k) {
      samples[i].images.push_back(
          {56 + (i * 29 + k * 83) % 500, 56 + (i * 53 + k * 31) % 700});
    }
  }
  return samples;
}

// Samples with one tall image each.
inline std::vector<FakeSourceIndex::Sample> Receipts(uint32_t n) {
  std::vector<FakeSourceIndex::Sample> samples(n);
  for (uint32_t i = 0; i < n; ++i) {
    samples[i].text_tokens = 100 + i * 37 % 400;
    samples[i].label_tokens = 50;
    samples[i].images.push_back({300 + i * 53 % 200, 600 + i * 101 % 900});
  }
  return samples;
}

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_FAKE_SOURCE_INDEX_H_
