#include "tests/server/corpus/check/check_testing.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "server/corpus/index/index_builder.h"
#include "server/corpus/open_source.h"
#include "server/image/image_header.h"
#include "server/image/sound_scan.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/server/corpus/corpus_testing.h"

namespace ballast {

IndexOptions RealImageOptions() {
  IndexOptions options = FakeOptions();
  options.read_image_size =
      [](absl::string_view bytes) -> absl::StatusOr<ImageSize> {
    const auto header = ReadImageHeader(bytes);
    if (!header.ok()) return header.status();
    return ImageSize{header->width, header->height};
  };
  return options;
}

v1::Source IndexImages(const std::string& folder,
                       const std::vector<std::string>& images) {
  std::vector<std::pair<std::string, std::string>> members;
  for (size_t i = 0; i < images.size(); ++i) {
    const std::string key = absl::StrFormat("%04d", i);
    members.emplace_back(key + ".txt", "text");
    members.emplace_back(key + ".jpg", images[i]);
  }
  WriteTar(folder + "/docs.tar", members);
  const v1::Source source =
      MakeSource(v1::Source::FORMAT_WEBDATASET, "docs.tar");
  const auto report = BuildIndex(source, folder, RealImageOptions());
  EXPECT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, images.size());
  return source;
}

std::unique_ptr<FileSource> OpenImages(const std::string& folder,
                                       const v1::Source& source) {
  auto opened = OpenSource(source, folder, FakeKey());
  EXPECT_TRUE(opened.ok()) << opened.status();
  return *std::move(opened);
}

CheckOptions ScanOptions(uint64_t images) {
  CheckOptions options;
  options.check = CheckScan;
  options.unit_size.images = images;
  return options;
}

std::vector<std::string> DamagedImages() {
  std::vector<std::string> images;
  uint32_t seed = 0;
  for (const ChromaSampling sampling :
       {ChromaSampling::kGrey, ChromaSampling::k444, ChromaSampling::k422,
        ChromaSampling::k420}) {
    for (const int interval : {0, 7}) {
      const std::string made = MakeJpeg({.width = 83,
                                         .height = 61,
                                         .sampling = sampling,
                                         .restart_interval = interval,
                                         .seed = 1 + seed});
      for (int left = 70; left > 0; ++seed) {
        std::string copy =
            DamagedCopy(made, static_cast<int>(seed % kDamageKinds), seed);
        // A build lists files without a header as bad.
        if (!ReadImageHeader(copy).ok()) continue;
        images.push_back(std::move(copy));
        --left;
      }
    }
  }
  return images;
}

}  // namespace ballast
