#ifndef BALLAST_TESTS_INTEGRATION_RESIZED_MODELS_H_
#define BALLAST_TESTS_INTEGRATION_RESIZED_MODELS_H_

#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {

// Keys of models for EncodedJob: every filter, of all libraries, and a rule of
// each form of batch.
inline std::vector<std::string> ResizedModels() {
  const std::string tokenizer =
      ::testing::TempDir() + "/resized_tokenizer.json";
  auto json = SmallTokenizerJson();
  json["added_tokens"].push_back(AddedTokenJson(256, "<image>"));
  json["added_tokens"].push_back(AddedTokenJson(257, "<s>"));
  json["added_tokens"].push_back(AddedTokenJson(258, "</s>"));
  std::ofstream(tokenizer) << json;
  const auto own = [&](const char* numbers) {
    return absl::StrCat(
        "tokenizer: '", tokenizer,
        "', token_ids: {end_of_text: 258}, chat_template: llava1_5, "
        "mean: [0.5, 0.4, 0.3], std: [0.2, 0.3, 0.4], "
        "image_family: {patch: 14, marks: {placeholder: '<image>'}, rule: ",
        numbers);
  };
  return {
      "profile: qwen2_5_vl, max_pixels: 60000, resample: torchvision",
      "profile: qwen2_5_vl, max_pixels: 20000, resample: pillow13",
      own("fixed_size, tile: 126, max_tiles: 1, filter: bilinear}"),
      own("fixed_size, tile: 130, max_tiles: 1, filter: bilinear}, "
          "resample: torchvision"),
      own("fill_budget, layout: raster_batch, merge: 2, max_patches: 40, "
          "filter: lanczos}"),
      own("longest_edge, merge: 2, longest_edge: 112, filter: lanczos}, "
          "resample: torchvision"),
      own("fixed_size, tile: 126, max_tiles: 1, filter: lanczos}, "
          "resample: pillow13"),
      own("smart_resize, layout: merge_order, merge: 2, min_pixels: 784, "
          "max_pixels: 12544, filter: box}"),
  };
}

}  // namespace ballast

#endif  // BALLAST_TESTS_INTEGRATION_RESIZED_MODELS_H_
