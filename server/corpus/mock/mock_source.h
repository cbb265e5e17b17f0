#ifndef BALLAST_SERVER_CORPUS_MOCK_MOCK_SOURCE_H_
#define BALLAST_SERVER_CORPUS_MOCK_MOCK_SOURCE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/config/model_images.h"
#include "server/corpus/mock/mock_index.h"
#include "server/corpus/sample_source.h"

namespace ballast {

// A source without files (docs/mock.md). Texts are token ids, images PNG files;
// both are generated when read, from the name of the source and the number of
// the sample alone. Thread-safe.
class MockSource : public SampleSource {
 public:
  // `source`, of format mock, `model` and `batch` are from a loaded
  // configuration. Reads the file of lengths, if there is one. Errors: as
  // MockLengthsOf and MockIndex::Draw; INVALID_ARGUMENT (source.vocabulary
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

#endif  // BALLAST_SERVER_CORPUS_MOCK_MOCK_SOURCE_H_
