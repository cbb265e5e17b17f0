#include "server/corpus/mock/mock_index.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "server/command/draw/random.h"
#include "server/config/model_images.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/mock/mock_lengths.h"

namespace ballast {
namespace {

constexpr size_t kMostLengthsBytes = size_t{1} << 30;

// Sizes of the images of draw `number`.
std::vector<ImageSize> DrawImages(const v1::Source& source, uint64_t number) {
  std::vector<ImageSize> sizes;
  if (!source.has_images()) return sizes;
  const v1::Source::Images& images = source.images();
  const v1::Source::Images::Pixels& pixels = images.pixels();
  Random random(MockSeed(source), 2 * number);
  const int count = random.Between(images.min(), images.max());
  // The median of a lognormal distribution with that mean.
  const double median =
      pixels.mean() * std::exp(-pixels.sigma() * pixels.sigma() / 2);
  for (int i = 0; i < count; ++i) {
    const double area =
        random.Lognormal(median, pixels.sigma(), pixels.min(), pixels.max());
    const double ratio =
        1 + (images.aspect() - 1) * random.Below(1 << 20) / (1 << 20);
    const auto shorter = static_cast<uint32_t>(
        std::max(1.0, std::floor(std::sqrt(area / ratio))));
    const auto longer = static_cast<uint32_t>(shorter * ratio);
    const bool upright = random.Chance(50);
    sizes.push_back(upright ? ImageSize{shorter, longer}
                            : ImageSize{longer, shorter});
  }
  return sizes;
}

// Image placeholders for images of those sizes.
absl::StatusOr<uint64_t> PlaceholdersOf(absl::Span<const ImageSize> sizes,
                                        const ModelImages& model) {
  uint64_t tokens = 0;
  for (const ImageSize& size : sizes) {
    BALLAST_ASSIGN_OR_RETURN(
        const uint32_t placeholders,
        model.Placeholders(size.height, size.width,
                           static_cast<uint32_t>(sizes.size())));
    tokens += placeholders;
  }
  return tokens;
}

}  // namespace

uint64_t MockSeed(const v1::Source& source) { return Checksum(source.name()); }

absl::StatusOr<std::vector<uint32_t>> MockLengthsOf(const v1::Source& source) {
  const v1::Source::Lengths& from = source.lengths();
  if (from.mode() == v1::Source::Lengths::MODE_FILE) {
    const absl::StatusOr<std::string> text =
        ReadSmallFile(from.path(), kMostLengthsBytes);
    BALLAST_RETURN_IF_ERROR(
        Annotate(text.status(), absl::StrCat("source ", source.name())));
    absl::StatusOr<std::vector<uint32_t>> lengths = ParseLengths(*text);
    BALLAST_RETURN_IF_ERROR(
        Annotate(lengths.status(),
                 absl::StrCat("source ", source.name(), ": ", from.path())));
    return lengths;
  }
  const LognormalLengths lognormal = {from.min(), from.max(), from.mean(),
                                      from.sigma()};
  BALLAST_RETURN_IF_ERROR(
      Annotate(CheckLognormalLengths(lognormal),
               absl::StrCat("source ", source.name(), ": lengths")));
  MockLengths drawn(lognormal);
  std::vector<uint32_t> lengths(from.count());
  for (uint32_t& length : lengths) length = drawn.Next();
  return lengths;
}

absl::StatusOr<std::unique_ptr<MockIndex>> MockIndex::Draw(
    const v1::Source& source, const v1::Model& model, const v1::Batch& batch,
    const std::vector<uint32_t>& lengths) {
  std::unique_ptr<MockIndex> index(new MockIndex);
  const auto fault = [&source](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("source ", source.name(), ": ", what));
  };
  BALLAST_ASSIGN_OR_RETURN(const ModelImages sized, ModelImages::Create(model));
  // Vision start and end of an image; a family's marks are not drawn.
  const uint64_t ends = sized.is_plain() ? 2 : 0;
  uint64_t too_long = 0;
  std::string first_too_long;
  for (uint64_t number = 0; number < lengths.size(); ++number) {
    const std::vector<ImageSize> images = DrawImages(source, number);
    const absl::StatusOr<uint64_t> placeholders = PlaceholdersOf(images, sized);
    if (!placeholders.ok()) {
      return fault(absl::StrCat("an image of sample ", number, ": ",
                                placeholders.status().message()));
    }
    // Includes vision start and end of each image and at least one token of
    // text.
    const uint64_t least = *placeholders + ends * images.size() + 1;
    uint64_t tokens = std::max<uint64_t>(lengths[number], least);
    if (tokens > batch.max_tokens()) {
      if (batch.on_too_long() == v1::Batch::ON_TOO_LONG_SKIP) continue;
      if (batch.on_too_long() != v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT ||
          least > batch.max_tokens()) {
        if (++too_long == 1) {
          first_too_long =
              absl::StrCat("sample ", number, " with ", tokens, ", ", least - 1,
                           " of them of ", images.size(), " images");
        }
        continue;
      }
      tokens = batch.max_tokens();
    }
    Sample sample;
    sample.draw = number;
    sample.text_tokens = tokens - *placeholders;
    // Tokens after the images are supervised, except a sample's first token,
    // which no label names.
    sample.label_tokens =
        tokens - (least - 1) - static_cast<uint32_t>(images.empty());
    sample.num_images = images.size();
    index->samples_.push_back(sample);
    index->images_.insert(index->images_.end(), images.begin(), images.end());
  }
  if (too_long > 0) {
    return fault(absl::StrCat(
        too_long, " of ", lengths.size(), " samples have more than ",
        batch.max_tokens(), " tokens (batch.max_tokens), first ",
        first_too_long,
        "; raise it, draw shorter ones, or set batch.on_too_long to "
        "truncate_text or skip"));
  }
  if (index->samples_.empty()) {
    return fault(absl::StrCat("all samples have more than ", batch.max_tokens(),
                              " tokens (batch.max_tokens) and are left out"));
  }
  index->Seal(source);
  return index;
}

void MockIndex::Seal(const v1::Source& source) {
  first_image_.reserve(samples_.size() + 1);
  uint64_t images = 0;
  for (const Sample& sample : samples_) {
    first_image_.push_back(images);
    images += sample.num_images;
  }
  first_image_.push_back(images);
  const auto digest_of = [](const auto& values) {
    const Digest digest =
        DigestOf({reinterpret_cast<const char*>(values.data()),
                  values.size() * sizeof(values[0])});
    return absl::StrFormat("%016x%016x", digest[0], digest[1]);
  };
  // Other inputs of ids and pixels are part of the data too.
  const Digest all =
      DigestOf(absl::StrCat(digest_of(samples_), digest_of(images_), "mock 1 ",
                            MockSeed(source), " ", source.vocabulary()));
  digest_ = absl::StrFormat("%016x%016x", all[0], all[1]);
}

absl::StatusOr<IndexedSample> MockIndex::sample(uint64_t ordinal) const {
  const Sample& sample = samples_[ordinal];
  return IndexedSample{sample.text_tokens, sample.label_tokens,
                       absl::MakeConstSpan(images_).subspan(
                           first_image_[ordinal], sample.num_images)};
}

}  // namespace ballast
