#ifndef BALLAST_SERVER_MEDIA_IMAGE_PLAN_IMAGE_TEXT_H_
#define BALLAST_SERVER_MEDIA_IMAGE_PLAN_IMAGE_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/media/image_plan/image_family.h"
#include "server/media/image_plan/tile_grid.h"
#include "server/sample/image_header.h"

namespace ballast {

// A part of the text that represents an image: a run of placeholders, or a
// text.
struct ImageTextPiece {
  uint64_t placeholders = 0;  // 0: `text`
  std::string text;           // UTF-8, special tokens spelled out
  // The placeholders are a video's, which have another token id.
  bool is_video = false;
  // Likewise a clip of audio's.
  bool is_audio = false;
};

// The text that the family's processor writes for an image: its placeholders,
// of which there are plan.placeholders, and the family's marks around them; or
// the text of the recipe's plan, if it has one.
// `plan` is a plan of this family; `image` is the number of the image in its
// sample, from 0. No two runs and no two texts are adjacent. Empty for a family
// without a placeholder.
std::vector<ImageTextPiece> ImageText(const ImageFamily& family,
                                      const ImagePlan& plan, uint32_t image);

// The special tokens that a text spells out, in order. They point into `text`.
std::vector<absl::string_view> SpecialTokensIn(absl::string_view text);

// The inputs of the random numbers of a sample's images, besides its source and
// their number.
struct ImageDraw {
  uint64_t seed = 0;     // order.seed
  uint64_t epoch = 0;    // completed passes through the source
  uint64_t ordinal = 0;  // of the sample in its source's index

  friend bool operator==(const ImageDraw&, const ImageDraw&) = default;
};

// An image before it is decoded: all that its plan depends on.
struct PlanFacts {
  uint32_t height = 0;
  uint32_t width = 0;
  uint32_t images = 1;  // of its sample
  uint32_t number = 0;  // among them, from 0
  absl::string_view source;
  absl::string_view split;
  ImageDraw draw;
};

// The images of a sample. Without a recipe of the model only their sides count.
struct SampleImages {
  SampleImages() = default;
  SampleImages(absl::Span<const ImageSize> all) : sides(all) {}
  SampleImages(const std::vector<ImageSize>& all) : sides(all) {}

  size_t size() const { return sides.size(); }
  PlanFacts Get(size_t i) const {
    return {sides[i].height,
            sides[i].width,
            static_cast<uint32_t>(sides.size()),
            static_cast<uint32_t>(i),
            source,
            split,
            draw.value_or(ImageDraw())};
  }

  absl::Span<const ImageSize> sides;
  absl::string_view source;
  absl::string_view split;  // "train"
  // Unset where the sample is measured for every epoch, as in an index.
  std::optional<ImageDraw> draw;
};

// What a recipe gave as an image's plan, without its crops.
struct RecipePlan {
  // As the recipe gave it: what it must give again.
  std::string json;
  // Empty: the family's marks are around the placeholders.
  std::vector<ImageTextPiece> text;
  std::optional<uint64_t> tokens;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_IMAGE_PLAN_IMAGE_TEXT_H_
