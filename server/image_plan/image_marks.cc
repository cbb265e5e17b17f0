#include "server/image_plan/image_marks.h"

namespace ballast {
namespace {

ImageMarks Gemma3() {
  return {.placeholder = "<image_soft_token>",
          .view_before = "\n\n<start_of_image>",
          .view_after = "<end_of_image>\n\n",
          .tile_before = "\n\n<start_of_image>",
          .tile_after = "<end_of_image>\n\n",
          .tile_seam = " ",
          .tile_row_seam = " ",
          .view_seam = " and here are some crops to help you see better ",
          .cut_before = "Here is the original image "};
}

ImageMarks Idefics() {
  return {.placeholder = "<image>",
          .view_before = "<fake_token_around_image><global-img>",
          .view_after = "<fake_token_around_image>",
          .tile_before = "<fake_token_around_image><row_{row}_col_{column}>",
          .tile_row_end = "\n",
          .view_seam = "\n"};
}

ImageMarks Llama4() {
  return {.placeholder = "<|patch|>",
          .before = "<|image_start|>",
          .after = "<|image_end|>",
          .view_before = "<|image|>",
          .tile_seam = "<|tile_x_separator|>",
          .tile_row_end = "<|tile_y_separator|>"};
}

ImageMarks MiniCpm() {
  return {.placeholder = "<|image_pad|>",
          .before = "<image_id>{image}</image_id>",
          .view_before = "<image>",
          .view_after = "</image>",
          .tile_before = "<slice>",
          .tile_after = "</slice>",
          .tile_row_seam = "\n"};
}

}  // namespace

ImageMarks MarksOf(absl::string_view family) {
  if (family == "ernie4_5_vl") {
    return {.placeholder = "<|IMAGE_PLACEHOLDER|>",
            .before = "<|IMAGE_START|>",
            .after = "<|IMAGE_END|>"};
  }
  if (family == "gemma3" || family == "gemma3_pan_and_scan") return Gemma3();
  if (family == "gemma4") {
    return {
        .placeholder = "<|image|>", .before = "<|image>", .after = "<image|>"};
  }
  if (family == "glm46v" || family == "glm4v") {
    return {.placeholder = "<|image|>",
            .before = "<|begin_of_image|>",
            .after = "<|end_of_image|>"};
  }
  if (family == "hunyuan_vl") {
    return {.placeholder = "<｜hy_place▁holder▁no▁102｜>",
            .before = "<｜hy_place▁holder▁no▁100｜>",
            .after = "<｜hy_place▁holder▁no▁101｜>"};
  }
  if (family == "idefics3" || family == "smolvlm") return Idefics();
  if (family == "internvl3") {
    return {
        .placeholder = "<IMG_CONTEXT>", .before = "<img>", .after = "</img>"};
  }
  if (family == "kimi_k25") {
    return {.placeholder = "<|media_pad|>",
            .before = "<|media_begin|>image<|media_content|>",
            .after = "<|media_end|>"};
  }
  if (family == "llama4") return Llama4();
  if (family == "llava1_5" || family == "llava1_5_pad" ||
      family == "llava_next" || family == "llava_onevision") {
    return {.placeholder = "<image>"};
  }
  if (family == "minicpmv4_6") return MiniCpm();
  if (family == "pixtral") {
    return {.placeholder = "[IMG]",
            .row_end = "[IMG_BREAK]",
            .last_row_end = "[IMG_END]"};
  }
  return {};
}

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
