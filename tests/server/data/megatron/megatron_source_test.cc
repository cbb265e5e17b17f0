// Pairs of .bin and .idx, written by the format's description, and one whose
// index megatron-core 0.16.1 has written.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/data/index/index_builder.h"
#include "server/data/megatron/token_index.h"
#include "server/data/open_source.h"
#include "server/data/source_files.h"
#include "server/files/file.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Number>
std::string Bytes(Number number) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

// Document i has 3i + 1 tokens; token k is 7i + k.
std::vector<int64_t> Tokens(int i) {
  std::vector<int64_t> tokens;
  for (int k = 0; k < 3 * i + 1; ++k) tokens.push_back(7 * i + k);
  return tokens;
}

template <typename Token>
std::string Bin(int documents) {
  std::string bin;
  for (int i = 0; i < documents; ++i) {
    for (const int64_t token : Tokens(i)) {
      bin += Bytes(static_cast<Token>(token));
    }
  }
  return bin;
}

// The index of sequences of these lengths, one after the other.
std::string Idx(uint8_t type, uint64_t width,
                const std::vector<int32_t>& lengths,
                const std::vector<int64_t>& documents, uint64_t version = 1) {
  std::string idx = std::string("MMIDIDX\0\0", 9) + Bytes(version) +
                    Bytes(type) + Bytes(uint64_t{lengths.size()}) +
                    Bytes(uint64_t{documents.size()});
  for (const int32_t length : lengths) idx += Bytes(length);
  int64_t pointer = 0;
  for (const int32_t length : lengths) {
    idx += Bytes(pointer);
    pointer += length * static_cast<int64_t>(width);
  }
  for (const int64_t document : documents) idx += Bytes(document);
  return idx;
}

std::vector<int64_t> ToNumbers(const std::string& text) {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i + 4 <= text.size(); i += 4) {
    int32_t id;
    std::memcpy(&id, text.data() + i, 4);
    numbers.push_back(id);
  }
  return numbers;
}

// Tokens as the .idx says them, without a text.
absl::StatusOr<TextLengths> MeasureKnown(const RawSample& sample,
                                         absl::Span<const ImageSize>) {
  EXPECT_TRUE(sample.text.empty()) << "the .bin was read";
  EXPECT_EQ(sample.text_format, RawSample::TextFormat::kPackedBytes);
  TextLengths lengths;
  lengths.text_tokens = static_cast<uint32_t>(sample.known_tokens);
  return lengths;
}

class MegatronSourceTest : public ::testing::Test {
 protected:
  absl::StatusOr<IndexReport> Build(const v1::Source& source) {
    IndexOptions options = FakeOptions();
    options.measure = MeasureKnown;
    return BuildIndex(source, folder_, options);
  }

  // Expects documents 0 to `count` - 1 of each file.
  void ExpectDocuments(const v1::Source& source, int count, int files = 1) {
    const auto report = Build(source);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->bad.empty()) << report->bad[0].reason;
    const auto opened = OpenSource(source, folder_, FakeKey());
    ASSERT_TRUE(opened.ok()) << opened.status();
    ASSERT_EQ((*opened)->index().size(), uint64_t(files * count));
    for (int i = 0; i < files * count; ++i) {
      const auto sample = (*opened)->Read(i, ReadParts());
      ASSERT_TRUE(sample.ok()) << sample.status();
      ASSERT_TRUE(sample->ok()) << sample->fault().reason();
      EXPECT_EQ(ToNumbers((*sample)->text), Tokens(i % count));
      EXPECT_EQ((*opened)->index().sample(i)->text_tokens, 3 * (i % count) + 1);
    }
    EXPECT_THAT((*(*opened)->Read(1, ReadParts()))->name,
                HasSubstr(".bin: document 2"));
  }

  v1::Source GetSource(const std::string& path = "docs") {
    return MakeSource(v1::Source::FORMAT_MEGATRON, path);
  }

  const std::string folder_ = TestFolder();
};

TEST_F(MegatronSourceTest, ReadsTokensOfEveryType) {
  const auto expect = [&](uint8_t type, uint64_t width,
                          const std::string& bin) {
    SCOPED_TRACE(static_cast<int>(type));
    WriteFile(folder_ + "/docs.bin", bin);
    WriteFile(folder_ + "/docs.idx",
              Idx(type, width, {1, 4, 7, 10}, {0, 1, 2, 3, 4}));
    ExpectDocuments(GetSource(), 4);
  };
  expect(1, 1, Bin<uint8_t>(4));
  expect(2, 1, Bin<int8_t>(4));
  expect(3, 2, Bin<int16_t>(4));
  expect(4, 4, Bin<int32_t>(4));
  expect(5, 8, Bin<int64_t>(4));
  expect(8, 2, Bin<uint16_t>(4));
}

// The index of megatron-core's IndexedDatasetBuilder over five documents, of
// which number 3 has two sequences.
TEST_F(MegatronSourceTest, ReadsAnIndexOfMegatronCore) {
  const std::string idx = absl::HexStringToBytes(
      "4d4d49444944580000010000000000000008060000000000000006000000000000000100"
      "0000040000000700000004000000060000000d0000000000000000000000020000000000"
      "00000a00000000000000180000000000000020000000000000002c000000000000000000"
      "000000000000010000000000000002000000000000000300000000000000050000000000"
      "0"
      "0000600000000000000");
  EXPECT_EQ(idx, Idx(8, 2, {1, 4, 7, 4, 6, 13}, {0, 1, 2, 3, 5, 6}));
  WriteFile(folder_ + "/docs.bin", Bin<uint16_t>(5));
  WriteFile(folder_ + "/docs.idx", idx);
  ExpectDocuments(GetSource(), 5);
}

