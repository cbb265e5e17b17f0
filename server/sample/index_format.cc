#include "server/sample/index_format.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ballast {

Digest ComputeDigest(absl::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

uint64_t Checksum(absl::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t TextHash(absl::string_view key, absl::string_view text) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, key.data(), key.size());
  XXH3_64bits_update(&state, "", 1);
  XXH3_64bits_update(&state, text.data(), text.size());
  return XXH3_64bits_digest(&state);
}

struct ContentHash::State {
  XXH3_state_t hash;
};

ContentHash::ContentHash() : state_(new State) {
  XXH3_64bits_reset(&state_->hash);
}

ContentHash::~ContentHash() = default;

void ContentHash::Add(absl::string_view bytes) {
  XXH3_64bits_update(&state_->hash, bytes.data(), bytes.size());
}

uint64_t ContentHash::value() const {
  return XXH3_64bits_digest(&state_->hash);
}

void ImagesHash::Add(uint64_t length, absl::string_view head) {
  const uint64_t numbers[] = {value_, length,
                              XXH3_64bits(head.data(), head.size())};
  value_ = XXH3_64bits(numbers, sizeof(numbers));
}

Digest DigestOfSamples(absl::Span<const IndexSampleRecord> samples,
                       absl::Span<const ImageSize> images,
                       absl::Span<const uint64_t> group_starts,
                       absl::Span<const uint64_t> video_starts,
                       absl::Span<const StreamFacts> videos, FrameTimes times) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (const IndexSampleRecord& sample : samples) {
    const uint32_t numbers[] = {sample.text_tokens, sample.label_tokens,
                                sample.num_images};
    XXH3_128bits_update(&state, numbers, sizeof(numbers));
    const uint64_t checks[] = {sample.text_check, sample.image_check};
    XXH3_128bits_update(&state, checks, sizeof(checks));
    if (const uint32_t first = sample.first_text_tokens; first != 0) {
      XXH3_128bits_update(&state, &first, sizeof(first));
    }
    XXH3_128bits_update(&state, images.data() + sample.first_image,
                        sample.num_images * sizeof(ImageSize));
  }
  XXH3_128bits_update(&state, group_starts.data(),
                      group_starts.size() * sizeof(uint64_t));
  // A source whose only videos are of samples left out is as one without.
  if (!videos.empty()) {
    XXH3_128bits_update(&state, video_starts.data(),
                        video_starts.size() * sizeof(uint64_t));
    XXH3_128bits_update(&state, videos.data(),
                        videos.size() * sizeof(StreamFacts));
    XXH3_128bits_update(&state, times.data(), times.size() * sizeof(uint32_t));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return {hash.high64, hash.low64};
}

uint64_t PicturesHash(absl::Span<const uint64_t> hashes) {
  return XXH3_64bits(hashes.data(), hashes.size() * sizeof(uint64_t));
}

Digest DigestOfHashes(absl::Span<const IndexSampleRecord> samples,
                      absl::Span<const uint64_t> hashes,
                      absl::Span<const uint64_t> video_starts,
                      absl::Span<const uint64_t> video_hashes) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (size_t i = 0; i < samples.size(); ++i) {
    absl::Span<const uint64_t> videos;
    if (!video_starts.empty()) {
      videos = video_hashes.subspan(video_starts[i],
                                    video_starts[i + 1] - video_starts[i]);
    }
    const uint32_t counts[] = {samples[i].num_images,
                               static_cast<uint32_t>(videos.size())};
    XXH3_128bits_update(&state, counts, sizeof(counts));
    XXH3_128bits_update(&state, hashes.data() + samples[i].first_image,
                        samples[i].num_images * sizeof(uint64_t));
    XXH3_128bits_update(&state, videos.data(),
                        videos.size() * sizeof(uint64_t));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return {hash.high64, hash.low64};
}

Digest DigestOfEncoded(absl::Span<const IndexSampleRecord> samples,
                       absl::Span<const ImageMark> marks,
                       absl::Span<const uint64_t> hashes, EncodedRule rule) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (const IndexSampleRecord& sample : samples) {
    const uint64_t end = sample.first_image + sample.num_images;
    for (uint64_t i = sample.first_image; i < end; ++i) {
      const uint32_t bytes = EncodedBytes(marks[i], rule);
      XXH3_128bits_update(&state, &bytes, sizeof(bytes));
      if (bytes == 0) continue;
      const uint64_t hash = hashes.empty() ? 0 : hashes[i];
      XXH3_128bits_update(&state, &hash, sizeof(hash));
    }
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return {hash.high64, hash.low64};
}

}  // namespace ballast
