#include "server/corpus/parquet/page_body.h"

#include <deque>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/corpus/file.h"
#include "server/corpus/parquet/parquet_image.h"
#include "tests/server/corpus/corpus_testing.h"

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

}  // namespace
}  // namespace ballast