TEST_F(MegatronSourceTest, PathsNameBothFilesOrOne) {
  for (const char* name : {"a", "b"}) {
    WriteFile(absl::StrCat(folder_, "/", name, "_text_document.bin"),
              Bin<int32_t>(3));
    WriteFile(absl::StrCat(folder_, "/", name, "_text_document.idx"),
              Idx(4, 4, {1, 4, 7}, {0, 1, 2, 3}));
  }
  ExpectDocuments(GetSource("a_text_document"), 3);
  ExpectDocuments(GetSource("a_text_document.bin"), 3);
  ExpectDocuments(GetSource("a_text_document.idx"), 3);
  ExpectDocuments(GetSource("{a,b}_text_document"), 3, 2);
  ExpectDocuments(GetSource("*_text_document.idx"), 3, 2);
}

TEST_F(MegatronSourceTest, ListsDocumentsWithoutTokens) {
  WriteFile(folder_ + "/docs.bin", Bin<int32_t>(1));
  WriteFile(folder_ + "/docs.idx", Idx(4, 4, {1, 0}, {0, 1, 1, 2}));
  const auto report = Build(GetSource());
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->bad.size(), 2u);
  EXPECT_EQ(report->bad[0].reason, "no tokens");
  EXPECT_EQ(report->bad[0].key, "2");
}

TEST_F(MegatronSourceTest, RefusesFilesThatContradictThemselves) {
  WriteFile(folder_ + "/docs.bin", Bin<int32_t>(3));
  const auto error = [&](const std::string& idx) {
    WriteFile(folder_ + "/docs.idx", idx);
    const auto report = Build(GetSource());
    EXPECT_FALSE(report.ok());
    return std::string(report.status().message());
  };
  const std::string good = Idx(4, 4, {1, 4, 7}, {0, 1, 2, 3});
  EXPECT_THAT(error("MMIDIDX"), HasSubstr("does not begin with MMIDIDX"));
  EXPECT_THAT(error(good.substr(0, 20)), HasSubstr("its head is cut"));
  EXPECT_THAT(error(good.substr(0, good.size() - 1)),
              HasSubstr("its head says"));
  EXPECT_THAT(error(good + "abc"), HasSubstr("it has modes of sequences"));
  EXPECT_THAT(error(std::string("TNTIDX\0\0", 8) + good),
              HasSubstr("old format"));
  EXPECT_THAT(error(Idx(4, 4, {1, 4, 7}, {0, 1, 2, 3}, 2)),
              HasSubstr("version 2; wanted 1"));
  EXPECT_THAT(error(Idx(7, 4, {1, 4, 7}, {0, 1, 2, 3})),
              HasSubstr("tokens of type 7"));
  EXPECT_THAT(error(Idx(4, 4, {1, 4, 8}, {0, 1, 2, 3})),
              HasSubstr("sequence 2 has 8 tokens of 4 bytes at byte 20 of a "
                        ".bin of 48 bytes"));
  EXPECT_THAT(error(Idx(4, 4, {1, -4, 7}, {0, 1, 2, 3})),
              HasSubstr("sequence 1 has -4 tokens"));
  EXPECT_THAT(error(Idx(4, 4, {1, 4, 7}, {0, 2, 1, 3})),
              HasSubstr("document 1 has sequences 2 to 1 of 3"));
  EXPECT_THAT(error(Idx(4, 4, {1, 4, 7}, {1, 2, 3})),
              HasSubstr("document 0 begins at sequence 1"));
  EXPECT_THAT(error(Idx(4, 4, {1, 4, 7}, {0, 1, 2})),
              HasSubstr("document 1 has sequences 1 to 2 of 3"));
  EXPECT_THAT(error(Idx(4, 4, {1, 4, 7}, {0, 1, 1000})),
              HasSubstr("document 1 has sequences 1 to 1000"));
  // Two sequences of a document with a gap between them.
  std::string apart = Idx(4, 4, {1, 4, 7}, {0, 1, 3});
  apart[34 + 12 + 16] = 24;
  EXPECT_THAT(error(apart), HasSubstr("sequence 2 has 7 tokens of 4 bytes at "
                                      "byte 24"));
  std::string many = good;
  for (size_t at : {18, 26}) many.replace(at, 8, std::string(8, '\x7f'));
  EXPECT_THAT(error(many), HasSubstr("sequences and"));
  many = good;
  many.replace(18, 8, Bytes(uint64_t{1} << 40));
  EXPECT_THAT(error(many), HasSubstr("its head says"));
}

TEST_F(MegatronSourceTest, RefusesIdsThatAreNone) {
  EXPECT_EQ(ToTokenIds(TokenType::kInt8, "\x01\xff").status().message(),
            "token 1 is -1; wanted ids from 0 to 2^31 - 1");
  EXPECT_EQ(
      ToTokenIds(TokenType::kInt64, Bytes(int64_t{1} << 31)).status().message(),
      "token 0 is 2147483648; wanted ids from 0 to 2^31 - 1");
  EXPECT_FALSE(ToTokenIds(TokenType::kInt32, "abc").ok());
}

}  // namespace
}  // namespace ballast
