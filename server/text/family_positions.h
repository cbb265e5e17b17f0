#ifndef BALLAST_SERVER_TEXT_FAMILY_POSITIONS_H_
#define BALLAST_SERVER_TEXT_FAMILY_POSITIONS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ballast {

// How a model numbers the tokens of a sample.
enum class PositionRule {
  // One axis: 0, 1, 2, … (LLaVA, InternVL, Gemma, Llama, Idefics, Pixtral).
  kSequence,
  // Three axes, MRoPE: text advances all alike, an image counts time (always
  // 0),
  // rows and columns from where it begins, and text goes on after the larger of
  // its sides (GLM, ERNIE).
  kRowsAndColumns,
  // Four axes (HunyuanVL): the sequence, then column, row and number of the
  // image
  // for its tokens and the newline after each row, and the sequence for all
  // others, among them an image's first and last placeholder.
  kColumnsRowsImage,
};

// The rule of the family of this name; kSequence for an unknown one.
PositionRule PositionRuleOf(absl::string_view family);

uint32_t AxesOf(PositionRule rule);

// The placeholders of an image among a sample's tokens.
struct PlacedImage {
  uint32_t first = 0;    // the first placeholder
  uint32_t rows = 0;     // of tokens
  uint32_t columns = 0;  // without newlines
};

// Writes the position ids of a sample of `tokens` tokens to `out`, [axes,
// tokens]. The images are in order. Errors: INVALID_ARGUMENT (the size of
// `out`; an image that overlaps the one before or goes beyond the tokens).
absl::Status NumberTokens(PositionRule rule, uint32_t tokens,
                          absl::Span<const PlacedImage> images,
                          absl::Span<int32_t> out);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_FAMILY_POSITIONS_H_
