#ifndef BALLAST_SERVER_CORPUS_MOCK_MOCK_INDEX_H_
#define BALLAST_SERVER_CORPUS_MOCK_MOCK_INDEX_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/corpus/index/source_index.h"

namespace ballast {

// The index of a source without files: lengths and image sizes as docs/mock.md
// says, drawn once and kept in memory, 16 bytes a sample and 8 an image.
// Immutable; thread-safe.
class MockIndex : public SourceIndex {
 public:
  // Draws sample k's image sizes from (name of the source, k) alone, its length
  // from `lengths`, one a sample, which count image placeholders too. `model`
  // and `batch` are of a loaded configuration. The same on every machine.
  // Errors, which name the source: INVALID_ARGUMENT (samples of more than
  // batch.max_tokens, how many, and the first of them, unless on_too_long says
  // what becomes of them; images that cannot be resized; no sample that is not
  // left out).
  static absl::StatusOr<std::unique_ptr<MockIndex>> Draw(
      const v1::Source& source, const v1::Model& model, const v1::Batch& batch,
      const std::vector<uint32_t>& lengths);

  uint64_t size() const override { return samples_.size(); }
  // Never fails.
  absl::StatusOr<IndexedSample> sample(uint64_t ordinal) const override;
  std::string digest() const override { return digest_; }

  // Which of the draws sample `ordinal` is: some may have been left out.
  uint64_t draw(uint64_t ordinal) const { return samples_[ordinal].draw; }

 private:
  struct Sample {
    uint32_t draw = 0;
    uint32_t text_tokens = 0;
    uint32_t label_tokens = 0;
    uint32_t num_images = 0;
  };
  MockIndex() = default;
  void Seal(const v1::Source& source);

  std::vector<Sample> samples_;
  // Of sample k's first image; images_.size() at the end.
  std::vector<uint64_t> first_image_;
  std::vector<ImageSize> images_;
  std::string digest_;
};

// What the random numbers of a source's samples begin from: of its name alone.
uint64_t MockSeed(const v1::Source& source);

// The lengths that `source`, of format mock, draws or its file holds. Blocks on
// the disk. Errors, which name the source: those of ReadSmallFile (1 GiB) and
// ParseLengths.
absl::StatusOr<std::vector<uint32_t>> MockLengthsOf(const v1::Source& source);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_MOCK_MOCK_INDEX_H_
