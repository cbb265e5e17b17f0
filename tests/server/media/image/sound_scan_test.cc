#include "server/media/image/sound_scan.h"

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "proto/image/engine_jpeg.h"
#include "server/media/image/image.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/media/image/test_images.h"

namespace ballast {
namespace {

void ExpectFault(const std::string& jpeg, const std::string& fault) {
  const absl::Status status = CheckScan(jpeg);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(fault), std::string::npos) << status;
}

// The offset behind the header of the scan.
size_t ScanOf(const std::string& jpeg, int components) {
  return jpeg.find("\xff\xda") + 8 + 2 * components;
}

// A grey picture of 8x8 pixels whose scan is `bits`, ones and zeros, padded
// with ones. Its Huffman tables are those of the standard's annex K.
std::string OneBlock(std::string bits) {
  const std::string made =
      MakeJpeg({.width = 8, .height = 8, .sampling = ChromaSampling::kGrey});
  std::string jpeg = made.substr(0, ScanOf(made, 1));
  while (bits.size() % 8 != 0) bits += '1';
  for (size_t i = 0; i < bits.size(); i += 8) {
    jpeg += static_cast<char>(std::stoi(bits.substr(i, 8), nullptr, 2));
    if (jpeg.back() == '\xff') jpeg += '\0';
  }
  return jpeg + "\xff\xd9";
}

constexpr char kDcNone[] = "00";               // no difference
constexpr char kEnd[] = "1010";                // end of block
constexpr char kZeros[] = "11111111001";       // sixteen zeros
constexpr char kRun14[] = "1111111111101011";  // then a value of one bit
constexpr char kRun15[] = "1111111111110101";

TEST(SoundScanTest, EveryMadeFileIsSound) {
  for (const MadeJpeg& made : HardJpegs()) {
    const absl::Status status = CheckScan(MakeJpeg(made));
    EXPECT_TRUE(status.ok()) << GetName(made) << ": " << status;
  }
}

TEST(SoundScanTest, TheCorpusIsSound) {
  constexpr char kImages[] = "corpus/images";
  const std::optional<std::string> shared = SharedDirWith(kImages);
  if (!shared) GTEST_SKIP() << NotShared(kImages);
  for (const auto& entry :
       std::filesystem::directory_iterator(*shared + "/" + kImages)) {
    const std::string bytes = ReadFile(entry.path());
    const auto judged = JudgeForEngines(bytes);
    if (!judged.ok() || judged->refusal != EngineRefusal::kNone) continue;
    const absl::Status status = CheckScan(bytes);
    EXPECT_TRUE(status.ok()) << entry.path() << ": " << status;
  }
}

TEST(SoundScanTest, BlocksEndWhereTheyMust) {
  const std::string dc = kDcNone;
  const std::string zeros = std::string(kZeros) + kZeros + kZeros;
  EXPECT_TRUE(CheckScan(OneBlock(dc + kEnd)).ok());
  // 48 zeros and a run of 14 reach the last coefficient, a run of 15 does not
  // end in the block.
  EXPECT_TRUE(CheckScan(OneBlock(dc + zeros + kRun14 + "1")).ok());
  ExpectFault(OneBlock(dc + zeros + kRun15 + "1"),
              "a run passes the end of its block");
  ExpectFault(OneBlock(dc + kRun14 + "1" + zeros), "a run ends its block");
  ExpectFault(OneBlock(dc + zeros + kZeros), "a run passes the end");
}

TEST(SoundScanTest, EndsWhereItMust) {
  const std::string block = std::string(kDcNone) + kEnd;
  ExpectFault(OneBlock(block + "11111111"), "no marker 0xd9");
  ExpectFault(OneBlock(kDcNone), "bits are no Huffman code");
  ExpectFault(OneBlock(block) + '\0', "1 bytes after the end marker");
  const std::string made = MakeJpeg({.width = 80, .height = 50});
  ExpectFault(made.substr(0, made.size() - 2),
              "no marker 0xd9 after MCU 20 of 20");
  ExpectFault(made.substr(0, 100), "the header is cut off");
  ExpectFault(MakeJpeg({.progressive = true}), "not baseline");
}

TEST(SoundScanTest, RestartMarkersAreInTheirPlaces) {
  const std::string made =
      MakeJpeg({.width = 160, .height = 96, .restart_interval = 4});
  EXPECT_TRUE(CheckScan(made).ok());
  const size_t second = made.find("\xff\xd1", ScanOf(made, 3));
  ASSERT_NE(second, std::string::npos);
  std::string changed = made;
  changed[second + 1] = '\xd2';
  ExpectFault(changed, "no marker 0xd1 after MCU 8 of 60");
  changed = made;
  changed.erase(second, 2);
  EXPECT_FALSE(CheckScan(changed).ok());
}

TEST(SoundScanTest, ValuesAreThoseOfBytes) {
  // The same coefficients with larger steps.
  std::string made = MakeJpeg({.width = 40, .height = 40, .quality = 100});
  const size_t tables = made.find("\xff\xdb");
  made[tables + 5] = '\xff';
  ExpectFault(made, "a coefficient is larger");
}

TEST(SoundScanTest, HuffmanTablesAreValid) {
  const std::string made = MakeJpeg({.width = 40, .height = 40});
  const size_t table = made.find("\xff\xc4") + 5;
  std::string changed = made;
  changed[table + 0] = 2;  // two codes of one bit: none is left
  ExpectFault(changed, "");
  EXPECT_FALSE(CheckScan(changed).ok());
  changed = made;
  changed[table + 16] = 12;  // a difference of 12 bits
  ExpectFault(changed, "a Huffman table is not valid");
}

// Whatever is damaged: what passes is what libjpeg reads without a warning.
TEST(SoundScanTest, LibjpegWarnsOfNoFileThatPasses) {
  ImageDecoder decoder;
  int passed = 0;
  int failed = 0;
  for (const ChromaSampling sampling :
       {ChromaSampling::kGrey, ChromaSampling::k444, ChromaSampling::k420}) {
    for (const int interval : {0, 5}) {
      const std::string made = MakeJpeg({.width = 90,
                                         .height = 70,
                                         .sampling = sampling,
                                         .restart_interval = interval});
      for (uint32_t seed = 0; seed < 100 * kDamageKinds; ++seed) {
        const std::string copy = DamagedCopy(made, seed % kDamageKinds, seed);
        if (!CheckScan(copy).ok()) {
          ++failed;
          continue;
        }
        ++passed;
        EXPECT_TRUE(decoder.Decode(copy).ok());
        EXPECT_EQ(decoder.warnings(), 0u) << seed;
      }
    }
  }
  // Some flipped bits leave a sound file, most do not.
  EXPECT_GT(passed, 300);
  EXPECT_GT(failed, 3000);
}

}  // namespace
}  // namespace ballast
