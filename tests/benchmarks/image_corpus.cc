#include "tests/benchmarks/image_corpus.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>

#include "server/command/draw/draw_sample.h"
#include "server/model/model_images.h"
#include "server/model/model_profile.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/shared_dir.h"

namespace ballast {
namespace {

template <class T>
T OrDie(absl::StatusOr<T> result, absl::string_view what) {
  if (result.ok()) return *std::move(result);
  std::cerr << what << ": " << result.status() << std::endl;
  std::exit(1);
}

std::vector<std::string> SharedFiles(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".jpg" || extension == ".jpeg" || extension == ".png" ||
        extension == ".webp") {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> files;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(in),
                       std::istreambuf_iterator<char>());
  }
  return files;
}

std::vector<std::string> DrawnFiles() {
  std::vector<std::string> files = {DrawPhotograph(800, 600),
                                    DrawPhotograph(1280, 960),
                                    DrawPhotograph(2048, 1536)};
  for (uint64_t number = 0; files.size() < 8; ++number) {
    const DrawnSample sample =
        OrDie(DrawSample(Preset::kReceipts, 1, number), "a drawn receipt");
    for (const DrawnImage& image : sample.images) files.push_back(image.bytes);
  }
  return files;
}

}  // namespace

std::string DrawPhotograph(int width, int height) {
  return PlainPicture::Grained(width, height, {20, 90, 200}, {220, 200, 120},
                               /*seed=*/3, /*stream=*/0)
      .Encode(FileFormat::kJpeg, 90);
}

std::vector<CorpusImage> LoadImageCorpus(uint64_t max_pixels) {
  v1::Model model;
  model.set_profile("qwen2_5_vl");
  model.set_max_pixels(max_pixels);
  if (!ApplyModelProfile(&model).ok()) std::exit(1);
  const ModelImages images =
      OrDie(ModelImages::Create(model), "the model's images");
  const std::optional<std::string> shared = SharedDirWith("corpus/images");
  std::vector<CorpusImage> corpus;
  for (std::string& bytes :
       shared ? SharedFiles(*shared + "/corpus/images") : DrawnFiles()) {
    CorpusImage image;
    image.header = OrDie(ReadImageHeader(bytes), "an image's header");
    const std::vector<ImageSize> sides = {
        {image.header.width, image.header.height}};
    std::vector<ImageGrid> grids;
    OrDie(images.Add(sides, 0, &grids), "an image's grid");
    image.width = grids[0].width;
    image.height = grids[0].height;
    image.bytes = std::move(bytes);
    corpus.push_back(std::move(image));
  }
  return corpus;
}

}  // namespace ballast
