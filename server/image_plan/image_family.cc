#include "server/image_plan/image_family.h"

namespace ballast {

std::vector<const std::string*> TextsOf(const ImageMarks& marks) {
  return {&marks.placeholder, &marks.before,       &marks.after,
          &marks.row_end,     &marks.last_row_end, &marks.view_before,
          &marks.view_after,  &marks.tile_before,  &marks.tile_after,
          &marks.tile_seam,   &marks.tile_row_end, &marks.tile_row_seam,
          &marks.view_seam,   &marks.cut_before};
}

bool MarksParts(const ImageMarks& marks) {
  for (const std::string* text : TextsOf(marks)) {
    const bool is_of_image = text == &marks.placeholder ||
                             text == &marks.before || text == &marks.after;
    if (!is_of_image && !text->empty()) return true;
  }
  return false;
}

}  // namespace ballast
