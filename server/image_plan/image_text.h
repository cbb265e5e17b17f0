#ifndef BALLAST_SERVER_IMAGE_PLAN_IMAGE_TEXT_H_
#define BALLAST_SERVER_IMAGE_PLAN_IMAGE_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/image_plan/image_family.h"
#include "server/image_plan/tile_grid.h"

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

// The tokens of an image's text.
struct ImageTextCounts {
  uint64_t placeholders = 0;
  uint64_t special_tokens = 0;
  // Bytes of all other text. The number of their tokens depends on the
  // tokenizer and, at both ends of the image, on the adjacent text.
  uint64_t text_bytes = 0;
};

// The text that the family's processor writes for an image: its placeholders,
// of which there are plan.placeholders, and the family's marks around them; or
// the text of the recipe's plan, if it has one.
// `plan` is a plan of this family; `image` is the number of the image in its
// sample, from 0. No two runs and no two texts are adjacent. Empty for a family
// without a placeholder.
std::vector<ImageTextPiece> ImageText(const ImageFamily& family,
                                      const ImagePlan& plan, uint32_t image);

ImageTextCounts CountImageText(absl::Span<const ImageTextPiece> pieces);

// The special tokens that a text spells out, in order. They point into `text`.
std::vector<absl::string_view> SpecialTokensIn(absl::string_view text);

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_PLAN_IMAGE_TEXT_H_
