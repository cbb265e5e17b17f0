#include "server/command/draw/draw_sample.h"

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "server/audio/audio_header.h"
#include "server/image/image.h"
#include "server/text/conversation.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr Preset kPresets[] = {Preset::kReceipts, Preset::kMixed, Preset::kText,
                               Preset::kSpeech};
constexpr uint64_t kSamples = 16;

size_t CountMarks(const std::vector<Turn>& turns) {
  size_t marks = 0;
  for (const Turn& turn : turns) {
    marks += SplitAtImageMarks(turn.text).size() - 1;
  }
  return marks;
}

TEST(DrawSampleTest, IsAPureFunctionOfItsArguments) {
  for (const Preset preset : kPresets) {
    const auto a = DrawSample(preset, 1, 5);
    const auto same = DrawSample(preset, 1, 5);
    const auto other_seed = DrawSample(preset, 2, 5);
    const auto other_number = DrawSample(preset, 1, 6);
    ASSERT_TRUE(a.ok() && same.ok() && other_seed.ok() && other_number.ok());
    EXPECT_EQ(a->conversation, same->conversation);
    ASSERT_EQ(a->images.size(), same->images.size());
    for (size_t i = 0; i < a->images.size(); ++i) {
      EXPECT_TRUE(a->images[i].bytes == same->images[i].bytes);
    }
    EXPECT_EQ(a->sounds, same->sounds);
    EXPECT_NE(a->conversation, other_seed->conversation);
    EXPECT_NE(a->conversation, other_number->conversation);
  }
}

TEST(DrawSampleTest, ImagesHaveTheClaimedFormat) {
  std::set<size_t> counts;
  for (const Preset preset : kPresets) {
    for (uint64_t number = 0; number < kSamples; ++number) {
      const auto sample = DrawSample(preset, 3, number);
      ASSERT_TRUE(sample.ok()) << sample.status();
      if (preset == Preset::kMixed) counts.insert(sample->images.size());
      for (const DrawnImage& image : sample->images) {
        const auto header = ReadImageHeader(image.bytes);
        ASSERT_TRUE(header.ok()) << header.status();
        EXPECT_EQ(static_cast<int>(header->width), image.width);
        EXPECT_EQ(static_cast<int>(header->height), image.height);
        constexpr ImageFormat kFormats[] = {
            ImageFormat::kJpeg, ImageFormat::kPng, ImageFormat::kWebp};
        EXPECT_EQ(header->format, kFormats[static_cast<int>(image.format)]);
        if (preset == Preset::kReceipts) {
          EXPECT_EQ(image.format, FileFormat::kJpeg);
          EXPECT_GE(image.height, 600);
          EXPECT_LE(image.height, 2400);
          EXPECT_GT(image.height, image.width);
        }
      }
      if (preset != Preset::kMixed) {
        EXPECT_EQ(sample->images.empty(), preset != Preset::kReceipts);
      }
    }
  }
  EXPECT_GE(counts.size(), 3u);
  EXPECT_LE(*counts.rbegin(), 4u);
}

TEST(DrawSampleTest, MixedHasEveryFormatAndTheyDecode) {
  std::set<FileFormat> decoded;
  for (uint64_t number = 0; decoded.size() < 3 && number < 100; ++number) {
    const auto sample = DrawSample(Preset::kMixed, 3, number);
    ASSERT_TRUE(sample.ok()) << sample.status();
    for (const DrawnImage& image : sample->images) {
      if (!decoded.insert(image.format).second) continue;
      const auto rgb = DecodeRgb(image.bytes);
      ASSERT_TRUE(rgb.ok()) << rgb.status();
      EXPECT_EQ(static_cast<int>(rgb->height), image.height);
    }
  }
  EXPECT_EQ(decoded.size(), 3u);
}

TEST(DrawSampleTest, SpeechIsMonoAt16KhzAndMarked) {
  for (uint64_t number = 0; number < kSamples; ++number) {
    const auto sample = DrawSample(Preset::kSpeech, 3, number);
    ASSERT_TRUE(sample.ok()) << sample.status();
    ASSERT_FALSE(sample->sounds.empty());
    for (const std::string& wav : sample->sounds) {
      const auto header = ReadAudioHeader(
          wav.size(),
          [&](uint64_t offset, uint64_t bytes) -> absl::StatusOr<std::string> {
            return wav.substr(offset, bytes);
          });
      ASSERT_TRUE(header.ok()) << header.status();
      EXPECT_EQ(header->format, AudioFormat::kWav);
      EXPECT_EQ(header->rate, 16000u);
      EXPECT_EQ(header->channels, 1u);
      EXPECT_GE(header->samples.value(), 7990u);  // half a second, in tones
      EXPECT_LE(header->samples.value(), 480000u);
    }
    const std::vector<std::string> parts =
        absl::StrSplit(sample->conversation, "<audio>");
    EXPECT_EQ(parts.size() - 1, sample->sounds.size());
  }
}

TEST(DrawSampleTest, ConversationsAlternateAndMarkEveryImage) {
  std::set<size_t> pairs;
  for (const Preset preset : kPresets) {
    for (uint64_t number = 0; number < kSamples; ++number) {
      const auto sample = DrawSample(preset, 3, number);
      ASSERT_TRUE(sample.ok()) << sample.status();
      const auto turns = ParseConversation(sample->conversation);
      ASSERT_TRUE(turns.ok()) << turns.status();
      EXPECT_EQ(CountMarks(*turns), sample->images.size());
      const size_t first = turns->front().role == Role::kSystem ? 1 : 0;
      ASSERT_EQ((turns->size() - first) % 2, 0u);
      pairs.insert((turns->size() - first) / 2);
      int said = 0;
      for (size_t i = 0; i < turns->size(); ++i) {
        said += static_cast<int>((*turns)[i].text.size());
        EXPECT_FALSE((*turns)[i].text.empty());
        if (i < first) continue;
        EXPECT_EQ((*turns)[i].role,
                  (i - first) % 2 == 0 ? Role::kUser : Role::kAssistant);
      }
      EXPECT_LE(said,
                sample->images.empty() ? kMaxBytesSaid : kMaxBytesSaidOfImages);
    }
  }
  EXPECT_EQ(pairs, (std::set<size_t>{1, 2, 3}));
}

TEST(ParsePresetTest, NamesThePresetsItAccepts) {
  EXPECT_EQ(*ParsePreset("receipts"), Preset::kReceipts);
  EXPECT_EQ(*ParsePreset("mixed"), Preset::kMixed);
  EXPECT_EQ(*ParsePreset("text"), Preset::kText);
  EXPECT_EQ(*ParsePreset("speech"), Preset::kSpeech);
  const auto unknown = ParsePreset("photos");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.status().message()),
              HasSubstr("'photos'; wanted receipts, mixed, text or speech"));
}

}  // namespace
}  // namespace ballast
