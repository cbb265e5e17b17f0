// One decoder for many images: no image affects the next, and memory is bounded
// and reused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common/sha256.h"
#include "server/media/image/image.h"
#include "server/media/image/row_sink.h"
#include "server/sample/data_fault.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/malloc_counter.h"
#include "tests/server/media/image/test_images.h"

namespace ballast {
namespace {

struct Job {
  std::string bytes;
  ImageHeader header;
  uint32_t width = 0;
  uint32_t height = 0;
  std::string sha256;
};

// The resized pictures of one file format.
std::vector<Job> Jobs(absl::string_view extension) {
  const nlohmann::json vectors = ReadJsonOrFail(TestDataPath("vectors.json"));
  std::vector<Job> jobs;
  for (const nlohmann::json& file : vectors["files"]) {
    const std::string name = file["file"];
    if (name.find(std::string(extension)) == std::string::npos) continue;
    for (const nlohmann::json& resized : file["resized"]) {
      Job job;
      job.bytes = ReadFile(TestDataPath(name));
      job.header = ReadImageHeader(job.bytes).value();
      job.width = resized["width"];
      job.height = resized["height"];
      job.sha256 = resized["sha256"];
      jobs.push_back(job);
    }
  }
  return jobs;
}

absl::Status DecodeJob(ImageDecoder& decoder, const Job& job,
                       std::vector<uint8_t>& out) {
  out.resize(size_t{job.width} * job.height * 3);
  return decoder.DecodeResized(job.bytes, job.header, job.width, job.height,
                               absl::MakeSpan(out));
}

TEST(ImageDecoderTest, OneDecoderServesAllImagesInTurn) {
  ImageDecoder decoder;
  std::vector<uint8_t> out;
  for (int round = 0; round < 2; ++round) {
    for (const Job& job : Jobs(".")) {
      const absl::Status status = DecodeJob(decoder, job, out);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(Sha256Hex(out), job.sha256);
    }
  }
}

TEST(ImageDecoderTest, AnErrorDoesNotAffectTheNextImage) {
  ImageDecoder decoder;
  std::vector<uint8_t> out;
  for (const Job& job : Jobs(".")) {
    Job cut = job;
    for (const size_t part : {3, 2, 1}) {
      cut.bytes.resize(job.bytes.size() * part / 4);
      DecodeJob(decoder, cut, out).IgnoreError();
    }
    ASSERT_TRUE(DecodeJob(decoder, job, out).ok());
    EXPECT_EQ(Sha256Hex(out), job.sha256);
  }
}

// An abbreviated JPEG, without tables of its own, must not be decoded with
// those of the previous image.
TEST(ImageDecoderTest, DoesNotUseTablesOfThePreviousImage) {
  const std::string whole = ReadFile(TestDataPath("444.jpg"));
  std::string abbreviated = whole;
  while (true) {
    const size_t at = abbreviated.find("\xff\xdb");
    if (at == std::string::npos) break;
    const size_t length = static_cast<uint8_t>(abbreviated[at + 2]) * 256u +
                          static_cast<uint8_t>(abbreviated[at + 3]);
    abbreviated.erase(at, length + 2);
  }
  ASSERT_LT(abbreviated.size(), whole.size());
  const absl::Status alone = ImageDecoder().Decode(abbreviated).status();
  ImageDecoder decoder;
  ASSERT_TRUE(decoder.Decode(whole).ok());
  EXPECT_EQ(decoder.Decode(abbreviated).status(), alone);
  EXPECT_FALSE(alone.ok());
}

TEST(ImageDecoderTest, AllocatesNothingForJpegAndPngOnceWarm) {
  if (!CanCountMalloc()) GTEST_SKIP() << "the sanitizer replaces malloc";
  for (const absl::string_view extension : {".jpg", ".png"}) {
    const std::vector<Job> all = Jobs(extension);
    // At most as many sizes as a decoder caches.
    const std::vector<Job> jobs(all.begin(), all.begin() + 14);
    ImageDecoder decoder;
    std::vector<uint8_t> out(1 << 20);
    for (int round = 0; round < 3; ++round) {
      for (const Job& job : jobs)
        ASSERT_TRUE(DecodeJob(decoder, job, out).ok());
    }
    StartMallocCount();
    for (const Job& job : jobs) ASSERT_TRUE(DecodeJob(decoder, job, out).ok());
    EXPECT_EQ(ReadMallocCount().calls, 0u) << extension;
  }
}

std::string Photograph(int width, int height, FileFormat format) {
  return PlainPicture::Grained(width, height, {20, 90, 200}, {220, 200, 120},
                               /*seed=*/3, /*stream=*/0)
      .Encode(format, 90);
}

// The mean absolute difference of two pictures.
double MeanDifference(const std::vector<uint8_t>& a,
                      const std::vector<uint8_t>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(int{a[i]} - int{b[i]});
  return sum / a.size();
}

TEST(FastImageTest, JpegsAreCloseAndTheRestTheSame) {
  ImageOptions options;
  options.fast = true;
  ImageDecoder fast(options);
  ImageDecoder exact;
  for (const FileFormat format :
       {FileFormat::kJpeg, FileFormat::kPng, FileFormat::kWebp}) {
    Job job;
    job.bytes = Photograph(800, 600, format);
    job.header = ReadImageHeader(job.bytes).value();
    // Just above and just below libjpeg's scales, and larger.
    for (const double scale : {0.124, 0.126, 0.25, 0.49, 0.5, 0.51, 1.5}) {
      SCOPED_TRACE(scale);
      job.width = 800 * scale + 1;
      job.height = 600 * scale + 1;
      std::vector<uint8_t> a, b;
      ASSERT_TRUE(DecodeJob(exact, job, a).ok());
      ASSERT_TRUE(DecodeJob(fast, job, b).ok());
      if (format == FileFormat::kJpeg) {
        EXPECT_LT(MeanDifference(a, b), 2);
      } else {
        EXPECT_EQ(a, b);
      }
    }
    // Without resizing, decoding is unaffected.
    EXPECT_EQ(fast.Decode(job.bytes)->pixels, exact.Decode(job.bytes)->pixels);
  }
}

// 12 megapixels.
TEST(LargeImageTest, ABaselineJpegTakesAtMost4MB) {
  const std::string bytes = Photograph(4000, 3000, FileFormat::kJpeg);
  const ImageHeader header = ReadImageHeader(bytes).value();
  for (const auto& [width, height] :
       {std::pair(1148u, 868u), std::pair(3976u, 2996u), std::pair(28u, 28u),
        std::pair(4004u, 3024u)}) {
    std::vector<uint8_t> out(size_t{width} * height * 3);
    StartMallocCount();
    ImageDecoder decoder;
    ASSERT_TRUE(
        decoder.DecodeResized(bytes, header, width, height, absl::MakeSpan(out))
            .ok());
    const ImageDecoder::Memory memory = decoder.memory();
    EXPECT_LE(memory.most_used, 4u << 20) << width;
    EXPECT_LE(memory.held, 4u << 20) << width;
    // Counts all allocations, including tables and libjpeg's own memory.
    if (CanCountMalloc()) {
      EXPECT_LE(ReadMallocCount().peak, 4 << 20) << width;
    }
  }
}

TEST(LargeImageTest, APngTakesAFewRows) {
  const std::string bytes = Photograph(4000, 3000, FileFormat::kPng);
  const ImageHeader header = ReadImageHeader(bytes).value();
  std::vector<uint8_t> out(1148 * 868 * 3);
  StartMallocCount();
  ImageDecoder decoder;
  ASSERT_TRUE(
      decoder.DecodeResized(bytes, header, 1148, 868, absl::MakeSpan(out))
          .ok());
  EXPECT_LE(decoder.memory().most_used, 4u << 20);
  if (CanCountMalloc()) {
    EXPECT_LE(ReadMallocCount().peak, 4 << 20);
  }
}

// What the header says is enough for every kind of file, and one byte less is a
// data fault.
TEST(ImageMemoryTest, FollowsFromTheHeader) {
  for (const Job& job : Jobs(".")) {
    ImageOptions options;
    std::vector<uint8_t> out;
    ImageDecoder decoder;
    const absl::StatusOr<uint64_t> needs =
        decoder.Needs(job.bytes, job.width, job.height);
    ASSERT_TRUE(needs.ok()) << needs.status();
    ASSERT_TRUE(DecodeJob(decoder, job, out).ok());
    EXPECT_LE(decoder.memory().most_used, *needs);
    options.max_memory = *needs;
    ImageDecoder enough(options);
    EXPECT_TRUE(DecodeJob(enough, job, out).ok());
    options.max_memory = *needs - 1;
    ImageDecoder less(options);
    EXPECT_TRUE(IsDataFault(DecodeJob(less, job, out)));
    EXPECT_TRUE(
        IsDataFault(less.Needs(job.bytes, job.width, job.height).status()));
  }
}

TEST(ImageMemoryTest, CountsWhatIsKeptAndTurned) {
  ImageOptions turning;
  turning.apply_exif_orientation = true;
  const std::string bytes = ReadFile(TestDataPath("orientation_6.png"));
  const ImageHeader header = ReadImageHeader(bytes).value();
  const uint64_t pixels = uint64_t{header.width} * header.height * 3;
  const uint64_t decoder = ReadDecoderBytes(bytes, header).value();
  EXPECT_EQ(ImageDecoder().Needs(bytes).value(), decoder + pixels);
  EXPECT_EQ(ImageDecoder(turning).Needs(bytes).value(), decoder + 2 * pixels);
}

TEST(ImageMemoryTest, IsBoundedByTheFormat) {
  const nlohmann::json vectors = ReadJsonOrFail(TestDataPath("vectors.json"));
  for (const nlohmann::json& file : vectors["files"]) {
    const std::string bytes = ReadFile(TestDataPath(std::string(file["file"])));
    const ImageHeader header = ReadImageHeader(bytes).value();
    EXPECT_LE(ReadDecoderBytes(bytes, header).value(), MostDecoderBytes(header))
        << file["file"];
  }
}

TEST(ImageWarningsTest, AreCountedForTheLastImage) {
  ImageDecoder decoder;
  ASSERT_TRUE(decoder.Decode(ReadFile(TestDataPath("early_end.jpg"))).ok());
  EXPECT_GT(decoder.warnings(), 0u);
  ASSERT_TRUE(decoder.Decode(ReadFile(TestDataPath("444.jpg"))).ok());
  EXPECT_EQ(decoder.warnings(), 0u);
}

// Damaged files must give an error or an image, and nothing else. Run this
// under asan too.

// Larger claimed sizes have a separate test: allocating for each would take
// long.
constexpr uint64_t kManyPixels = 1 << 22;

void ExpectErrorOrImage(const std::vector<char>& bytes) {
  const absl::string_view view(bytes.data(), bytes.size());
  const absl::StatusOr<ImageHeader> header = ReadImageHeader(view);
  if (header.ok() && uint64_t{header->width} * header->height > kManyPixels) {
    return;
  }
  const absl::StatusOr<RgbImage> image = ImageDecoder().Decode(view);
  if (!image.ok()) {
    EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument)
        << image.status();
    return;
  }
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(image->width, header->width);
  EXPECT_EQ(image->height, header->height);
  EXPECT_EQ(image->pixels.size(), size_t{3} * image->width * image->height);
}

class HostileImageTest : public ::testing::Test {
 protected:
  HostileImageTest() {
    const nlohmann::json vectors = ReadJsonOrFail(TestDataPath("vectors.json"));
    for (const nlohmann::json& file : vectors["files"]) {
      files_.push_back(ReadFile(TestDataPath(file["file"])));
    }
  }

