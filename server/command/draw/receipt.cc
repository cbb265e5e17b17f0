#include "server/command/draw/receipt.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ballast {
namespace {

constexpr const char* kShops[] = {
    "CORNER MARKET", "HARBOUR FOODS",      "GREEN BASKET",   "OLD MILL BAKERY",
    "STATION KIOSK", "NORTH STAR GROCERY", "RIVERSIDE DELI", "SUNNY ORCHARD"};
constexpr const char* kStreets[] = {"Mill Lane", "High Street", "Station Road",
                                    "Quay Side", "Park Avenue", "Church Hill"};
constexpr const char* kCurrencies[] = {"EUR", "USD", "GBP", "CHF"};
constexpr const char* kQualities[] = {"Fresh", "Small", "Large",  "Organic",
                                      "Dark",  "Sweet", "Smoked", "Plain"};
constexpr const char* kGoods[] = {
    "apples", "bread",   "butter",  "cheese", "coffee",   "eggs",   "flour",
    "grapes", "honey",   "jam",     "kale",   "lemons",   "milk",   "noodles",
    "olives", "pears",   "pepper",  "rice",   "salt",     "tea",    "tomatoes",
    "water",  "yoghurt", "walnuts", "soap",   "biscuits", "carrots"};

using Style = ReceiptLine::Style;

std::string Money(int cents) {
  return absl::StrFormat("%d.%02d", cents / 100, cents % 100);
}

std::string ItemText(const ReceiptItem& item) {
  if (item.count == 1) return item.name;
  return absl::StrCat(item.count, " x ", item.name);
}

// Places `left` and `right` at the two ends of `columns` characters.
std::string Spread(const std::string& left, const std::string& right,
                   int columns) {
  const int gap = columns - static_cast<int>(left.size() + right.size());
  return absl::StrCat(left, std::string(std::max(gap, 1), ' '), right);
}

}  // namespace

int Receipt::cents() const {
  int total = 0;
  for (const ReceiptItem& item : items) total += item.cents();
  return total;
}

Receipt MakeReceipt(int items, Random* random) {
  Receipt receipt;
  receipt.shop = random->Pick(kShops);
  const int number = random->Between(1, 140);
  receipt.street = absl::StrCat(number, " ", random->Pick(kStreets));
  // Each statement draws one random number: the order in which arguments are
  // evaluated is unspecified.
  const int year = random->Between(2015, 2025);
  const int month = random->Between(1, 12);
  const int day = random->Between(1, 28);
  const int minute = random->Between(7 * 60, 22 * 60);
  receipt.date = absl::StrFormat("%d-%02d-%02d %02d:%02d", year, month, day,
                                 minute / 60, minute % 60);
  receipt.currency = random->Pick(kCurrencies);
  receipt.vat_percent = random->Chance(50) ? 7 : 19;
  for (int i = 0; i < items; ++i) {
    const char* quality = random->Pick(kQualities);
    const char* good = random->Pick(kGoods);
    const int count = random->Chance(25) ? random->Between(2, 6) : 1;
    const int cents = random->Lognormal(320, 0.8, 35, 9999);
    receipt.items.push_back({absl::StrCat(quality, " ", good), count, cents});
  }
  return receipt;
}

std::vector<ReceiptLine> PrintReceipt(const Receipt& receipt, int columns) {
  const int total = receipt.cents();
  const int vat = total * receipt.vat_percent / (100 + receipt.vat_percent);
  const int paid = (total / 500 + 1) * 500;
  std::vector<ReceiptLine> lines = {{Style::kTitle, receipt.shop},
                                    {Style::kCentred, receipt.street},
                                    {Style::kCentred, receipt.date},
                                    {Style::kRule, ""}};
  for (const ReceiptItem& item : receipt.items) {
    lines.push_back(
        {Style::kPlain, Spread(ItemText(item), Money(item.cents()), columns)});
  }
  lines.push_back({Style::kRule, ""});
  lines.push_back(
      {Style::kBold, Spread(absl::StrCat("TOTAL ", receipt.currency),
                            Money(total), columns)});
  lines.push_back({Style::kPlain,
                   Spread(absl::StrCat("incl. VAT ", receipt.vat_percent, "%"),
                          Money(vat), columns)});
  lines.push_back({Style::kPlain, Spread("CASH", Money(paid), columns)});
  lines.push_back(
      {Style::kPlain, Spread("CHANGE", Money(paid - total), columns)});
  lines.push_back({Style::kRule, ""});
  lines.push_back({Style::kCentred, "Thank you, please come again!"});
  return lines;
}

std::vector<Question> AskAboutReceipt(const Receipt& receipt,
                                      const std::vector<ReceiptLine>& lines,
                                      Random* random) {
  std::string transcription;
  for (const ReceiptLine& line : lines) {
    if (line.style == Style::kRule) continue;
    absl::StrAppend(&transcription, transcription.empty() ? "" : "\n",
                    line.text);
  }
  const uint32_t count = static_cast<uint32_t>(receipt.items.size());
  const std::string asked = ItemText(receipt.items[random->Below(count)]);
  // The same goods may be listed twice at two prices.
  const auto first = std::find_if(
      receipt.items.begin(), receipt.items.end(),
      [&](const ReceiptItem& item) { return ItemText(item) == asked; });
  return {{"What is the total of this receipt?",
           absl::StrCat("The total is ", Money(receipt.cents()), " ",
                        receipt.currency, ".")},
          {"Transcribe this receipt line by line.", transcription},
          {"How many lines of items are there?",
           absl::StrCat("There are ", count, ".")},
          {absl::StrCat("What price stands beside the first \"", asked, "\"?"),
           absl::StrCat(Money(first->cents()), " ", receipt.currency, ".")},
          {"Which shop is this from, and when was it printed?",
           absl::StrCat(receipt.shop, ", ", receipt.street, ", on ",
                        receipt.date, ".")}};
}

}  // namespace ballast
