#include "server/command/draw/draw_receipt.h"

#include <algorithm>
#include <utility>

#include "server/command/draw/receipt.h"

namespace ballast {
namespace {

using Style = ReceiptLine::Style;

constexpr Rgb kInk = {48, 46, 52};
constexpr Rgb kPaper = {246, 244, 240};

// Lines of a receipt besides its items: margins, logo, title, the ten other
// lines, bar code.
constexpr int kFixedLines = 25;

void DrawLogo(const Box& box, Random* random, Canvas* canvas) {
  const Box inner = {box.x + box.width / 4, box.y + box.height * 3 / 8,
                     box.width / 2, box.height / 2};
  switch (random->Below(3)) {
    case 0:
      canvas->FillEllipse(box, kInk);
      canvas->FillTriangle(
          {inner.x, box.y + box.height / 5, inner.width, inner.height}, kPaper);
      break;
    case 1:
      canvas->FillLozenge(box, kInk);
      canvas->FillEllipse(
          {inner.x, box.y + box.height / 4, inner.width, inner.height}, kPaper);
      break;
    default:
      canvas->FillTriangle(box, kInk);
      canvas->FillLozenge(inner, kPaper);
  }
}

void DrawBarCode(const Box& box, int bar, Random* random, Canvas* canvas) {
  for (int x = box.x; x + 3 * bar <= box.x + box.width;) {
    const int width = bar * random->Between(1, 3);
    canvas->FillBox({x, box.y, width, box.height}, kInk);
    x += width + bar * random->Between(1, 3);
  }
}

// Returns the height of the line in pixels.
int DrawLine(const ReceiptLine& line, int y, int margin, int scale,
             Canvas* canvas) {
  const int pitch = kLineAdvance * scale;
  const int centre = canvas->width() / 2;
  switch (line.style) {
    case Style::kPlain:
      canvas->DrawText(margin, y, scale, kInk, line.text);
      return pitch;
    case Style::kBold:
      canvas->DrawText(margin, y, scale, kInk, line.text);
      canvas->DrawText(margin + 1, y, scale, kInk, line.text);
      return pitch;
    case Style::kCentred:
      canvas->DrawText(centre - TextWidth(line.text, scale) / 2, y, scale, kInk,
                       line.text);
      return pitch;
    case Style::kTitle:
      canvas->DrawText(centre - TextWidth(line.text, scale + 1) / 2, y,
                       scale + 1, kInk, line.text);
      return 3 * pitch / 2;
    case Style::kRule:
      canvas->FillBox({margin, y + 2 * scale, canvas->width() - 2 * margin,
                       std::max(scale / 2, 1)},
                      kInk);
      return pitch;
  }
  return pitch;
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

  Canvas canvas(columns * kGlyphAdvance * scale + 2 * margin, height, kPaper);
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
  canvas.AddNoise(4, random);
  std::vector<Question> questions = AskAboutReceipt(receipt, lines, random);
  return {std::move(canvas), std::move(questions)};
}

}  // namespace ballast
