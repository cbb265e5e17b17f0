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

// The index of a source without files (docs/mock.md): lengths and image sizes,
// generated once and kept in memory, 16 bytes per sample and 8 per image.
// Immutable; thread-safe.
class MockIndex : public SourceIndex {
 public:
  // Draws sample k's image sizes from (name of the source, k) alone and takes
  // its length, image placeholders included, from `lengths`. `model` and
  // `batch` are from a loaded configuration. The same on every machine. Errors,
  // all naming the source: INVALID_ARGUMENT (samples of more than
  // batch.max_tokens, with their number and the first of them, unless
  // on_too_long handles them; images that cannot be resized; every sample left
  // out).
  static absl::StatusOr<std::unique_ptr<MockIndex>> Draw(
      const v1::Source& source, const v1::Model& model, const v1::Batch& batch,
      const std::vector<uint32_t>& lengths);

  uint64_t size() const override { return samples_.size(); }
  // Never fails.
  absl::StatusOr<IndexedSample> sample(uint64_t ordinal) const override;
  std::string digest() const override { return digest_; }

  // The number of the draw that became sample `ordinal`: some draws may be left
  // out.
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
  // Number of sample k's first image; images_.size() at the end.
  std::vector<uint64_t> first_image_;
  std::vector<ImageSize> images_;
  std::string digest_;
};

// The seed of a source's samples, from its name alone.
uint64_t MockSeed(const v1::Source& source);

// The lengths of `source`, of format mock, drawn or read from its file. Blocks
// on the disk. Errors, all naming the source: as ReadSmallFile (1 GiB) and
// ParseLengths.
absl::StatusOr<std::vector<uint32_t>> MockLengthsOf(const v1::Source& source);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_MOCK_MOCK_INDEX_H_
