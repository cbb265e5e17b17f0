#include "server/data/tar/webdataset_reader.h"

#include <unistd.h>

#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/sample/data_fault.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;

class WebDatasetReaderTest : public ::testing::Test {
 protected:
  // Reads the samples of a tar file of these bytes until the end or a failure.
  std::vector<WebDatasetSample> Read(absl::string_view bytes) {
    const std::string path = TestFolder() + "/a.tar";
    WriteFile(path, bytes);
    auto file = File::Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    WebDatasetReader reader(&*file, 0, bytes.size(), true);
    std::vector<WebDatasetSample> samples;
    while (true) {
      auto sample = reader.Next();
      status_ = sample.status();
      ignored_ = reader.ignored();
      if (!sample.ok()) pending_ = reader.TakePending();
      if (!sample.ok() || !*sample) return samples;
      samples.push_back(**std::move(sample));
    }
  }

  // The fault of the one sample with key "a" that these members make.
  std::string Fault(
      const std::vector<std::pair<std::string, std::string>>& members) {
    std::string tar;
    for (const auto& [name, bytes] : members) tar += TarEntry(name, bytes);
    const auto samples = Read(tar + TarEnd());
    EXPECT_TRUE(status_.ok()) << status_;
    EXPECT_EQ(samples.size(), 1);
    if (samples.empty()) return "";
    EXPECT_EQ(samples[0].key, "a");
    return std::string(samples[0].fault.message());
  }

  absl::Status status_;
  std::optional<WebDatasetSample> pending_;
  absl::flat_hash_map<std::string, uint64_t> ignored_;
};

// The media of a kind.
std::vector<MediumParts<TarMember>> Of(const WebDatasetSample& sample,
                                       MediumKind kind) {
  std::vector<MediumParts<TarMember>> found;
  for (const MediumParts<TarMember>& medium : sample.media) {
    if (medium.kind == kind) found.push_back(medium);
  }
  return found;
}

TEST_F(WebDatasetReaderTest, GroupsMembers) {
  const auto samples =
      Read(TarEntry("./", "", '5') + TarEntry("./x/a.json", "{}") +
           TarEntry("./x/a.1.PNG", "11") + TarEntry("./x/a.cls", "7") +
           TarEntry("./x/a.00.jpg", "0") + TarEntry("x/b.id", "s") +
           TarEntry("x/b.webp", "bbb") + TarEntry("x/b.txt", "hello") +
           TarEntry("x/.hidden", "h") + TarEntry("README", "r") + TarEnd());
  ASSERT_TRUE(status_.ok()) << status_;
  ASSERT_EQ(samples.size(), 2);
  EXPECT_TRUE(samples[0].fault.ok()) << samples[0].fault;
  EXPECT_EQ(samples[0].key, "x/a");
  EXPECT_EQ(samples[0].text_format, RawSample::TextFormat::kConversation);
  EXPECT_EQ(samples[0].begin, 512);
  EXPECT_EQ(samples[0].end, 512 + 4 * 1024);
  EXPECT_EQ(samples[0].text.data, 1024);
  ASSERT_EQ(Of(samples[0], MediumKind::kImage).size(), 2);
  EXPECT_EQ(Of(samples[0], MediumKind::kImage)[0].parts[0].size, 1);
  EXPECT_EQ(Of(samples[0], MediumKind::kImage)[1].parts[0].size, 2);
  EXPECT_TRUE(samples[1].fault.ok()) << samples[1].fault;
  EXPECT_EQ(samples[1].key, "x/b");
  EXPECT_EQ(samples[1].text_format, RawSample::TextFormat::kPlain);
  ASSERT_EQ(Of(samples[1], MediumKind::kImage).size(), 1);
  EXPECT_EQ(Of(samples[1], MediumKind::kImage)[0].parts[0].size, 3);
  EXPECT_THAT(ignored_, UnorderedElementsAre(Pair("cls", 1), Pair("id", 1),
                                             Pair("hidden", 1), Pair("", 1)));
}

