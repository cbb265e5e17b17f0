#include "server/command/draw/receipt.h"

#include <cmath>
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
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
