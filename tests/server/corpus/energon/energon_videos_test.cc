// Videos in folders of Energon.

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/corpus/energon/energon_tar.h"
#include "server/corpus/index/index_builder.h"
#include "server/corpus/open_source.h"
#include "tests/server/corpus/corpus_testing.h"
#include "tests/server/corpus/fake_videos.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

std::string Turns(absl::string_view question, absl::string_view answer) {
  return absl::StrCat(R"([{"value": ")", question, R"("}, {"value": ")", answer,
                      R"("}])");
}

class EnergonVideosTest : public ::testing::Test {
 protected:
  EnergonVideosTest() { std::filesystem::create_directories(nv_); }

  void Prepare(const std::string& dataset) {
    const absl::Status written = WriteEnergonMeta(
        {nv_,
         {"a-0.tar", "a-1.tar", "b-0.tar"},
         {{"train", {"a-{0..1}.tar"}}, {"val", {"b-0.tar"}}, {"test", {}}},
         dataset});
    ASSERT_TRUE(written.ok()) << written;
  }

  const std::string folder_ = TestFolder();
  const std::string nv_ = folder_ + "/nv";
  v1::Source source_ = MakeSource(v1::Source::FORMAT_ENERGON, "nv");
};

TEST_F(EnergonVideosTest, ReadsAFieldOrAMember) {
  const auto check = [&](const std::string& text) {
    const auto report = BuildIndex(source_, folder_, FakeVideoOptions());
    ASSERT_TRUE(report.ok()) << report.status();
    for (const BadSample& bad : report->bad) ADD_FAILURE() << bad.reason;
    EXPECT_EQ(report->videos, 2u);
    const auto opened = OpenSource(source_, folder_, FakeKey());
    ASSERT_TRUE(opened.ok()) << opened.status();
    const auto sample = (*opened)->Read(1, ReadParts());
    ASSERT_TRUE(sample.ok() && sample->ok());
    EXPECT_THAT((*sample)->text, HasSubstr(text));
    ASSERT_EQ((*sample)->videos.size(), 1u);
    EXPECT_EQ(GetBytes((*sample)->videos[0]), FakeVideo(4, 9000));
    const auto indexed = (*opened)->index().sample(1);
    ASSERT_TRUE(indexed.ok()) << indexed.status();
    ASSERT_EQ(indexed->videos.size(), 1u);
    EXPECT_EQ(indexed->videos[0].frames, 4u);
  };
  WriteTar(nv_ + "/a-0.tar",
           {{"1.mp4", FakeVideo(3)}, {"1.json", Turns("Who?", "We.")}});
  WriteTar(nv_ + "/a-1.tar", {{"2.json", Turns("What?", "That.")},
                              {"2.mp4", FakeVideo(4, 9000)}});
  WriteTar(nv_ + "/b-0.tar",
           {{"3.mp4", FakeVideo(5)}, {"3.json", Turns("Why?", "So.")}});
  Prepare(
      "sample_type: {__module__: megatron.energon, __class__: VidQASample}\n"
      "field_map: {video: mp4, context: 'json[0][value]', answers: "
      "'json[1][value]'}\n");
  check("<video>What?");
  WriteTar(nv_ + "/a-0.tar",
           {{"1.mp4", FakeVideo(3)}, {"1.txt", "A document."}});
  WriteTar(nv_ + "/a-1.tar", {{"2.json", R"({"conversations": [2]})"},
                              {"2.mp4", FakeVideo(4, 9000)}});
  Prepare(
      "sample_type: {__module__: megatron.energon, __class__: "
      "CrudeWebdataset}\n");
  source_.mutable_energon()->set_crude(v1::Source::Energon::CRUDE_WEBDATASET);
  check("[2]");
}

TEST_F(EnergonVideosTest, ReadsListsOfPicturesOfCrudeSamples) {
  WriteTar(nv_ + "/a-0.tar", {{"1.0.1.jpg", FakeImage(30, 20, 2)},
                              {"1.json", R"({"conversations": [2]})"},
                              {"1.0.0.jpg", FakeImage(30, 20, 1)}});
  WriteTar(nv_ + "/a-1.tar", {{"2.0.0.jpg", FakeImage(30, 20)},
                              {"2.0.1.jpg", FakeImage(31, 20)},
                              {"2.json", R"({"conversations": [2]})"}});
  WriteTar(nv_ + "/b-0.tar", {{"3.json", R"({"conversations": []})"}});
  Prepare(
      "sample_type: {__module__: megatron.energon, __class__: "
      "CrudeWebdataset}\n");
  source_.mutable_energon()->set_crude(v1::Source::Energon::CRUDE_WEBDATASET);
  const auto report = BuildIndex(source_, folder_, FakeVideoOptions());
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->bad.size(), 1u);
  EXPECT_THAT(report->bad[0].reason,
              HasSubstr("2.0.1.jpg: 31x20 pixels, and the video's first "
                        "picture has 30x20"));
  EXPECT_EQ(report->videos, 1u);
  const auto opened = OpenSource(source_, folder_, FakeKey());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto sample = (*opened)->Read(0, ReadParts());
  ASSERT_TRUE(sample.ok() && sample->ok());
  ASSERT_EQ((*sample)->videos.size(), 1u);
  EXPECT_EQ(
      (*sample)->videos[0].pictures,
      (std::vector<std::string>{FakeImage(30, 20, 1), FakeImage(30, 20, 2)}));
  const auto indexed = (*opened)->index().sample(0);
  ASSERT_TRUE(indexed.ok()) << indexed.status();
  ASSERT_EQ(indexed->videos.size(), 1u);
  EXPECT_EQ(indexed->videos[0].frames, 2u);
  EXPECT_EQ(indexed->videos[0].width, 30u);
  EXPECT_EQ(indexed->videos[0].flags, IndexedVideo::kIsList);
}

}  // namespace
}  // namespace ballast
