#include "server/data/parquet/page_body.h"

#include <deque>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/data/index/index_builder.h"
#include "server/files/file.h"
#include "server/sample/data_fault.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/data/corpus_testing.h"
#include "tests/server/data/parquet/parquet_testing.h"

namespace ballast {
namespace {

// A stream of Snappy, after its description of the format: the length, then
// literals, and copies of what came before.
class Snappy {
 public:
  Snappy& Literal(const std::string& bytes) {
    const size_t less = bytes.size() - 1;
    if (less < 60) {
      elements_ += static_cast<char>(less << 2);
    } else {
      const int more = less < 1 << 8 ? 1 : less < 1 << 16 ? 2 : 3;
      elements_ += static_cast<char>((59 + more) << 2);
      AddNumber(less, more);
    }
    elements_ += bytes;
    text_ += bytes;
    return *this;
  }
  // `bytes`: of the offset, 1, 2 or 4.
  Snappy& Copy(size_t back, size_t size, int bytes) {
    if (bytes == 1) {
      elements_ +=
          static_cast<char>(((back >> 8) << 5) | ((size - 4) << 2) | 1);
    } else {
      elements_ += static_cast<char>(((size - 1) << 2) | (bytes == 2 ? 2 : 3));
    }
    AddNumber(back & (bytes == 1 ? 255 : ~size_t{0}), bytes);
    for (size_t i = 0; i < size; ++i) text_ += text_[text_.size() - back];
    return *this;
  }
  std::string stream() const { return Length(text_.size()) + elements_; }
  static std::string Length(size_t length) {
    std::string bytes;
    for (; length > 127; length >>= 7) {
      bytes += static_cast<char>((length & 127) | 128);
    }
    return bytes + static_cast<char>(length);
  }
  const std::string& text() const { return text_; }
  const std::string& elements() const { return elements_; }

 private:
  void AddNumber(size_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) {
      elements_ += static_cast<char>(number >> (8 * i));
    }
  }

  std::string elements_;
  std::string text_;
};

class PageBodyTest : public ::testing::Test {
 protected:
  // A body over a file of these bytes.
  PageBody& Over(const std::string& bytes) {
    const std::string path = TestFolder() + "/bytes";
    WriteFile(path, bytes);
    file_.emplace_back(*File::Open(path));
    view_.emplace_back(&file_.back());
    return body_.emplace_back(&view_.back(), &others_);
  }
  // Expects that any range of the body is that of `text`, read or in pieces.
  void Expect(const PageBody& body, const std::string& text) {
    ASSERT_EQ(body.size(), text.size());
    const size_t step = 1 + text.size() / 60;
    for (size_t begin = 0; begin < text.size(); begin += step) {
      for (size_t end = begin; end <= text.size(); end += step) {
        std::string read(end - begin, '\0');
        ASSERT_TRUE(body.Read(begin, read.size(), read.data()).ok());
        ASSERT_EQ(read, text.substr(begin, end - begin));
        std::vector<FilePiece> pieces;
        body.AddPieces(begin, read.size(), &pieces);
        std::string other(read.size(), '\0');
        ASSERT_TRUE(
            ReadPieces(view_.back(), pieces, others_, other.data()).ok());
        ASSERT_EQ(other, read);
      }
    }
  }

  std::string others_;
  std::deque<File> file_;
  std::deque<FileView> view_;
  std::deque<PageBody> body_;
};

TEST_F(PageBodyTest, FindsPlainBytes) {
  PageBody& body = Over("abcdefgh");
  body.AddPlain({2, 3});
  body.AddPlain({6, 0});
  body.AddPlain({7, 1});
  Expect(body, "cdeh");
}

TEST_F(PageBodyTest, FollowsLiteralsAndCopies) {
  Snappy snappy;
  snappy.Literal("head").Copy(4, 11, 1).Literal(std::string(61, 'x') + "yz");
  snappy.Copy(1, 64, 2).Literal(std::string(300, 'p')).Copy(300, 64, 2);
  snappy.Literal(std::string(70000, 'q') + "r").Copy(70000, 33, 4);
  const std::string stream = snappy.stream();
  PageBody& body = Over("levels" + stream + "behind");
  body.AddPlain({0, 6});
  const auto fits = body.AddSnappy({6, stream.size()});
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_TRUE(*fits);
  Expect(body, "levels" + snappy.text());
  // Bytes that are not in the file as they are.
  EXPECT_EQ(others_.size(), 11u + 64 + 64 + 33);
}

TEST_F(PageBodyTest, RefusesDamageAndManyPieces) {
  const std::string good = Snappy().Literal("12345678").Copy(8, 4, 1).stream();
  const auto fits = [&](const std::string& stream) {
    const auto added = Over(stream).AddSnappy({0, stream.size()});
    return added.ok() && *added;
  };
  EXPECT_TRUE(fits(good));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(fits(good.substr(0, size))) << size;
  }
  EXPECT_FALSE(fits(good + '\0' + 'x'));  // longer than it says
  Snappy far;
  far.Literal("12345678");
  EXPECT_FALSE(fits(Snappy::Length(12) + far.elements() +
                    std::string("\x01\x09", 2)));  // before its beginning
  EXPECT_FALSE(
      fits(Snappy::Length(12) + far.elements() + std::string("\x01\x00", 2)));
  EXPECT_FALSE(fits("\xff\xff\xff\xff\xff\x01"));
  Snappy many;
  many.Literal("12345678");
  for (int i = 0; i < 100; ++i) many.Copy(8, 64, 2);
  EXPECT_FALSE(fits(many.stream()));
}