TEST_F(WebDatasetReaderTest, FindsAudio) {
  const auto samples =
      Read(TarEntry("a.wav", "1") + TarEntry("a.json", "{}") +
           TarEntry("b.1.Opus", "22") + TarEntry("b.0.flac", "1") +
           TarEntry("b.txt", "b") + TarEntry("c.0.mp3", "1") +
           TarEntry("c.m4a", "1") + TarEntry("c.txt", "c") +
           TarEntry("d.1.ogg", "1") + TarEntry("d.txt", "d") + TarEnd());
  ASSERT_TRUE(status_.ok()) << status_;
  ASSERT_EQ(samples.size(), 4);
  EXPECT_EQ(Of(samples[0], MediumKind::kAudio).size(), 1);
  ASSERT_EQ(Of(samples[1], MediumKind::kAudio).size(), 2);
  EXPECT_EQ(Of(samples[1], MediumKind::kAudio)[0].parts[0].name, "b.0.flac");
  EXPECT_EQ(Of(samples[1], MediumKind::kAudio)[1].parts[0].size, 2);
  EXPECT_EQ(samples[2].fault.message(), "audios with and without a number");
  EXPECT_EQ(samples[3].fault.message(),
            "audio 0 is missing before \"d.1.ogg\"");
}

TEST_F(WebDatasetReaderTest, RecognisesTextsThatAreTokens) {
  const auto samples =
      Read(TarEntry("a.tokens.bin", "1234") + TarEntry("a.jpg", "x") +
           TarEntry("b.Tokens.JSON", "[1]") + TarEnd());
  ASSERT_TRUE(status_.ok()) << status_;
  ASSERT_EQ(samples.size(), 2);
  EXPECT_TRUE(samples[0].fault.ok()) << samples[0].fault;
  EXPECT_EQ(samples[0].text_format, RawSample::TextFormat::kPackedBytes);
  EXPECT_EQ(Of(samples[0], MediumKind::kImage).size(), 1);
  EXPECT_EQ(samples[1].text_format, RawSample::TextFormat::kPackedJson);
  EXPECT_EQ(Fault({{"a.json", "{}"}, {"a.tokens.bin", "1234"}}),
            "two texts: \"a.json\" and \"a.tokens.bin\"");
}

TEST_F(WebDatasetReaderTest, GivesEachFaultItsReason) {
  EXPECT_EQ(
      Fault({{"a.jpg", "x"}}),
      "no text; wanted a .json, .txt, .tokens.bin or .tokens.json member");
  EXPECT_EQ(Fault({{"a.json", "{}"}, {"a.txt", "x"}}),
            "two texts: \"a.json\" and \"a.txt\"");
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.0.jpg", "x"}, {"a.2.jpg", "x"}}),
            "image 1 is missing before \"a.2.jpg\"");
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.1.jpg", "x"}}),
            "image 0 is missing before \"a.1.jpg\"");
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.0.jpg", "x"}, {"a.00.png", "x"}}),
            "two images in one place: \"a.0.jpg\" and \"a.00.png\"");
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.jpg", "x"}, {"a.png", "x"}}),
            "two images in one place: \"a.jpg\" and \"a.png\"");
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.jpg", "x"}, {"a.1.jpg", "x"}}),
            "images with and without a number");
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.10000.jpg", "x"}}),
            "image 10000, wanted less than 10000");
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.1.mp4", "x"}}),
            "video 0 is missing before \"a.1.mp4\"");
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.mp4", "x"}, {"a.mkv", "x"}}),
            "two videos in one place: \"a.mp4\" and \"a.mkv\"");
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.1000.mp4", "x"}}),
            "video 1000, wanted less than 1000");
  // A sample may have images and videos, numbered apart.
  for (const std::string extension : {"mp4", "avi", "webm", "mov", "mkv"}) {
    EXPECT_EQ(
        Fault({{"a.txt", "x"}, {"a.0.jpg", "x"}, {"a." + extension, "x"}}), "");
  }
}

