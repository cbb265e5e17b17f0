#include "server/data/form/form_sample.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace ballast {

MediaOfSample MediaOf(const CookedSample& sample) {
  MediaOfSample made;
  bool all_paths = true;
  const auto add = [&](const CookedSample::Medium& medium) {
    const auto* path = std::get_if<std::string>(&medium);
    if (path == nullptr) {
      all_paths = false;
    } else {
      made.paths.push_back(*path);
    }
  };
  for (const auto& image : sample.images) add(image);
  for (const auto& video : sample.videos) {
    for (const auto& part : video.parts) add(part);
  }
  made.any_video = !sample.videos.empty();
  made.any = made.any_video || !sample.images.empty();
  if (!all_paths) made.paths.clear();
  return made;
}

uint32_t HashOf(CookedSample* sample) {
  RecipeRecord hashed;
  hashed.text = std::move(sample->text);
  std::string all =
      absl::StrCat(sample->is_document ? "d" : "c", hashed.text.size(), ",",
                   hashed.hash(), "\n", sample->fields);
  sample->text = std::move(hashed.text);
  const auto add = [&all](const CookedSample::Medium& medium) {
    if (const auto* path = std::get_if<std::string>(&medium)) {
      absl::StrAppend(&all, "\n", *path);
    } else {
      absl::StrAppend(&all, "\n#", std::get<uint32_t>(medium));
    }
  };
  for (const CookedSample::Medium& image : sample->images) add(image);
  for (const CookedSample::Video& video : sample->videos) {
    absl::StrAppend(&all, "\n", video.is_list, video.is_audio);
    for (const CookedSample::Medium& part : video.parts) add(part);
  }
  hashed.text = std::move(all);
  return hashed.hash();
}

}  // namespace ballast
