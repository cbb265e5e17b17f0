// Texts of samples of Energon: none is dropped, and none moves the image.

#include <pthread.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/data/energon/energon_tar.h"
#include "server/data/energon/pickled_list.h"
#include "server/data/index/index_builder.h"
#include "server/data/open_source.h"
#include "server/files/file.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/data/corpus_testing.h"
#include "tests/server/data/fake_videos.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
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

// pickle.dumps(images, protocol=3), of texts of less than 256 bytes.
std::string Pickle(const std::vector<std::string>& images) {
  std::string pickle("\x80\x03]q\x00(", 6);
  for (const std::string& image : images) {
    absl::StrAppend(&pickle, "C",
                    std::string(1, static_cast<char>(image.size())), image);
  }
  return pickle + "e.";
}

// Folders of Megatron-Bridge.
class ChatMlTest : public ::testing::Test {
 protected:
  // The samples as "TEXT IMAGES VIDEOS", or why they are bad.
  std::vector<std::string> Samples(
      const std::vector<std::pair<std::string, std::string>>& members,
      const std::string& media = "imgs: jpgs, videos: videos") {
    const std::string nv = folder_ + "/nv";
    std::filesystem::create_directories(nv);
    WriteTar(nv + "/a.tar", members);
    const absl::Status written = WriteEnergonMeta(
        {nv,
         {"a.tar"},
         {{"train", {"a.tar"}}},
         "__module__: megatron.bridge.data.energon.task_encoder_utils\n"
         "__class__: ChatMLWebdataset\nfield_map: {" +
             media + ", conversation: json}\nsubflavors: {}\n"});
    EXPECT_TRUE(written.ok()) << written;
    std::vector<std::string> samples;
    const auto report = BuildIndex(source_, folder_, FakeVideoOptions());
    if (!report.ok()) return {std::string(report.status().message())};
    for (const BadSample& bad : report->bad) samples.push_back(bad.reason);
    const auto opened = OpenSource(source_, folder_, FakeKey());
    EXPECT_TRUE(opened.ok()) << opened.status();
    for (uint64_t i = 0; opened.ok() && i < (*opened)->index().size(); ++i) {
      const auto sample = (*opened)->Read(i, ReadParts());
      EXPECT_TRUE(sample.ok() && sample->ok());
      if (!sample.ok() || !sample->ok()) return samples;
      std::string& text = samples.emplace_back((*sample)->text);
      for (const std::string& image : Images(**sample)) {
        const auto size = ReadFakeImage(image);
        EXPECT_TRUE(size.ok()) << size.status();
        if (size.ok()) absl::StrAppend(&text, " ", size->width);
      }
      for (const RawMedium& video : Videos(**sample)) {
        absl::StrAppend(&text, " video of ", video.pictures.size());
      }
      for (const RawMedium& clip : Clips(**sample)) {
        absl::StrAppend(&text, " audio of ", clip.size, " bytes");
      }
    }
    return samples;
  }

  const std::string folder_ = TestFolder();
  const v1::Source source_ = MakeSource(v1::Source::FORMAT_ENERGON, "nv");
};

TEST_F(ChatMlTest, ReadsTurnsToolsAndPickledImages) {
  const std::string turns =
      R"([{"from": "human", "value": "<image><image>?"}])";
  const std::string chat =
      R"({"conversations": [{"from": "human", "value": "Hi"}], "tools": []})";
  EXPECT_THAT(
      Samples({{"1.json", turns},
               {"1.jpgs", Pickle({FakeImage(3, 4), FakeImage(5, 6)})},
               {"2.json", chat},
               {"3.json", turns},
               {"3.jpgs", "cos\nsystem\n(S'id'\ntR."}}),
      ElementsAre(HasSubstr("jpgs: pickle: at byte 0 opcode 0x63"),
                  absl::StrCat("{\"messages\":", turns, "} 3 5"), chat));
}

TEST_F(ChatMlTest, ReadsFilesAndAudio) {
  const std::string turns = R"([{"from": "human", "value": "<image>"}])";
  EXPECT_THAT(Samples({{"1.json", turns}, {"1.jpg", FakeImage(7, 4)}},
                      "imgs: \"jpg,png\""),
              ElementsAre(absl::StrCat("{\"messages\":", turns, "} 7")));
  const std::string heard = R"([{"from": "human", "value": "<audio>"}])";
  EXPECT_THAT(
      Samples({{"1.json", heard}, {"1.wav", FakeVideo(9)}}, "audio: wav"),
      ElementsAre(
          absl::StrCat("{\"messages\":", heard, "} audio of 16 bytes")));
  EXPECT_THAT(Samples({{"1.json", heard}, {"1.pkl", "x"}}, "audio: pkl"),
              ElementsAre(HasSubstr("part pkl: audio in a pickled list")));
}