TEST_F(PageBodyTest, ReportsReadsThatFail) {
  PageBody& body = Over("abc");
  body.AddPlain({0, 9});
  std::string read(9, '\0');
  EXPECT_TRUE(absl::IsDataLoss(body.Read(0, 9, read.data())));
  EXPECT_TRUE(absl::IsDataLoss(Over("abc").AddSnappy({2, 4}).status()));
}

TEST(AppendImageTest, BoundsImages) {
  const auto image = [](uint64_t size) {
    ParquetImage image;
    image.size = size;
    return image;
  };
  std::vector<ParquetImage> images(kMaxImages, image(1));
  EXPECT_EQ(AppendImage(image(1), &images).message(), "over 10000 images");
  images.assign(1, image(kMaxSampleBytes));
  EXPECT_EQ(AppendImage(image(0), &images).code(), absl::StatusCode::kOk);
  EXPECT_EQ(AppendImage(image(1), &images).message(),
            "over 1073741824 bytes in all");
}

TEST(PartialBytesTest, GivesWhatWasReadAndZerosForTheRest) {
  std::string bytes(5000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = 1 + i % 251;
  const std::string path = TestFolder() + "/bytes";
  WriteFile(path, bytes);
  const auto file = File::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::mt19937_64 random(5);
  for (int round = 0; round < 100; ++round) {
    const ByteRange range = {random() % 1000, 3000 + random() % 1000};
    PartialBytes partial(&*file, range);
    std::string wanted(bytes.size(), '\0');
    uint64_t at = range.offset;
    while (true) {
      const uint64_t size = random() % 300;
      if (!range.Covers({at, size})) break;
      std::string read(size, '\0');
      ASSERT_TRUE(partial.Read(at, size, read.data()).ok());
      EXPECT_EQ(read, bytes.substr(at, size));
      wanted.replace(at, size, read);
      // Overlaps what was read last, follows it or leaves a gap.
      at += random() % 2 == 0 ? random() % (size + 1) : size + random() % 300;
    }
    uint64_t kept = 0;
    for (const char c : wanted) kept += c != 0;
    EXPECT_EQ(partial.bytes(), kept);
    for (int i = 0; i < 50; ++i) {
      const uint64_t begin = random() % range.size;
      const uint64_t size = random() % (range.size - begin + 1);
      std::string copy(size, 'x');
      partial.CopyTo(range.offset + begin, size, copy.data());
      EXPECT_EQ(copy, wanted.substr(range.offset + begin, size));
    }
  }
}

TEST(PartialBytesTest, RefusesWhatItCannotKeep) {
  const std::string path = TestFolder() + "/bytes";
  WriteFile(path, std::string(100, 'a'));
  const auto file = File::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  PartialBytes partial(&*file, {10, 50});
  char out[100];
  EXPECT_TRUE(absl::IsDataLoss(partial.Read(9, 1, out)));
  EXPECT_TRUE(absl::IsDataLoss(partial.Read(50, 11, out)));
  EXPECT_TRUE(absl::IsDataLoss(partial.Keep({50, ~uint64_t{0}})));
  EXPECT_TRUE(partial.Read(40, 5, out).ok());
  EXPECT_TRUE(absl::IsInternal(partial.Read(20, 5, out)));
  EXPECT_EQ(partial.bytes(), 5u);
}

// Indexing Parquet in a store (here file://, which takes the same way) by the
// heads of images, against indexing the same file by reading it whole.

class ImageHeadsTest : public ParquetTest {
 protected:
  // The source over the same file, through the store. It has an index of its
  // own.
  v1::Source InStore(v1::Source source) const {
    source.set_path("file://" + path_);
    source.set_index("index/store.index");
    return source;
  }

  // Samples, sizes, places, checks and reasons of bad rows are the same.
  void ExpectSameIndex(const v1::Source& source) {
    const IndexReport whole = Build(source);
    const IndexReport heads = Build(InStore(source));
    ASSERT_EQ(heads.bad.size(), whole.bad.size());
    for (size_t i = 0; i < whole.bad.size(); ++i) {
      EXPECT_EQ(heads.bad[i].offset, whole.bad[i].offset);
      EXPECT_EQ(heads.bad[i].reason, whole.bad[i].reason);
    }
    EXPECT_EQ(heads.filtered, whole.filtered);
    EXPECT_EQ(Open(InStore(source))->index().digest(),
              Open(source)->index().digest());
  }
};

TEST_F(ImageHeadsTest, MakesTheIndexOfTheWholeFile) {
  for (const char* name :
       {"heads_plain.parquet", "heads_dictionary.parquet",
        "heads_pages.parquet", "heads_delta.parquet", "heads_snappy.parquet",
        "heads_single.parquet", "heads_small.parquet", "finevision.parquet",
        "llava.parquet", "openai.parquet", "other_types.parquet",
        "bad_rows.parquet", "empty.parquet", "wide.parquet",
        "pages_none_1.parquet", "pages_coded.parquet", "pages_struct.parquet",
        "image_parts.parquet", "placed_none_1.parquet"}) {
    SCOPED_TRACE(name);
    const v1::Source source = GetSource(name);
    ExpectSameIndex(source);
  }
  v1::Source source = GetSource("filtered.parquet");
  source.add_filters("image_correspondence_min >= 2");
  ExpectSameIndex(source);
}

TEST_F(ImageHeadsTest, DamagedTextStillCostsItsRowGroup) {
  std::string bytes = GetFile("heads_pages.parquet");
  const v1::Source source = GetSource("heads_pages.parquet");
  // A value in its page; statistics have other bytes before it.
  const size_t text = bytes.find(std::string("\2\0\0\0q3", 6));
  ASSERT_NE(text, bytes.npos);
  bytes[text + 5] ^= 1;
  WriteFile(path_, bytes);
  // Pages of text are compared with their checksums, as in a local file.
  const IndexReport report = Build(InStore(source));
  ASSERT_EQ(report.bad.size(), 1u);
  EXPECT_NE(report.bad[0].reason.find("row group of rows 1 to 12"),
            std::string::npos)
      << report.bad[0].reason;
  EXPECT_EQ(report.samples, 12u);
}

TEST_F(ImageHeadsTest, AnyDamageIsAnErrorOrBadSamples) {
  std::mt19937_64 random(11);
  for (const char* name : {"heads_plain.parquet", "heads_dictionary.parquet",
                           "heads_pages.parquet", "heads_single.parquet"}) {
    const v1::Source source = InStore(GetSource(name));
    const std::string whole = GetFile(name);
    std::vector<size_t> headers;
    // Where something is, beside the footer: outside the images' bodies.
    for (size_t i = 1; i < whole.size(); ++i) {
      if (whole[i] != whole[i - 1]) headers.push_back(i);
    }
    for (int round = 0; round < 25; ++round) {
      std::string bytes = whole;
      for (uint64_t i = 0; i <= random() % 4; ++i) {
        bytes[headers[random() % headers.size()]] ^= 1 << random() % 8;
      }
      SCOPED_TRACE(absl::StrCat(name, " round ", round));
      WriteFile(path_, bytes);
      const auto report = BuildIndex(source, folder_, FakeOptions());
      if (!report.ok()) {
        EXPECT_EQ(report.status().code(), absl::StatusCode::kFailedPrecondition)
            << report.status();
        continue;
      }
      const auto opened = Open(source);
      for (uint64_t i = 0; i < opened->index().size(); ++i) {
        // A sample, or a fault that is counted; never a failure of the store.
        EXPECT_TRUE(opened->Read(i, ReadParts()).ok());
      }
    }
  }
}

}  // namespace
}  // namespace ballast
