// Texts of samples of Energon: none is dropped, and none moves the image.

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/corpus/energon/energon_tar.h"
#include "server/corpus/index/index_builder.h"
#include "server/corpus/open_source.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/corpus/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

// Other captions would be dropped without a word, and the image would stand in
// the answer that spells out its mark.
TEST(EnergonTextsTest, DropsNoTextAndMovesNoImage) {
  const std::string folder = TestFolder();
  const std::string nv = folder + "/nv";
  std::filesystem::create_directories(nv);
  const v1::Source source = MakeSource(v1::Source::FORMAT_ENERGON, "nv");
  WriteTar(nv + "/a.tar", {{"1.jpg", FakeImage(1, 2)},
                           {"1.json", R"({"caption": ["A.", "B."]})"},
                           {"2.jpg", FakeImage(1, 2)},
                           {"2.json", R"({"caption": "Tag <image>."})"},
                           {"3.jpg", FakeImage(1, 2)},
                           {"3.json", R"({"caption": "C."})"}});
  const absl::Status written = WriteEnergonMeta(
      {nv,
       {"a.tar"},
       {{"train", {"a.tar"}}},
       "sample_type: {__module__: megatron.energon, __class__: "
       "CaptioningSample}\nfield_map: {image: jpg, caption: "
       "\"json[caption]\"}\n"});
  ASSERT_TRUE(written.ok()) << written;
  const auto report = BuildIndex(source, folder, FakeOptions());
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->bad.size(), 1u);
  EXPECT_THAT(report->bad[0].reason,
              HasSubstr("field caption: found [\\\"A.\\\","));
  const auto opened = OpenSource(source, folder, FakeKey());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto text = [&](uint64_t i) {
    const auto sample = ReadSample(**opened, i);
    EXPECT_TRUE(sample.ok()) << sample.status();
    return sample.ok() ? sample->text : "";
  };
  // Two marks for one image: the text builder refuses it.
  EXPECT_THAT(text(0), HasSubstr(R"("content":"<image>"},)"));
  EXPECT_THAT(text(0), HasSubstr("Tag <image>."));
  EXPECT_THAT(text(1), HasSubstr(R"("content":"<image>"},)"));
}

}  // namespace
}  // namespace ballast
