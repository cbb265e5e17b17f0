#include "server/command/draw/draw_sample.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "server/media/audio/audio_header.h"
#include "server/media/image/image.h"
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
    EXPECT_EQ(a->clips, same->clips);
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
      const auto rgb = ImageDecoder().Decode(image.bytes);
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
    ASSERT_FALSE(sample->clips.empty());
    for (const std::string& wav : sample->clips) {
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
    EXPECT_EQ(parts.size() - 1, sample->clips.size());
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

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(WrapTextTest, BreaksAtSpaces) {
  EXPECT_THAT(WrapText("ab cd efg", 5), ElementsAre("ab cd", "efg"));
  EXPECT_THAT(WrapText("abcdefg h", 3), ElementsAre("abcdefg", "h"));
  EXPECT_THAT(WrapText("", 3), IsEmpty());
}

TEST(MakeStatementTest, TheSentenceContainsTheAnswer) {
  Random random(3, 0);
  for (int i = 0; i < 200; ++i) {
    const Statement statement = MakeStatement(&random, /*foreign=*/i % 2 == 0);
    // The answer is "Seven.", the sentence has "seven".
    std::string number = absl::AsciiStrToLower(statement.question.answer);
    number.pop_back();
    EXPECT_THAT(statement.sentence, HasSubstr(" " + number + " "));
    if (i % 2 == 1) {
      for (const char c : statement.sentence)
        EXPECT_TRUE(absl::ascii_isprint(c));
    }
  }
}

TEST(RandomTest, StreamsRepeatAndDiffer) {
  Random a(5, 7), same(5, 7), other_stream(5, 8), other_seed(6, 7);
  // Swapped or shifted seeds and streams must give different numbers.
  Random swapped(7, 5);
  for (int i = 0; i < 100; ++i) {
    const uint64_t value = a.Next();
    EXPECT_EQ(value, same.Next());
    EXPECT_NE(value, other_stream.Next());
    EXPECT_NE(value, other_seed.Next());
    EXPECT_NE(value, swapped.Next());
  }
}

TEST(RandomTest, AForkLeavesItsOriginAsItIs) {
  Random forked(5, 7), untouched(5, 7);
  Random fork = forked.Fork(), again = forked.Fork();
  for (int i = 0; i < 100; ++i) {
    const uint64_t value = forked.Next();
    EXPECT_EQ(value, untouched.Next());
    const uint64_t other = fork.Next();
    EXPECT_NE(other, value);
    EXPECT_EQ(other, again.Next());
  }
}

TEST(RandomTest, BetweenReachesBothEndsEvenly) {
  Random random(1, 0);
  std::vector<int> counts(5);
  for (int i = 0; i < 50000; ++i) ++counts.at(random.Between(-2, 2) + 2);
  // The standard deviation of a count is 89.
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(random.Between(3, 3), 3);
  EXPECT_EQ(random.Below(1), 0u);
}

TEST(RandomTest, LognormalHasTheExpectedQuantilesAndLimits) {
  Random random(1, 0);
  std::vector<int> draws(20001);
  for (int& draw : draws) draw = random.Lognormal(1000, 0.5, 400, 2500);
  std::sort(draws.begin(), draws.end());
  EXPECT_NEAR(draws[10000], 1000, 25);
  // One standard deviation up and down: 1000 e^0.5, 1000 e^-0.5.
  EXPECT_NEAR(draws[16827], 1648.7, 50);
  EXPECT_NEAR(draws[3173], 606.5, 20);
  // e^(-0.5 * 1.83) is 0.4: about 3.3 % are clipped to it.
  EXPECT_EQ(draws[400], 400);
  EXPECT_EQ(draws[19800], 2500);
}

using ::testing::StartsWith;

using Style = ReceiptLine::Style;

// The price at the end of a line, in cents.
int PriceAtEnd(const std::string& line) {
  const std::string price = line.substr(line.rfind(' ') + 1);
  return static_cast<int>(
      std::lround(100 * std::strtod(price.c_str(), nullptr)));
}

// Reads the prices from the transcription, as from the printed receipt.
TEST(ReceiptTest, PrintedItemsAddUpToThePrintedTotal) {
  for (uint64_t stream = 0; stream < 50; ++stream) {
    Random random(11, stream);
    const int items = 1 + static_cast<int>(stream);
    const Receipt receipt = MakeReceipt(items, &random);
    const auto lines = PrintReceipt(receipt, kReceiptColumns);
    const auto questions = AskAboutReceipt(receipt, lines, &random);
    ASSERT_THAT(questions[0].question, HasSubstr("total"));
    ASSERT_THAT(questions[1].question, HasSubstr("Transcribe"));
    const std::vector<std::string> text =
        absl::StrSplit(questions[1].answer, '\n');
    // Shop, street, date, items, total, VAT, cash, change, thanks.
    ASSERT_EQ(text.size(), static_cast<size_t>(items) + 8);
    int sum = 0;
    for (int i = 0; i < items; ++i) {
      ASSERT_GT(PriceAtEnd(text[3 + i]), 0) << text[3 + i];
      sum += PriceAtEnd(text[3 + i]);
    }
    EXPECT_THAT(text[3 + items], StartsWith("TOTAL"));
    EXPECT_EQ(PriceAtEnd(text[3 + items]), sum);
    EXPECT_EQ(PriceAtEnd(text[5 + items]) - PriceAtEnd(text[6 + items]), sum);
    EXPECT_LT(PriceAtEnd(text[4 + items]), sum);
    char total[32];
    std::snprintf(total, sizeof(total), "The total is %d.%02d ", sum / 100,
                  sum % 100);
    EXPECT_THAT(questions[0].answer, StartsWith(total));
    EXPECT_THAT(questions[2].answer, HasSubstr(std::to_string(items)));
  }
}

TEST(ReceiptTest, LinesFitTheFewestColumns) {
  for (uint64_t stream = 0; stream < 50; ++stream) {
    Random random(12, stream);
    const Receipt receipt = MakeReceipt(40, &random);
    const auto lines = PrintReceipt(receipt, kReceiptColumns);
    ASSERT_EQ(lines.size(), 51u);
    for (const ReceiptLine& line : lines) {
      EXPECT_LE(line.text.size(), static_cast<size_t>(kReceiptColumns));
      if (line.style == Style::kPlain || line.style == Style::kBold) {
        EXPECT_EQ(line.text.size(), static_cast<size_t>(kReceiptColumns));
      }
    }
  }
}

}  // namespace
}  // namespace ballast
