#ifndef BALLAST_PROTO_BLOCK_BLOCK_VIEW_H_
#define BALLAST_PROTO_BLOCK_BLOCK_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/block/block_layout.h"
#include "proto/block/block_plan.h"

namespace ballast {

// Copies the header out of a received block. Checks magic, version and that
// total_bytes is the length, but no sample. Any bytes at any address are safe
// to pass. Errors: INVALID_ARGUMENT naming the field, the value found and the
// value wanted.
absl::StatusOr<BlockHeader> ReadBlockHeader(absl::Span<const uint8_t> bytes);

// A received block, checked. Borrows the bytes, which must outlive it and begin
// at a multiple of 16. Thread-compatible; every accessor is O(1).
class BlockView {
 public:
  // Checks magic, version and that every table, sample and image is inside
  // `bytes` without overflow. Any bytes are safe to pass. Errors:
  // INVALID_ARGUMENT naming the field, the value found and the value wanted.
  static absl::StatusOr<BlockView> Parse(absl::Span<const uint8_t> bytes);

  // Checks in addition that this is the block of `plan`: same identity
  // (fingerprint, step, micro-batch, module, rank), same number of
  // micro-batches in the step, same samples in the same order at the same
  // places. Errors: DATA_LOSS, naming the first difference.
  absl::Status Matches(const BlockPlan& plan) const;

  const BlockHeader& header() const { return *header_; }
  absl::Span<const SampleRecord> samples() const { return samples_; }
  // The images of all samples; sample.first_image indexes them.
  absl::Span<const ImageRecord> images() const { return images_; }
  absl::Span<const ImageRecord> images(const SampleRecord& sample) const {
    return images_.subspan(sample.first_image, sample.num_images);
  }
  absl::Span<const uint8_t> payload(const SampleRecord& sample) const {
    return bytes_.subspan(sample.payload, sample.payload_bytes);
  }
  absl::Span<const uint8_t> bytes() const { return bytes_; }

 private:
  BlockView() = default;

  absl::Span<const uint8_t> bytes_;
  const BlockHeader* header_ = nullptr;
  absl::Span<const SampleRecord> samples_;
  absl::Span<const ImageRecord> images_;
};

// Writes header and tables of `plan` into the first header.payload bytes of
// `block`, which must be at least plan.bytes() long and 16-aligned; padding
// before the payload is zeroed. The payloads are left to the caller.
void WriteBlockTables(const BlockPlan& plan, absl::Span<uint8_t> block);

// Sets kSampleIsPlaceholder on the sample at `index` of a block whose tables
// are written.
void MarkPlaceholder(const BlockPlan& plan, uint32_t index,
                     absl::Span<uint8_t> block);

// A PullResponse with a chunk as bytes on the wire: a few bytes of protobuf
// framing, then the data. A server sends the data from where they are, and a
// client copies them to their place.

// Length of the longest framing of any chunk.
inline constexpr size_t kMaxChunkPrefix = 2 * (1 + 10);

// The framing before `length` bytes of data.
std::string ChunkPrefix(uint64_t length);

// The length of the framing of a message of `message_bytes` that is one chunk
// framed as by ChunkPrefix; the rest is data. nullopt for any other message,
// which protobuf may still be able to read.
// `first`: the message's first kMaxChunkPrefix bytes, or the whole message if
// shorter. Any bytes are safe to pass.
std::optional<size_t> ReadChunkPrefix(absl::Span<const uint8_t> first,
                                      uint64_t message_bytes);

}  // namespace ballast

#endif  // BALLAST_PROTO_BLOCK_BLOCK_VIEW_H_
