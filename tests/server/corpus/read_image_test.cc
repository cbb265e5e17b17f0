#include "server/corpus/read_image.h"

#include <string>

#include <gtest/gtest.h>

#include "server/corpus/index/index_builder.h"
#include "server/corpus/open_source.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/corpus/corpus_testing.h"

namespace ballast {
namespace {

TEST(ReadImageTest, CopiesWhatIsInMemory) {
  std::string memory(3, '?');
  const auto place = [&](size_t image, size_t images, uint64_t size) {
    EXPECT_EQ(images, 3u);
    return image == 1 && size == 3 ? memory.data() : nullptr;
  };
  const ImagePlaces places = place;
  for (const ImagePlaces* each :
       {&places, static_cast<const ImagePlaces*>(nullptr)}) {
    RawSample sample;
    ImagesHash hash, wanted;
    for (const char* image : {"first", "two", "3"}) {
      CopyImage(image, 3, {.places = each}, &hash, &sample);
      wanted.Add(std::string(image).size(), image);
    }
    EXPECT_EQ(sample.image(0), "first");
    EXPECT_EQ(sample.image(1), "two");
    EXPECT_EQ(sample.image(2), "3");
    EXPECT_EQ(sample.images[1], each == nullptr ? "two" : "");
    EXPECT_EQ(hash.value(), wanted.value());
  }
  EXPECT_EQ(memory, "two");
}

// The files of images for which the caller has a place are read there; the
// others are strings.
TEST(ReadImageTest, FilesGoToTheirPlaces) {
  const std::string folder = TestFolder();
  const std::string first = FakeImage(1, 2, 300);
  const std::string second = FakeImage(3, 4, 70);
  WriteFile(folder + "/docs-0.tar", TarEntry("a.txt", "x") +
                                        TarEntry("a.0.jpg", first) +
                                        TarEntry("a.1.jpg", second) + TarEnd());
  WriteFile(folder + "/m/a.jpg", first);
  WriteFile(folder + "/m/b.jpg", second);
  WriteFile(folder + "/chat.jsonl", R"({"image": ["m/a.jpg", "m/b.jpg"]})");
  const v1::Source tars =
      MakeSource(v1::Source::FORMAT_WEBDATASET, "docs-*.tar");
  const v1::Source lines = MakeSource(v1::Source::FORMAT_JSONL, "chat.jsonl");
  for (const v1::Source& format : {tars, lines}) {
    SCOPED_TRACE(format.format());
    const auto report = BuildIndex(format, folder, FakeOptions());
    ASSERT_TRUE(report.ok()) << report.status();
    const auto opened = OpenSource(format, folder, FakeKey());
    ASSERT_TRUE(opened.ok()) << opened.status();
    const SampleSource& source = **opened;
    for (const size_t taken : {0, 1}) {
      std::string memory(first.size(), '?');
      const auto place = [&](size_t image, size_t images,
                             uint64_t size) -> char* {
        EXPECT_EQ(images, 2u);
        EXPECT_EQ(size, image == 0 ? first.size() : second.size());
        return image == taken ? memory.data() : nullptr;
      };
      const ImagePlaces places = place;
      const auto sample = ReadSample(
          source, 0, {.text = false, .images = true, .places = &places});
      ASSERT_TRUE(sample.ok()) << sample.status();
      EXPECT_EQ(sample->image(0), first);
      EXPECT_EQ(sample->image(1), second);
      EXPECT_EQ(sample->image(taken).data(), memory.data());
      EXPECT_EQ(sample->images[taken], "");
      EXPECT_EQ(sample->images[1 - taken], taken == 0 ? second : first);
    }
  }
  // Damage is found wherever the bytes are.
  WriteFile(folder + "/m/a.jpg", FakeImage(2, 2, 300));
  std::string memory(first.size(), '?');
  const auto place = [&](size_t image, size_t, uint64_t) {
    return image == 0 ? memory.data() : nullptr;
  };
  const ImagePlaces places = place;
  const auto opened = OpenSource(lines, folder, FakeKey());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(ReadSample(**opened, 0,
                       {.text = false, .images = true, .places = &places})
                .status()
                .code(),
            absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace ballast