TEST_F(WebDatasetReaderTest, PicturesAreVideos) {
  const std::string tar =
      TarEntry("a.0.1.png", "22") + TarEntry("a.txt", "x") +
      TarEntry("a.0.0000.JPG", "1") + TarEntry("a.1.mp4", "video") +
      TarEntry("a.0.jpg", "image") + TarEntry("a.2.0.webp", "333") +
      TarEntry("b.x.0.jpg", "no number") + TarEntry("b.txt", "x") +
      TarEntry("c.0.1.2.jpg", "three") + TarEntry("c.txt", "x") + TarEnd();
  const auto samples = Read(tar);
  ASSERT_TRUE(status_.ok()) << status_;
  ASSERT_EQ(samples.size(), 3);
  EXPECT_THAT(samples[1].fault.message(), HasSubstr("b.x.0.jpg"));
  EXPECT_THAT(samples[2].fault.message(), HasSubstr("c.0.1.2.jpg"));
  const WebDatasetSample& a = samples[0];
  EXPECT_TRUE(a.fault.ok()) << a.fault;
  ASSERT_EQ(Of(a, MediumKind::kImage).size(), 1);
  ASSERT_EQ(Of(a, MediumKind::kVideo).size(), 3);
  EXPECT_TRUE(Of(a, MediumKind::kVideo)[0].is_list);
  ASSERT_EQ(Of(a, MediumKind::kVideo)[0].parts.size(), 2);
  EXPECT_EQ(Of(a, MediumKind::kVideo)[0].parts[0].name, "a.0.0000.JPG");
  EXPECT_EQ(Of(a, MediumKind::kVideo)[0].parts[1].name, "a.0.1.png");
  EXPECT_FALSE(Of(a, MediumKind::kVideo)[1].is_list);
  EXPECT_EQ(Of(a, MediumKind::kVideo)[1].parts[0].size, 5);
  EXPECT_TRUE(Of(a, MediumKind::kVideo)[2].is_list);
  EXPECT_EQ(Of(a, MediumKind::kVideo)[2].parts.size(), 1);
  EXPECT_THAT(ignored_,
              UnorderedElementsAre(Pair("x.0.jpg", 1), Pair("0.1.2.jpg", 1)));
}

// For a model without videos.
TEST_F(WebDatasetReaderTest, PicturesOfVideosMayBeUnread) {
  const std::string path = TestFolder() + "/a.tar";
  const std::string tar = TarEntry("a.0.0.jpg", "1") + TarEntry("a.txt", "x") +
                          TarEntry("a.0.1.jpg", "2") + TarEnd();
  WriteFile(path, tar);
  const auto file = File::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  WebDatasetReader reader(&*file, 0, tar.size(), /*whole=*/true,
                          /*lists=*/false);
  const auto sample = reader.Next();
  ASSERT_TRUE(sample.ok() && sample->has_value()) << sample.status();
  EXPECT_THAT((*sample)->fault.message(), HasSubstr("a.0.0.jpg"));
  EXPECT_TRUE(Of(**sample, MediumKind::kVideo).empty());
  EXPECT_FALSE(reader.Next()->has_value());
  EXPECT_THAT(reader.ignored(),
              UnorderedElementsAre(Pair("0.0.jpg", 1), Pair("0.1.jpg", 1)));
}

TEST_F(WebDatasetReaderTest, MediaThatAreNotReadMakeASampleBad) {
  for (const std::string name :
       {"a.gif", "a.bmp", "a.jfif", "a.image.jpg", "a.TIFF", "a.m4v"}) {
    // Before and after the text.
    for (const bool is_first : {true, false}) {
      const std::pair<std::string, std::string> text = {"a.txt", "x"};
      const std::pair<std::string, std::string> media = {name, "y"};
      const std::string fault =
          is_first ? Fault({media, text}) : Fault({text, media});
      EXPECT_THAT(fault, HasSubstr("\"" + name + "\" is media by its name"));
    }
  }
  // Arrays and text forms of an image, where there is no other.
  for (const std::string name : {"a.npy", "a.jpg.b64", "a.image", "a.pyd"}) {
    EXPECT_THAT(Fault({{name, "y"}, {"a.txt", "x"}}),
                HasSubstr("\"" + name + "\" may be the medium"));
    EXPECT_EQ(Fault({{name, "y"}, {"a.txt", "x"}, {"a.jpg", "z"}}), "");
  }
  // A member whose name says nothing is left to who may read it.
  const auto samples = Read(TarEntry("a.data", "1") + TarEntry("a.txt", "x") +
                            TarEntry("b.data", "1") + TarEntry("b.txt", "x") +
                            TarEntry("b.jpg", "x") + TarEnd());
  ASSERT_EQ(samples.size(), 2);
  EXPECT_TRUE(samples[0].fault.ok()) << samples[0].fault;
  ASSERT_TRUE(samples[0].unknown.has_value());
  EXPECT_EQ(samples[0].unknown->name, "a.data");
  EXPECT_FALSE(samples[1].unknown.has_value());
}

