#include "server/command/draw/receipt.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace ballast {
namespace {

constexpr const char* kQualities[] = {"old",     "young", "quiet",   "busy",
                                      "careful", "tired", "proud",   "tall",
                                      "curious", "eager", "patient", "clever"};
constexpr const char* kPeople[] = {
    "baker",  "sailor",  "teacher", "gardener", "printer", "surveyor",
    "doctor", "tailor",  "farmer",  "engineer", "painter", "librarian",
    "porter", "chemist", "miller",  "musician"};

struct Verb {
  const char* past;
  const char* base;
};
constexpr Verb kVerbs[] = {{"counted", "count"},     {"sold", "sell"},
                           {"bought", "buy"},        {"found", "find"},
                           {"repaired", "repair"},   {"drew", "draw"},
                           {"delivered", "deliver"}, {"measured", "measure"}};

struct Number {
  const char* small;
  const char* capital;
};
constexpr Number kNumbers[] = {
    {"two", "Two"},       {"three", "Three"},   {"four", "Four"},
    {"five", "Five"},     {"six", "Six"},       {"seven", "Seven"},
    {"eight", "Eight"},   {"nine", "Nine"},     {"ten", "Ten"},
    {"eleven", "Eleven"}, {"twelve", "Twelve"}, {"twenty", "Twenty"}};
constexpr const char* kThings[] = {"apples",  "lamps",   "maps",   "bricks",
                                   "letters", "bottles", "chairs", "clocks",
                                   "ropes",   "baskets", "coins",  "wheels",
                                   "books",   "tables",  "stamps", "kettles"};
constexpr const char* kPlaces[] = {
    "in Porto",          "near the harbour",    "behind the station",
    "at the old market", "by the river",        "on the second floor",
    "in Leeds",          "outside the library", "under the bridge",
    "before noon",       "after the storm",     "on a rainy Tuesday"};
constexpr const char* kForeignPlaces[] = {
    "in Zürich",   "in Malmö",   "in São Paulo", "in Kraków",
    "at the café", "in 東京",    "in Αθήνα",     "in Київ",
    "in İstanbul", "in القاهرة", "in 서울",      "in मुंबई"};
constexpr const char* kTitleQualities[] = {"Annual", "Winter", "Summer",
                                           "Early",  "Recent", "First"};
constexpr const char* kTitleTopics[] = {"Harbour", "Garden",  "Market",
                                        "Railway", "Library", "Orchard"};
constexpr const char* kTitleKinds[] = {"Report",  "Notes",  "Survey", "Records",
                                       "Letters", "Ledger", "Atlas"};

}  // namespace

Statement MakeStatement(Random* random, bool foreign) {
  const std::string who =
      absl::StrCat(random->Pick(kQualities), " ", random->Pick(kPeople));
  const Verb& verb = random->Pick(kVerbs);
  const Number& number = random->Pick(kNumbers);
  const char* things = random->Pick(kThings);
  const char* place = foreign && random->Chance(50)
                          ? random->Pick(kForeignPlaces)
                          : random->Pick(kPlaces);
  Statement statement;
  statement.sentence = absl::StrCat("The ", who, " ", verb.past, " ",
                                    number.small, " ", things, " ", place, ".");
  statement.question = {
      absl::StrCat("How many ", things, " did the ", who, " ", verb.base, "?"),
      absl::StrCat(number.capital, ".")};
  return statement;
}

std::string MakeTitle(Random* random) {
  std::string title = random->Pick(kTitleQualities);
  if (random->Chance(50)) {
    absl::StrAppend(&title, " ", random->Pick(kTitleTopics));
  }
  absl::StrAppend(&title, " ", random->Pick(kTitleKinds));
  return title;
}

std::vector<std::string> WrapText(absl::string_view text, int columns) {
  std::vector<std::string> lines;
  for (const absl::string_view word :
       absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!lines.empty() &&
        lines.back().size() + 1 + word.size() <= static_cast<size_t>(columns)) {
      absl::StrAppend(&lines.back(), " ", word);
    } else {
      lines.emplace_back(word);
    }
  }
  return lines;
}

