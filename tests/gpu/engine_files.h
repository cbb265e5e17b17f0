#ifndef BALLAST_TESTS_GPU_ENGINE_FILES_H_
#define BALLAST_TESTS_GPU_ENGINE_FILES_H_

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "proto/image/engine_jpeg.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/media/image/test_images.h"

namespace ballast {

// A file that JPEG engines take.
struct EngineFile {
  std::string name;
  std::string bytes;
  PlaneForm form;
};

inline std::vector<EngineFile> MadeEngineFiles() {
  std::vector<EngineFile> files;
  for (const MadeJpeg& made : HardJpegs()) {
    files.push_back({GetName(made),
                     MakeJpeg(made),
                     {made.width, made.height, made.sampling}});
  }
  return files;
}

// Those of a folder.
inline std::vector<EngineFile> EngineFilesOf(const std::string& folder) {
  std::vector<EngineFile> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string bytes = ReadFile(entry.path());
    const auto judged = JudgeForEngines(bytes);
    if (!judged.ok() || judged->refusal != EngineRefusal::kNone ||
        !HasJpegEnd(bytes)) {
      continue;
    }
    files.push_back({entry.path().filename(), std::move(bytes), judged->form});
  }
  return files;
}

// The corpus's files; none where there is no corpus.
inline std::vector<EngineFile> CorpusEngineFiles() {
  constexpr char kImages[] = "corpus/images";
  const std::optional<std::string> shared = SharedDirWith(kImages);
  if (!shared) return {};
  return EngineFilesOf(*shared + "/" + kImages);
}

}  // namespace ballast

#endif  // BALLAST_TESTS_GPU_ENGINE_FILES_H_