  std::vector<std::string> files_;
  std::mt19937 random_{20};
};

TEST_F(HostileImageTest, SurvivesFlippedBytes) {
  for (const std::string& file : files_) {
    for (int round = 0; round < 60; ++round) {
      std::vector<char> bytes(file.begin(), file.end());
      for (uint32_t n = random_() % 4 + 1; n > 0; --n) {
        bytes[random_() % bytes.size()] ^= 1 << random_() % 8;
      }
      ExpectErrorOrImage(bytes);
    }
  }
}

TEST_F(HostileImageTest, SurvivesOverwrittenAndMovedStretches) {
  for (const std::string& file : files_) {
    for (int round = 0; round < 30; ++round) {
      std::vector<char> bytes(file.begin(), file.end());
      const size_t from = random_() % bytes.size();
      const size_t to = random_() % bytes.size();
      const size_t count =
          std::min<size_t>(random_() % 40, bytes.size() - std::max(from, to));
      for (size_t i = 0; i < count; ++i) {
        bytes[to + i] = round % 2 ? bytes[from + i] : random_();
      }
      ExpectErrorOrImage(bytes);
    }
  }
}

TEST_F(HostileImageTest, SurvivesGarbageAfterAGoodStart) {
  for (const std::string& file : files_) {
    std::vector<char> bytes(file.begin(), file.end());
    const size_t keep = random_() % bytes.size();
    for (size_t i = keep; i < bytes.size(); ++i) bytes[i] = random_();
    ExpectErrorOrImage(bytes);
  }
}

// libjpeg would process the image once for each scan.
TEST(HostileJpegTest, RefusesTooManyScans) {
  const std::string file = ReadFile(TestDataPath("420_progressive.jpg"));
  const size_t scan = file.rfind("\xff\xda");
  const size_t end = file.rfind("\xff\xd9");
  ASSERT_NE(scan, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  std::string scans = file.substr(0, end);
  for (int i = 0; i < 200; ++i) scans += file.substr(scan, end - scan);
  EXPECT_EQ(ImageDecoder().Decode(scans + file.substr(end)).status().message(),
            "JPEG is damaged: more than 100 scans");
}

// The largest size that is accepted, claimed in a few bytes.
TEST(HostilePngTest, RefusesALargeClaimWithoutData) {
  const std::string small = ReadFile(TestDataPath("one_pixel.png"));
  std::string large = small;
  large.replace(16, 8, std::string("\0\0\x40\0\0\0\x40\0", 8));
  EXPECT_EQ(ImageDecoder().Decode(large).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DecodeResizedTest, RefusesAFileOfAnotherSizeThanIndexed) {
  const std::string file = ReadFile(TestDataPath("width_1.png"));
  std::vector<uint8_t> out(2 * 2 * 3);
  const auto code = [&](uint32_t width, uint32_t height) {
    return DecodeResized(file, {ImageFormat::kPng, width, height}, 2, 2,
                         absl::MakeSpan(out))
        .code();
  };
  EXPECT_EQ(code(1, 40), absl::StatusCode::kOk);
  EXPECT_EQ(code(40, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1, 41), absl::StatusCode::kInvalidArgument);
}

TEST(ScratchArenaTest, PiecesAreAlignedAndApart) {
  ScratchArena arena(1 << 20, 1 << 20);
  auto* a = arena.AllocateArray<uint8_t>(1);
  auto* b = arena.AllocateArray<uint8_t>(100);
  auto* c = arena.AllocateArray<uint64_t>(20000);
  for (const void* piece :
       {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(c)}) {
    ASSERT_NE(piece, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece) % 64, 0u);
  }
  std::memset(a, 1, 1);
  std::memset(b, 2, 100);
  std::memset(c, 3, 160000);
  EXPECT_EQ(a[0], 1);
  EXPECT_EQ(b[99], 2);
}

TEST(ScratchArenaTest, RefusesMoreThanTheLimit) {
  ScratchArena arena(1000, 1 << 20);
  EXPECT_NE(arena.Allocate(600), nullptr);
  EXPECT_EQ(arena.Allocate(600), nullptr);
  EXPECT_EQ(arena.Allocate(UINT64_MAX), nullptr);
  EXPECT_EQ(arena.AllocateArray<uint64_t>(UINT64_MAX / 2), nullptr);
  arena.Reset();
  EXPECT_NE(arena.Allocate(1000), nullptr);
  EXPECT_EQ(arena.Allocate(1), nullptr);
}

TEST(ScratchArenaTest, AsksTheSystemOnlyUntilItHasSeenTheMost) {
  ScratchArena arena(1 << 30, 1 << 30);
  const auto fill = [&] {
    arena.Reset();
    for (int i = 0; i < 50; ++i) ASSERT_NE(arena.Allocate(100000), nullptr);
  };
  fill();
  fill();
  const uint64_t allocations = arena.system_allocations();
  for (int round = 0; round < 5; ++round) fill();
  EXPECT_EQ(arena.system_allocations(), allocations);
  EXPECT_GE(arena.used(), 5000000u);
}

TEST(ScratchArenaTest, KeepsAtMostTheGivenMemory) {
  ScratchArena arena(1 << 30, 100000);
  ASSERT_NE(arena.Allocate(1 << 20), nullptr);
  EXPECT_GE(arena.held(), 1u << 20);
  arena.Reset();
  EXPECT_EQ(arena.held(), 0u);
  ASSERT_NE(arena.Allocate(10000), nullptr);
  arena.Reset();
  EXPECT_GT(arena.held(), 0u);
  EXPECT_LE(arena.held(), 100000u);
}

}  // namespace
}  // namespace ballast
