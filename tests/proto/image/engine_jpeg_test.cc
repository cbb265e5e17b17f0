#include "proto/image/engine_jpeg.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/media/image/test_images.h"

namespace ballast {
namespace {

using Refusal = EngineRefusal;

Refusal RefusalOf(const std::string& bytes) {
  const absl::StatusOr<EngineJudgement> judged = JudgeForEngines(bytes);
  EXPECT_TRUE(judged.ok()) << judged.status();
  return judged.ok() ? judged->refusal : Refusal::kMarkers;
}

std::string Segment(uint8_t marker, const std::string& payload) {
  const size_t length = payload.size() + 2;
  return std::string("\xff") + static_cast<char>(marker) +
         static_cast<char>(length >> 8) + static_cast<char>(length) + payload;
}

// The offset of the marker of the first segment of a kind, or of the first from
// `from` on.
size_t Find(const std::string& jpeg, uint8_t marker, size_t from = 2) {
  for (size_t at = from; at + 4 <= jpeg.size();) {
    if (static_cast<uint8_t>(jpeg[at + 1]) == marker) return at;
    at += 2 + (static_cast<uint8_t>(jpeg[at + 2]) << 8) +
          static_cast<uint8_t>(jpeg[at + 3]);
  }
  ADD_FAILURE() << "no segment " << static_cast<int>(marker);
  return 0;
}

// A JPEG whose segments can be changed one by one.
class JudgeTest : public ::testing::Test {
 protected:
  std::string jpeg_ = MakeJpeg({.width = 50, .height = 30});

