#ifndef BALLAST_SERVER_COMMAND_DRAW_RECEIPT_H_
#define BALLAST_SERVER_COMMAND_DRAW_RECEIPT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/random.h"
#include "server/command/draw/canvas.h"

namespace ballast {

struct Question {
  std::string question;
  std::string answer;
};

// A drawn picture and questions about it. The answers come from the values that
// were drawn, so they are right.
struct Picture {
  Canvas canvas;
  // At least one; the most natural first.
  std::vector<Question> questions;
};

// A made-up statement and a question about it.
struct Statement {
  std::string sentence;  // "The old baker counted seven apples in Porto."
  Question question;     // "How many apples did the old baker count?"
};

// Generates a statement: in ASCII, which the font can draw, unless `foreign`;
// then places may be spelt in any script, as UTF-8.
Statement MakeStatement(Random* random, bool foreign);

// Generates a title: two or three capitalised words in ASCII.
std::string MakeTitle(Random* random);

// Breaks `text` at spaces into lines of at most `columns` bytes; a longer word
// gets a separate line. `columns` is at least 1.
std::vector<std::string> WrapText(absl::string_view text, int columns);

struct ReceiptItem {
  std::string name;
  int count;
  int unit_cents;
  int cents() const { return count * unit_cents; }
};

// The content of a shop's receipt. Prices include the tax.
struct Receipt {
  std::string shop;
  std::string street;
  std::string date;
  std::string currency;
  int vat_percent = 0;
  std::vector<ReceiptItem> items;
  // The sum of the items.
  int cents() const;
};

struct ReceiptLine {
  enum class Style {
    kPlain,    // from edge to edge
    kCentred,  //
    kTitle,    // centred and larger
    kBold,     // from edge to edge
    kRule,     // no text, a line across the page
  };
  Style style;
  std::string text;
};

// The fewest columns into which every line fits.
inline constexpr int kReceiptColumns = 32;

// Generates a receipt; `items` is at least 1.
Receipt MakeReceipt(int items, Random* random);

// The lines from top to bottom, `columns` (at least kReceiptColumns) characters
// wide: one for each item, and ten others in addition to the title.
std::vector<ReceiptLine> PrintReceipt(const Receipt& receipt, int columns);

// Questions about a receipt: first for the total, then for a transcription,
// which is all lines of text as printed.
std::vector<Question> AskAboutReceipt(const Receipt& receipt,
                                      const std::vector<ReceiptLine>& lines,
                                      Random* random);

// Draws a photographed receipt, creased and a little askew: a tall page of
// 600..2400 pixels, its height lognormal, with a logo, the lines of a Receipt
// that fill it, and a bar code.
Picture DrawReceipt(Random* random);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_RECEIPT_H_
