#ifndef BALLAST_SERVER_CORPUS_INDEX_DIGEST_H_
#define BALLAST_SERVER_CORPUS_INDEX_DIGEST_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/corpus/index/index_format.h"
#include "server/corpus/index/source_index.h"

namespace ballast {

// XXH3-128, high half first.
using Digest = std::array<uint64_t, 2>;

Digest DigestOf(absl::string_view bytes);

// XXH3-64.
uint64_t Checksum(absl::string_view bytes);

// What SourceIndex::digest() promises: over text_tokens, label_tokens, the
// number of images, and each image's width and height, as little-endian 32-bit
// numbers, of all samples in order.
Digest DigestOfSamples(absl::Span<const IndexSampleRecord> samples,
                       absl::Span<const ImageSize> images);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_DIGEST_H_
