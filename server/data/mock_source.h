#ifndef BALLAST_SERVER_DATA_MOCK_SOURCE_H_
#define BALLAST_SERVER_DATA_MOCK_SOURCE_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/model/model_images.h"
#include "server/sample/sample_source.h"
#include "server/sample/source_index.h"

namespace ballast {
// The distribution of a mock source's lengths: `lengths` of `mode: lognormal`
// in the configuration.
struct LognormalLengths {
  uint32_t min = 1;  // tokens; lower draws are clipped to it
  uint32_t max = 1;  // tokens; higher draws are clipped to it
  // Mean before clipping, in tokens; clipping changes it.
  double mean = 1;
  double sigma = 0;  // deviation of the logarithm
};

// Errors: INVALID_ARGUMENT, naming the value outside its range: min and max 1
// to 2^24, min not above max; mean above 0, to 2^24; sigma 0 to 100.
absl::Status CheckLognormalLengths(const LognormalLengths& lengths);

// The lengths in `text`, the content of a file: whole numbers of 1 to 2^24, one
// per line or separated by commas. A first line without a number is a heading;
// empty lines are skipped. Pure. Errors: INVALID_ARGUMENT (anything else,
// naming the line; no number at all; over 2^28 numbers).
absl::StatusOr<std::vector<uint32_t>> ParseLengths(absl::string_view text);

// Draws the lengths of Megatron-LM's mock datasets, i.e.
//
//   numpy.random.seed(0)
//   numpy.clip(numpy.random.lognormal(ln(mean) - sigma^2 / 2, sigma, n),
//              min, max).astype(int)
//
// This is MT19937 seeded with 0, two 32-bit draws per double, and the polar
// Box-Muller method. The first n lengths are the same for every n. Pure;
// thread-compatible. A length whose exact value is within an ulp of a whole
// number could differ under a C library whose `exp` and `log` round
// differently.
class MockLengths {
 public:
  // `lengths` must pass CheckLognormalLengths.
  explicit MockLengths(const LognormalLengths& lengths);

  // The next length, in [min, max] tokens.
  uint32_t Next();

 private:
  // Uniform in [0, 1), 53 bits.
  double NextUniform();
  // Normal, with mean 0 and deviation 1.
  double NextNormal();

  LognormalLengths lengths_;
  double mu_;
  std::mt19937 bits_{0};
  // Box-Muller draws two numbers at a time.
  bool has_second_ = false;
  double second_ = 0;
};

// The index of a source without files (docs/mock.md): lengths and image sizes,
// generated once and kept in memory, 16 bytes per sample and 8 per image.
// Immutable; thread-safe.
class MockIndex : public SourceIndex {
 public:
  // Draws sample k's image sizes from (name of the source, k) alone and takes
  // its length, image placeholders included, from `lengths`. `model` and
  // `batch` are from a loaded configuration. The same on every machine. Errors:
  // INVALID_ARGUMENT, naming the source (samples of more than batch.max_tokens
  // that on_too_long does not handle; images that cannot be resized; no sample
  // is left).
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
absl::StatusOr<std::vector<uint32_t>> GetMockLengths(const v1::Source& source);

// A source without files (docs/mock.md). Texts are token ids, images PNG files;
// both are generated when read, from the name of the source and the number of
// the sample alone. Thread-safe.
class MockSource : public SampleSource {
 public:
  // `source`, of format mock, `model` and `batch` are from a loaded
  // configuration. Reads the file of lengths, if there is one. Errors: as
  // GetMockLengths and MockIndex::Draw; INVALID_ARGUMENT (source.vocabulary
  // holds special ids only).
  static absl::StatusOr<std::unique_ptr<MockSource>> Create(
      const v1::Source& source, const v1::Model& model, const v1::Batch& batch);

  const SourceIndex& index() const override { return *index_; }
  // Never touches the disk. Errors: OUT_OF_RANGE (no such sample),
  // RESOURCE_EXHAUSTED or INTERNAL (libpng).
  absl::StatusOr<FaultOr<RawSample>> Read(uint64_t ordinal,
                                          ReadParts parts) const override;
  // Gives the source's name as the file and the number of the draw as the
  // offset.
  SampleLocation Locate(uint64_t ordinal) const override;

 private:
  MockSource(const v1::Source& source, const v1::Model& model,
             ModelImages images, std::vector<uint32_t> special,
             std::unique_ptr<const MockIndex> index)
      : source_(source),
        model_(model),
        images_(std::move(images)),
        special_(std::move(special)),
        index_(std::move(index)) {}

  // Ids of sample `ordinal`, as RawSample::TextFormat::kPackedBytes.
  absl::StatusOr<std::string> DrawText(uint64_t ordinal) const;

  const v1::Source source_;
  const v1::Model model_;
  const ModelImages images_;
  const std::vector<uint32_t> special_;  // ids that no text holds; ascending
  const std::unique_ptr<const MockIndex> index_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_MOCK_SOURCE_H_