namespace {

constexpr const char* kShops[] = {
    "CORNER MARKET", "HARBOUR FOODS",      "GREEN BASKET",   "OLD MILL BAKERY",
    "STATION KIOSK", "NORTH STAR GROCERY", "RIVERSIDE DELI", "SUNNY ORCHARD"};
constexpr const char* kStreets[] = {"Mill Lane", "High Street", "Station Road",
                                    "Quay Side", "Park Avenue", "Church Hill"};
constexpr const char* kCurrencies[] = {"EUR", "USD", "GBP", "CHF"};
constexpr const char* kGoodQualities[] = {"Fresh", "Small", "Large",  "Organic",
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
    const char* quality = random->Pick(kGoodQualities);
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

namespace {

using Style = ReceiptLine::Style;

constexpr Rgb kInk = {48, 46, 52};
constexpr Rgb kPaper = {246, 244, 240};
constexpr Rgb kDesks[] = {
    {92, 68, 48}, {58, 60, 66}, {120, 116, 108}, {40, 58, 70}};

// Lines of a receipt in addition to its items: margins, logo, title, the ten
// other lines, bar code.
constexpr int kFixedLines = 25;

void DrawLogo(const Box& box, Random* random, Canvas* canvas) {
  const Box inner = {box.x + box.width / 4, box.y + box.height * 3 / 8,
                     box.width / 2, box.height / 2};
  switch (random->Below(3)) {
    case 0:
      canvas->FillForm(Form::kEllipse, box, kInk);
      canvas->FillForm(
          Form::kTriangle,
          {inner.x, box.y + box.height / 5, inner.width, inner.height}, kPaper);
      break;
    case 1:
      canvas->FillForm(Form::kLozenge, box, kInk);
      canvas->FillForm(
          Form::kEllipse,
          {inner.x, box.y + box.height / 4, inner.width, inner.height}, kPaper);
      break;
    default:
      canvas->FillForm(Form::kTriangle, box, kInk);
      canvas->FillForm(Form::kLozenge, inner, kPaper);
  }
}

void DrawBarCode(const Box& box, int bar, Random* random, Canvas* canvas) {
  for (int x = box.x; x + 3 * bar <= box.x + box.width;) {
    const int width = bar * random->Between(1, 3);
    canvas->FillBox({x, box.y, width, box.height}, kInk);
    x += width + bar * random->Between(1, 3);
  }
}

void DrawCentred(const std::string& text, int centre, int y, const Type& type,
                 Canvas* canvas) {
  canvas->DrawText(centre - TextWidth(text, type) / 2, y, type, kInk, text);
}

// Returns the height of the line in pixels.
int DrawLine(const ReceiptLine& line, int y, int margin, int scale,
             Canvas* canvas) {
  const int pitch = kLineAdvance * scale;
  const int centre = canvas->width() / 2;
  switch (line.style) {
    case Style::kPlain:
    case Style::kBold: {
      const Type type = {
          scale, line.style == Style::kBold ? Face::kSansBold : Face::kSans};
      // The price, and the goods before it.
      const size_t end = line.text.rfind(' ');
      const std::string price = line.text.substr(end + 1);
      const std::string goods =
          line.text.substr(0, line.text.find_last_not_of(' ', end) + 1);
      const int price_x = canvas->width() - margin - TextWidth(price, type);
      canvas->DrawText(margin, y, type, kInk, goods,
                       price_x - margin - kCharacterWidth * scale);
      canvas->DrawText(price_x, y, type, kInk, price);
      return pitch;
    }
    case Style::kCentred:
      DrawCentred(line.text, centre, y, {scale, Face::kSans}, canvas);
      return pitch;
    case Style::kTitle:
      DrawCentred(line.text, centre, y, {scale + 1, Face::kSansBold}, canvas);
      return 3 * pitch / 2;
    case Style::kRule:
      canvas->FillBox({margin, y + 2 * scale, canvas->width() - 2 * margin,
                       std::max(scale / 2, 1)},
                      kInk);
      return pitch;
  }
  return pitch;
}

// Lays the paper on a desk as a scanner or a phone sees it: creased, bent and a
// little askew, under uneven light.
void Photograph(Random* look, Canvas* canvas) {
  const int creases = look->Between(0, 2);
  for (int i = 0; i < creases; ++i) {
    const int y = canvas->height() * look->Between(20, 80) / 100;
    const int reach = canvas->height() / 16;
    const int light = look->Between(8, 14);
    canvas->FillBox({0, y, canvas->width(), 1}, {214, 212, 206});
    LightForm(Form::kRectangle, {0, y - reach, canvas->width(), reach}, 0,
              light, canvas);
    LightForm(Form::kRectangle, {0, y, canvas->width(), reach}, -light, 0,
              canvas);
  }
  const Rgb desk = look->Pick(kDesks);
  const Corners corners = DrawCorners(2, 18, look);
  const int most_bend = canvas->width() / 60;
  Warp(corners, look->Between(-most_bend, most_bend), desk, canvas);
  LightUnevenly(/*darkest=*/205, look, canvas);
  Blur(1, canvas);
}

}  // namespace

Picture DrawReceipt(Random* random) {
  const int height = random->Lognormal(1100, 0.45, 600, 2400);
  const int scale = height < 900    ? 2
                    : height < 1500 ? random->Between(2, 3)
                                    : random->Between(3, 4);
  const int columns = kReceiptColumns + random->Between(0, 8);
  const int pitch = kLineAdvance * scale;
  const int margin = 12 * scale;
  const Receipt receipt =
      MakeReceipt(std::max(height / pitch - kFixedLines, 2), random);
  const std::vector<ReceiptLine> lines = PrintReceipt(receipt, columns);

  Canvas canvas(columns * kCharacterWidth * scale + 2 * margin, height, kPaper);
  canvas.FillGradient({250, 248, 244}, {232, 230, 224});
  int y = margin;
  const int logo = 4 * pitch;
  DrawLogo({canvas.width() / 2 - logo / 2, y, logo, logo}, random, &canvas);
  y += logo + pitch;
  for (const ReceiptLine& line : lines) {
    y += DrawLine(line, y, margin, scale, &canvas);
  }
  DrawBarCode(
      {2 * margin, y + pitch / 2, canvas.width() - 4 * margin, 3 * pitch},
      scale, random, &canvas);
  Random look = random->Fork();
  Photograph(&look, &canvas);
  AddGrain(4, random, &canvas);
  std::vector<Question> questions = AskAboutReceipt(receipt, lines, random);
  return {std::move(canvas), std::move(questions)};
}

}  // namespace ballast
