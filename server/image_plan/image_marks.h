#ifndef BALLAST_SERVER_IMAGE_PLAN_IMAGE_MARKS_H_
#define BALLAST_SERVER_IMAGE_PLAN_IMAGE_MARKS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ballast {

// The text that stands for an image in every text of a family, in UTF-8: runs
// of the placeholder and the other texts around them. Most families' processors
// write all of it. Those of ERNIE, GLM, HunyuanVL and Kimi write the run alone,
// and the chat template before and after; they belong to the image all the
// same, also in a document or another chat template. Special tokens are
// spelled out; a stretch `<...>` or `[...]` without white space is one. Empty
// texts are not written.
//
// A view is the placeholders of the whole image: all of them, or those of the
// thumbnail beside the tiles of an image that is cut. The image is written as
//
//   uncut   before, view, after
//   cut     before, cut_before, view and tiles in the order of the crops with
//           view_seam between, after
struct ImageMarks {
  std::string placeholder =
      {};  // the token that the model replaces by features
  // Around the image. `{image}` stands for its number in its sample, from 0.
  std::string before = {};
  std::string after = {};
  // Of an uncut image: after each row of placeholders but the last, and after
  // the last.
  std::string row_end = {};
  std::string last_row_end = {};
  // Around each view, and around each tile. `{row}` and `{column}` stand for
  // those of the tile, from 1.
  std::string view_before = {};
  std::string view_after = {};
  std::string tile_before = {};
  std::string tile_after = {};
  std::string tile_seam = {};      // between the tiles of a row
  std::string tile_row_end = {};   // after each row of tiles
  std::string tile_row_seam = {};  // between rows of tiles
  std::string view_seam = {};      // between view and tiles
  std::string cut_before = {};     // before an image that is cut
};

// The marks of the family of this name, as its released checkpoints know them;
// empty for an encoder without text and for an unknown name.
ImageMarks MarksOf(absl::string_view family);

// All texts of the marks, in the order of the fields.
std::vector<const std::string*> TextsOf(const ImageMarks& marks);

// Whether marks other than placeholder, before and after are set: placeholders
// are then written crop by crop or row by row, else as one run.
bool MarksParts(const ImageMarks& marks);

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_PLAN_IMAGE_MARKS_H_