TEST_F(WebDatasetReaderTest, KnowsMediaByTheirFirstBytes) {
  using Bytes = absl::string_view;
  for (const Bytes head : {Bytes("\xff\xd8\xff\xe0", 4), Bytes("\x89PNG\r\n"),
                           Bytes("GIF89a"), Bytes("BM\x36\0\0\0\0\0\0\0", 10),
                           Bytes("RIFF1234WEBPVP8 "), Bytes("RIFF1234WAVEfmt "),
                           Bytes("\0\0\0\x20"
                                 "ftypavif",
                                 12),
                           Bytes("/9j/4AAQSkZJRg"), Bytes("iVBORw0KGgoAAA"),
                           Bytes("\x93NUMPY\x01", 7)}) {
    EXPECT_TRUE(IsMediaContent(head)) << head;
  }
  for (const Bytes head :
       {Bytes(""), Bytes("7"), Bytes("{\"a\": 1}"), Bytes("BMW and others"),
        Bytes("RIFF1234ACON"), Bytes("a cat on a mat")}) {
    EXPECT_FALSE(IsMediaContent(head)) << head;
  }
}

// A key ends at the first dot: of these pairs none is read, and each is
// counted.
TEST_F(WebDatasetReaderTest, EachSampleWithADotInItsNameIsBad) {
  std::string tar = TarEntry("a.jpg", "x") + TarEntry("a.json", "{}");
  std::vector<std::string> keys;
  for (int i = 0; i < 200; ++i) {
    const std::string whole = absl::StrCat("v1.", i);
    const std::string words = absl::StrCat("Dr. Smith ", i);
    tar += TarEntry(whole + ".png", "x") + TarEntry(whole + ".json", "{}") +
           TarEntry(words + ".jpg", "x") + TarEntry(words + ".json", "{}");
    keys.push_back(whole);
    keys.push_back(words);
  }
  for (int i = 0; i < 200; ++i) {
    const std::string figure = absl::StrCat("fig1.", i);
    tar += TarEntry(figure + ".png", "x") + TarEntry(figure + ".json", "{}");
    keys.push_back(figure);
  }
  tar += TarEntry("z.json", "{}") + TarEnd();
  std::vector<std::string> bad;
  size_t good = 0;
  for (const WebDatasetSample& sample : Read(tar)) {
    if (sample.fault.ok()) {
      ++good;
      continue;
    }
    EXPECT_THAT(sample.fault.message(), HasSubstr("first dot"));
    EXPECT_EQ(GetBadKind(sample.fault), "a dot in the name");
    bad.push_back(sample.key);
  }
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(good, 2);
  EXPECT_THAT(bad, UnorderedElementsAreArray(keys));
}

// Texts of other endings beside a sample's own are ignored.
TEST_F(WebDatasetReaderTest, MetadataBesideATextIsIgnored) {
  EXPECT_EQ(Fault({{"a.jpg", "x"},
                   {"a.json", "{}"},
                   {"a.meta.json", "{}"},
                   {"a.id", "7"}}),
            "");
  EXPECT_THAT(ignored_,
              UnorderedElementsAre(Pair("meta.json", 1), Pair("id", 1)));
}

