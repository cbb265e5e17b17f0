#include "server/corpus/index/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ballast {

Digest DigestOf(absl::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

uint64_t Checksum(absl::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Digest DigestOfSamples(absl::Span<const IndexSampleRecord> samples,
                       absl::Span<const ImageSize> images) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (const IndexSampleRecord& sample : samples) {
    const uint32_t numbers[] = {sample.text_tokens, sample.label_tokens,
                                sample.num_images};
    XXH3_128bits_update(&state, numbers, sizeof(numbers));
    XXH3_128bits_update(&state, images.data() + sample.first_image,
                        sample.num_images * sizeof(ImageSize));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return {hash.high64, hash.low64};
}

}  // namespace ballast