// What pickle.dumps of Python 3.11 writes.
TEST(PickledListTest, ReadsWhatPythonWrites) {
  const std::string path = TestFolder() + "/pickle";
  const auto read = [&](absl::string_view pickle) -> std::string {
    WriteFile(path, absl::StrCat("before", pickle, "after"));
    const File file = File::Open(path).value();
    const auto list = ReadPickledList(&file, {6, pickle.size()});
    if (!list.ok()) return std::string(list.status().message());
    std::string text = list->has_lists ? "lists" : "bytes";
    for (const auto& item : list->items) {
      absl::StrAppend(&text, ";");
      for (const ByteRange& range : item) {
        absl::StrAppend(&text, " ",
                        file.ReadAt(range.offset, range.size).value());
      }
    }
    return text;
  };
  using std::string_literals::operator""s;
  EXPECT_EQ(read("\x80\x03]q\x00(C\x03oneq\x01"
                 "C\x03twoq\x02h\x01"
                 "e."s),
            "bytes; one; two; one");
  for (const char version : {'\x04', '\x05'}) {
    EXPECT_EQ(read("\x80"s + version +
                   "\x95\x13\0\0\0\0\0\0\0]\x94(C\x03one\x94"
                   "C\x03two\x94h\x01"
                   "e."s),
              "bytes; one; two; one");
  }
  EXPECT_EQ(read("\x80\x04\x95\x1a\0\0\0\0\0\0\0]\x94(]\x94(C\x03one\x94"
                 "C\x03two\x94"
                 "e]\x94h\x03"
                 "ae."s),
            "lists; one two; two");
  EXPECT_EQ(read("\x80\x05]\x94."s), "bytes");
  EXPECT_EQ(read("\x80\x05\x95\x0a\0\0\0\0\0\0\0]\x94"
                 "C\x03one\x94"
                 "a."s),
            "bytes; one");
  const std::string large(70000, 'x');
  EXPECT_EQ(read("\x80\x04]\x94(Bp\x11\x01\0"s + large +
                 "\x95\x09\0\0\0\0\0\0\0\x94"
                 "C\x03yyy\x94"
                 "e."s),
            absl::StrCat("bytes; ", large, "; yyy"));
  // pickle.dumps({"a": 1}), ([b"a", 1]), and damage.
  EXPECT_THAT(read("\x80\x04\x95\x0a\0\0\0\0\0\0\0}\x94\x8c\x01"
                   "a\x94K\x01s."s),
              HasSubstr("at byte 11 opcode 0x7d"));
  EXPECT_THAT(read("\x80\x03]q\x00(C\x01"
                   "aK\x01"
                   "e."s),
              HasSubstr("opcode 0x4b"));
  EXPECT_THAT(read("\x80\x03]q\x00(C\x09"
                   "a"s),
              HasSubstr("within bytes"));
  EXPECT_THAT(read("\x80\x03]q\x00("s), HasSubstr("it ends"));
  EXPECT_THAT(read("\x80\x03]q\x00(h\x00"
                   "e."s),
              HasSubstr("twice"));
  EXPECT_THAT(read("\x80\x03]]a]a(C\x01"
                   "aC\x01"
                   "be."s),
              HasSubstr("lists"));
  EXPECT_THAT(read("\x80\x03"
                   "C\x01"
                   "a."s),
              HasSubstr("no list"));
  EXPECT_THAT(read("e"s), HasSubstr("without a mark"));
  EXPECT_THAT(read("a"s), HasSubstr("no list"));
}

// As many calls within calls as lists are deep would overflow a small stack.
TEST(PickledListTest, DepthIsBounded) {
  constexpr size_t kDepth = 80'000;
  const std::string pickle = absl::StrCat("\x80\x03", std::string(kDepth, ']'),
                                          std::string(kDepth - 1, 'a'), ".");
  const std::string path = TestFolder() + "/deep";
  WriteFile(path, pickle);
  // On a thread of its own, for the size of its stack.
  struct Reading {
    std::string path;
    absl::Status status;
  } reading = {path, absl::OkStatus()};
  const auto read = [](void* arg) -> void* {
    auto* const reading = static_cast<Reading*>(arg);
    const File file = File::Open(reading->path).value();
    reading->status = ReadPickledList(&file, {0, file.stamp().size}).status();
    return nullptr;
  };
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 1 << 20);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, read, &reading), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_THAT(std::string(reading.status.message()),
              HasSubstr("lists in lists of lists"));
}

// Videos in folders of Energon.

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
    EXPECT_EQ(report->media[MediumKind::kVideo], 2u);
    const auto opened = OpenSource(source_, folder_, FakeKey());
    ASSERT_TRUE(opened.ok()) << opened.status();
    const auto sample = (*opened)->Read(1, ReadParts());
    ASSERT_TRUE(sample.ok() && sample->ok());
    EXPECT_THAT((*sample)->text, HasSubstr(text));
    ASSERT_EQ(Videos(**sample).size(), 1u);
    EXPECT_EQ(GetBytes(Videos(**sample)[0]), FakeVideo(4, 9000));
    const auto indexed = (*opened)->index().sample(1);
    ASSERT_TRUE(indexed.ok()) << indexed.status();
    ASSERT_EQ(Videos(*indexed).size(), 1u);
    EXPECT_EQ(Videos(*indexed)[0].frames, 4u);
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
  EXPECT_EQ(report->media[MediumKind::kVideo], 1u);
  const auto opened = OpenSource(source_, folder_, FakeKey());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto sample = (*opened)->Read(0, ReadParts());
  ASSERT_TRUE(sample.ok() && sample->ok());
  ASSERT_EQ(Videos(**sample).size(), 1u);
  EXPECT_EQ(
      Videos(**sample)[0].pictures,
      (std::vector<std::string>{FakeImage(30, 20, 1), FakeImage(30, 20, 2)}));
  const auto indexed = (*opened)->index().sample(0);
  ASSERT_TRUE(indexed.ok()) << indexed.status();
  ASSERT_EQ(Videos(*indexed).size(), 1u);
  EXPECT_EQ(Videos(*indexed)[0].frames, 2u);
  EXPECT_EQ(Videos(*indexed)[0].width, 30u);
  EXPECT_EQ(Videos(*indexed)[0].flags, StreamFacts::kIsList);
}

}  // namespace
}  // namespace ballast