TEST_F(WebDatasetReaderTest, GivesFaultsOfPicturesTheirReasons) {
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.0.0.jpg", "x"}, {"a.0.2.jpg", "x"}}),
            "picture 1 of video 0 is missing before \"a.0.2.jpg\"");
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.0.1.jpg", "x"}}),
            "picture 0 of video 0 is missing before \"a.0.1.jpg\"");
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.1.0.jpg", "x"}}),
            "video 0 is missing before \"a.1.0.jpg\"");
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.0.0.jpg", "x"}, {"a.0.00.png", "x"}}),
            "two pictures in one place: \"a.0.0.jpg\" and \"a.0.00.png\"");
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.0.0.jpg", "x"}, {"a.0.mp4", "x"}}),
            "two videos in one place: \"a.0.0.jpg\" and \"a.0.mp4\"");
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.0.0.jpg", "x"}, {"a.mp4", "x"}}),
            "videos with and without a number");
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.1000.0.jpg", "x"}}),
            "video 1000, wanted less than 1000");
  EXPECT_EQ(Fault({{"a.txt", "x"}, {"a.0.10000.jpg", "x"}}),
            "videos of over 10000 pictures in all");
}

TEST_F(WebDatasetReaderTest, RefusesLinksAndNamesThatLeadOutside) {
  const auto samples =
      Read(TarEntry("/a.txt", "x") + TarEntry("../b.txt", "x") +
           TarEntry("c.txt", "x") + TarEntry("c.jpg", "", '2') +
           TarEntry("d\xff.txt", "x") + TarEnd());
  ASSERT_TRUE(status_.ok()) << status_;
  ASSERT_EQ(samples.size(), 4);
  EXPECT_EQ(samples[0].fault.message(), "path \"/a.txt\" is absolute");
  EXPECT_EQ(samples[1].fault.message(), "path \"../b.txt\" holds \"..\"");
  EXPECT_EQ(samples[2].fault.message(),
            "\"c.jpg\" is not a file but of type '2'");
  EXPECT_EQ(samples[3].fault.message(), "path \"d\\377.txt\" is not UTF-8");
}

TEST_F(WebDatasetReaderTest, ChecksSizesByTheHeadersAlone) {
  // Only the headers are written: the file is sparse.
  const std::string path = TestFolder() + "/a.tar";
  const std::string text = TarBlock("a.txt", "00400000001");  // 64 MiB + 1
  WriteFile(path, text);
  const uint64_t end = 512 + kMaxTextBytes + 512;
  ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(end)), 0);
  auto file = File::Open(path);
  ASSERT_TRUE(file.ok());
  WebDatasetReader reader(&*file, 0, end, false);
  const auto sample = reader.Next();
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ((*sample)->fault.message(),
            "text of 67108865 bytes, wanted at most 67108864");

  const std::string image = TarBlock("a.jpg", "10000000001");  // 1 GiB + 1
  WriteFile(path, image);
  ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(kMaxSampleBytes + 1024)),
            0);
  file = File::Open(path);
  ASSERT_TRUE(file.ok());
  WebDatasetReader second(&*file, 0, kMaxSampleBytes + 1024, false);
  const auto large = second.Next();
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_EQ((*large)->fault.message(), "over 1073741824 bytes in all");
}

TEST_F(WebDatasetReaderTest, GivesTheSampleBeforeDamageApart) {
  const auto samples = Read(TarEntry("a.txt", "x") + TarEntry("b.txt", "x") +
                            TarEntry("b.jpg", "y") + std::string(512, 'z'));
  EXPECT_EQ(samples.size(), 1);
  EXPECT_EQ(status_.code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(pending_.has_value());
  EXPECT_EQ(pending_->key, "b");
  EXPECT_TRUE(pending_->fault.ok()) << pending_->fault;
  EXPECT_EQ(Of(*pending_, MediumKind::kImage).size(), 1u);
  EXPECT_EQ(pending_->begin, 1024u);
  EXPECT_EQ(pending_->end, 3072u);
  // Damage at the beginning of a file is before any sample.
  EXPECT_TRUE(Read(std::string(512, 'z')).empty());
  EXPECT_FALSE(pending_.has_value());
}

}  // namespace
}  // namespace ballast