  std::string Without(uint8_t marker) const {
    std::string changed = jpeg_;
    const size_t at = Find(changed, marker);
    changed.erase(at, 2 + (static_cast<uint8_t>(changed[at + 2]) << 8) +
                          static_cast<uint8_t>(changed[at + 3]));
    return changed;
  }
  std::string With(const std::string& segment) const {
    std::string changed = jpeg_;
    return changed.insert(2, segment);
  }
  // One byte of a segment's payload replaced.
  std::string Changed(uint8_t marker, size_t byte, uint8_t value) const {
    std::string changed = jpeg_;
    changed[Find(changed, marker) + 4 + byte] = static_cast<char>(value);
    return changed;
  }
};

TEST_F(JudgeTest, TakesEveryMadeFile) {
  for (const MadeJpeg& made : HardJpegs()) {
    SCOPED_TRACE(GetName(made));
    const std::string bytes = MakeJpeg(made);
    const absl::StatusOr<EngineJudgement> judged = JudgeForEngines(bytes);
    ASSERT_TRUE(judged.ok()) << judged.status();
    EXPECT_EQ(judged->refusal, Refusal::kNone)
        << EngineRefusalText(judged->refusal);
    EXPECT_EQ(judged->form,
              (PlaneForm{made.width, made.height, made.sampling}));
    EXPECT_TRUE(HasJpegEnd(bytes));
  }
}

TEST_F(JudgeTest, NeedsTheHeaderUpToTheScanAndNoMore) {
  const size_t scan = Find(jpeg_, 0xda);
  const size_t end = scan + 2 + 12;
  for (size_t size = 0; size < end; ++size) {
    EXPECT_EQ(JudgeForEngines(jpeg_.substr(0, size)).status().code(),
              absl::StatusCode::kOutOfRange)
        << size;
  }
  EXPECT_EQ(RefusalOf(jpeg_.substr(0, end)), Refusal::kNone);
}

TEST_F(JudgeTest, RefusesOtherProcesses) {
  EXPECT_EQ(RefusalOf(MakeJpeg({.progressive = true})), Refusal::kProcess);
  for (const uint8_t marker : {0xc1, 0xc3, 0xc5, 0xc9, 0xcb, 0xcc}) {
    EXPECT_EQ(RefusalOf(With(Segment(marker, "12345678"))), Refusal::kProcess);
  }
  EXPECT_EQ(RefusalOf(Changed(0xc0, 0, 12)), Refusal::kProcess);
}

TEST_F(JudgeTest, RefusesOtherColours) {
  EXPECT_EQ(RefusalOf(Changed(0xc0, 5, 4)), Refusal::kColours);
  const auto adobe = [](char transform) {
    return Segment(0xee, std::string("Adobe\0d\0\0\0\0", 11) + transform);
  };
  EXPECT_EQ(RefusalOf(With(adobe(0))), Refusal::kColours);
  EXPECT_EQ(RefusalOf(With(adobe(1))), Refusal::kNone);
  EXPECT_EQ(RefusalOf(With(adobe(2))), Refusal::kColours);
  // Without a marker libjpeg goes by the components' names.
  jpeg_ = Without(0xe0);
  EXPECT_EQ(RefusalOf(jpeg_), Refusal::kNone);
  const size_t frame = Find(jpeg_, 0xc0) + 4 + 6;
  const size_t scan = Find(jpeg_, 0xda) + 4 + 1;
  for (int i = 0; i < 3; ++i) {
    jpeg_[frame + 3 * i] = jpeg_[scan + 2 * i] = "RGB"[i];
  }
  EXPECT_EQ(RefusalOf(jpeg_), Refusal::kColours);
}

TEST_F(JudgeTest, RefusesOtherSampling) {
  for (const uint8_t luma : {0x12, 0x41, 0x42, 0x44, 0x31, 0x00}) {
    EXPECT_EQ(RefusalOf(Changed(0xc0, 7, luma)), Refusal::kSampling);
  }
  EXPECT_EQ(RefusalOf(Changed(0xc0, 10, 0x21)), Refusal::kSampling);
  EXPECT_EQ(RefusalOf(Changed(0xc0, 13, 0x12)), Refusal::kSampling);
  jpeg_ = MakeJpeg({.sampling = ChromaSampling::kGrey});
  EXPECT_EQ(RefusalOf(Changed(0xc0, 7, 0x22)), Refusal::kSampling);
}

TEST_F(JudgeTest, RefusesUnusualTables) {
  EXPECT_EQ(RefusalOf(Changed(0xdb, 0, 0x10)), Refusal::kTables);  // 16 bits
  EXPECT_EQ(RefusalOf(Changed(0xdb, 9, 0)), Refusal::kTables);
  EXPECT_EQ(RefusalOf(Changed(0xc4, 0, 2)), Refusal::kTables);
  EXPECT_EQ(RefusalOf(Changed(0xda, 2, 0x22)), Refusal::kTables);
  EXPECT_EQ(RefusalOf(Changed(0xc0, 8, 3)), Refusal::kTables);
  EXPECT_EQ(RefusalOf(Without(0xdb)), Refusal::kTables);
  EXPECT_EQ(RefusalOf(Without(0xc4)), Refusal::kTables);
}

TEST_F(JudgeTest, RefusesScansOfAPart) {
  EXPECT_EQ(RefusalOf(Changed(0xda, 0, 1)), Refusal::kScan);
  EXPECT_EQ(RefusalOf(Changed(0xda, 1, 3)), Refusal::kScan);  // another order
  EXPECT_EQ(RefusalOf(Changed(0xda, 8, 62)), Refusal::kScan);
  EXPECT_EQ(RefusalOf(Changed(0xda, 9, 1)), Refusal::kScan);
}

TEST_F(JudgeTest, RefusesMarkersThatDoNotAddUp) {
  EXPECT_EQ(RefusalOf(With("junk")), Refusal::kMarkers);
  EXPECT_EQ(RefusalOf(With("\xff\xd8")), Refusal::kMarkers);
  EXPECT_EQ(RefusalOf(With(std::string("\xff\xe1\0\1", 4))), Refusal::kMarkers);
  EXPECT_EQ(RefusalOf(With(Segment(0xdc, "12"))), Refusal::kMarkers);
  EXPECT_EQ(RefusalOf(With(Segment(0xdd, "123"))), Refusal::kMarkers);
  EXPECT_EQ(RefusalOf(With(Segment(0xda, "123456"))), Refusal::kMarkers);
  EXPECT_EQ(RefusalOf(With(Segment(0xe2, std::string("MPF\0II", 6)))),
            Refusal::kMarkers);
  EXPECT_EQ(RefusalOf(Changed(0xe0, 5, 2)), Refusal::kMarkers);  // JFIF 2
  const size_t frame = Find(jpeg_, 0xc0);
  EXPECT_EQ(RefusalOf(With(jpeg_.substr(frame, 19))), Refusal::kMarkers);
  EXPECT_EQ(RefusalOf(With(Segment(0xdb, std::string(1, '\0') + "short"))),
            Refusal::kMarkers);
  EXPECT_EQ(RefusalOf(With(Segment(0xc4, std::string(16, '\0')))),
            Refusal::kMarkers);
}

TEST_F(JudgeTest, RefusesSizesOutOfBounds) {
  const auto of = [&](uint32_t width, uint32_t height) {
    std::string changed = jpeg_;
    char* sides = changed.data() + Find(changed, 0xc0) + 5;
    sides[0] = static_cast<char>(height >> 8);
    sides[1] = static_cast<char>(height);
    sides[2] = static_cast<char>(width >> 8);
    sides[3] = static_cast<char>(width);
    return RefusalOf(changed);
  };
  EXPECT_EQ(of(16384, 2048), Refusal::kNone);
  EXPECT_EQ(of(16384, 2049), Refusal::kSize);
  EXPECT_EQ(of(16385, 1), Refusal::kSize);
  EXPECT_EQ(of(164, 16384), Refusal::kNone);
  EXPECT_EQ(of(163, 16384), Refusal::kSize);
  EXPECT_EQ(of(1, 100), Refusal::kNone);
  EXPECT_EQ(of(1, 101), Refusal::kSize);
  EXPECT_EQ(of(0, 5), Refusal::kSize);
  EXPECT_EQ(of(5, 0), Refusal::kSize);
}

TEST_F(JudgeTest, RefusesOtherFormats) {
  EXPECT_EQ(RefusalOf("\x89PNG\r\n\x1a\n"), Refusal::kNotJpeg);
  EXPECT_EQ(RefusalOf("RIFF1234WEBP"), Refusal::kNotJpeg);
  EXPECT_EQ(RefusalOf("\xff\xd9\xff\xe0"), Refusal::kNotJpeg);
}

TEST_F(JudgeTest, SeesTheEnd) {
  EXPECT_TRUE(HasJpegEnd(jpeg_));
  EXPECT_TRUE(HasJpegEnd("\xff\xd9"));
  EXPECT_FALSE(HasJpegEnd(jpeg_ + '\0'));
  EXPECT_FALSE(HasJpegEnd("\xd9"));
}

// testdata's files, by what they are named for.
TEST(JudgeFilesTest, KnowsTheTestFiles) {
  const std::map<std::string, Refusal> kWant = {
      {"1x4", Refusal::kSampling},
      {"411", Refusal::kSampling},
      {"420", Refusal::kNone},
      {"420_optimised_low_quality", Refusal::kNone},
      {"420_progressive", Refusal::kProcess},
      {"420_restarts", Refusal::kNone},
      {"422", Refusal::kNone},
      {"440", Refusal::kSampling},
      {"444", Refusal::kNone},
      {"cmyk_adobe", Refusal::kColours},
      {"cmyk_progressive", Refusal::kProcess},
      {"cmyk_without_adobe", Refusal::kColours},
      {"grey", Refusal::kNone},
      {"grey_progressive", Refusal::kProcess},
      {"height_1", Refusal::kNone},
      {"junk_before_segments", Refusal::kMarkers},
      {"junk_between_segments", Refusal::kMarkers},
      {"large", Refusal::kNone},
      {"large_grey", Refusal::kNone},
      {"large_progressive", Refusal::kProcess},
      {"one_pixel", Refusal::kNone},
      {"rgb", Refusal::kColours},
      {"without_jfif", Refusal::kNone},
      {"ycck", Refusal::kColours},
  };
  for (const auto& [name, want] : kWant) {
    SCOPED_TRACE(name);
    EXPECT_EQ(RefusalOf(ReadFile(TestDataPath(name + ".jpg"))), want);
  }
  EXPECT_FALSE(HasJpegEnd(ReadFile(TestDataPath("trailing_junk.jpg"))));
}

// The corpus's photographs are for the engines, but for a phone's with a second
// picture behind the first, and a progressive one.
TEST(JudgeFilesTest, TakesTheCorpus) {
  constexpr char kImages[] = "corpus/images";
  const std::optional<std::string> shared = SharedDirWith(kImages);
  if (!shared) GTEST_SKIP() << NotShared(kImages);
  const std::map<std::string, Refusal> kRefused = {
      {"llava_waterview.jpg", Refusal::kProcess},
      {"sketch2code_input.jpeg", Refusal::kMarkers},
  };
  for (const auto& entry :
       std::filesystem::directory_iterator(*shared + "/" + kImages)) {
    SCOPED_TRACE(entry.path().filename());
    const std::string bytes = ReadFile(entry.path());
    if (bytes.substr(0, 3) != "\xff\xd8\xff") {
      EXPECT_EQ(RefusalOf(bytes), Refusal::kNotJpeg);
      continue;
    }
    const absl::StatusOr<EngineJudgement> judged = JudgeForEngines(bytes);
    ASSERT_TRUE(judged.ok()) << judged.status();
    const auto refused = kRefused.find(entry.path().filename());
    EXPECT_EQ(judged->refusal,
              refused == kRefused.end() ? Refusal::kNone : refused->second)
        << EngineRefusalText(judged->refusal);
  }
}

TEST(PlaneFormTest, ChromaIsHalvedAndRoundedUp) {
  const PlaneForm both{7, 5, ChromaSampling::k420};
  EXPECT_EQ(both.planes(), 3);
  EXPECT_EQ(both.plane_width(0), 7u);
  EXPECT_EQ(both.plane_height(0), 5u);
  EXPECT_EQ(both.plane_width(2), 4u);
  EXPECT_EQ(both.plane_height(2), 3u);
  const PlaneForm across{7, 5, ChromaSampling::k422};
  EXPECT_EQ(across.plane_width(1), 4u);
  EXPECT_EQ(across.plane_height(1), 5u);
  const PlaneForm none{7, 5, ChromaSampling::k444};
  EXPECT_EQ(none.plane_width(1), 7u);
  EXPECT_EQ(none.plane_height(1), 5u);
  EXPECT_EQ((PlaneForm{7, 5, ChromaSampling::kGrey}).planes(), 1);
}

TEST(PlaneFormTest, LaysPlanesOneAfterTheOther) {
  const PlaneLayout layout = LayOutPlanes({130, 3, ChromaSampling::k420});
  EXPECT_EQ(layout.pitch[0], 192u);
  EXPECT_EQ(layout.pitch[1], 128u);
  EXPECT_EQ(layout.pitch[2], 128u);
  EXPECT_EQ(layout.offset[0], 0u);
  EXPECT_EQ(layout.offset[1], 192u * 3);
  EXPECT_EQ(layout.offset[2], 192u * 3 + 128u * 2);
  EXPECT_EQ(layout.bytes, 192u * 3 + 128u * 4);
  EXPECT_EQ(LayOutPlanes({130, 3, ChromaSampling::kGrey}).bytes, 192u * 3);
}

}  // namespace

}  // namespace ballast
