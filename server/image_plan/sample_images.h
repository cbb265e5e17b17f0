#ifndef BALLAST_SERVER_IMAGE_PLAN_SAMPLE_IMAGES_H_
#define BALLAST_SERVER_IMAGE_PLAN_SAMPLE_IMAGES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/image_plan/image_family.h"
#include "server/image_plan/image_text.h"

namespace ballast {

// What the random numbers of a sample's images follow from, beside its source
// and their number.
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
  SampleImages(absl::Span<const TileShape> all) : sides(all) {}
  SampleImages(const std::vector<TileShape>& all) : sides(all) {}

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

  absl::Span<const TileShape> sides;
  absl::string_view source;
  absl::string_view split;  // "train"
  // Unset where the sample is measured for every epoch, as in an index.
  std::optional<ImageDraw> draw;
};

// What a recipe gave as an image's plan, beside its crops.
struct RecipePlan {
  // As the recipe gave it: what it must give again.
  std::string json;
  // Empty: the family's marks are around the placeholders.
  std::vector<ImageTextPiece> text;
  std::optional<uint64_t> tokens;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_PLAN_SAMPLE_IMAGES_H_
