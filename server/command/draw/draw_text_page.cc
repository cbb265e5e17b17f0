#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/command/draw/draw_page.h"
#include "server/command/draw/photo.h"
#include "server/command/draw/prose.h"

namespace ballast {
namespace {

constexpr Rgb kInk = {30, 30, 36};
constexpr Rgb kFaint = {150, 150, 158};
constexpr int kScale = 2;
constexpr int kPitch = kLineAdvance * kScale;
constexpr Type kBody = {kScale, Face::kSerif};

struct ColumnText {
  std::vector<Statement> statements;
  std::string first_paragraph;
};

// Fills the column with paragraphs.
ColumnText FillColumn(const Box& column, Random* random, Canvas* canvas) {
  ColumnText text;
  const int characters = column.width / (kCharacterWidth * kScale);
  int y = column.y;
  while (true) {
    std::vector<Statement> paragraph(random->Between(2, 5));
    std::vector<std::string> sentences;
    for (Statement& statement : paragraph) {
      statement = MakeStatement(random, /*foreign=*/false);
      sentences.push_back(statement.sentence);
    }
    const std::string joined = absl::StrJoin(sentences, " ");
    const std::vector<std::string> lines = WrapText(joined, characters);
    // Keeps the first paragraph even if it is clipped: a page has at least one.
    const int height = static_cast<int>(lines.size()) * kPitch;
    const bool first = text.statements.empty();
    if (y + height > column.y + column.height && !first) return text;
    for (const std::string& line : lines) {
      canvas->DrawText(column.x, y, kBody, kInk, line, column.width);
      y += kPitch;
    }
    y += kPitch / 2;
    text.statements.insert(text.statements.end(), paragraph.begin(),
                           paragraph.end());
    if (first) text.first_paragraph = joined;
  }
}

}  // namespace

Picture DrawTextPage(Random* random) {
  const int width = random->Lognormal(1000, 0.2, 700, 1500);
  const int height = width * random->Between(125, 145) / 100;
  const int margin = width / 14;
  Canvas canvas(width, height, {252, 252, 250});
  canvas.FillGradient({253, 253, 251}, {243, 243, 240});
  const std::string title = MakeTitle(random);
  const int title_scale = 3;
  canvas.DrawText(margin, margin, {title_scale, Face::kSerifBold}, kInk, title,
                  width - 2 * margin);
  int y = margin + TextHeight(title_scale) + kPitch / 2;
  canvas.FillBox({margin, y, width - 2 * margin, 2}, kFaint);
  y += kPitch;

  const int gutter = margin / 2;
  const int column_width = (width - 2 * margin - gutter) / 2;
  const Box left = {margin, y, column_width, height - y - 2 * margin};
  Box right = left;
  right.x += column_width + gutter;
  const ColumnText of_left = FillColumn(left, random, &canvas);
  const ColumnText of_right = FillColumn(right, random, &canvas);
  const std::string page = absl::StrCat("Page ", random->Between(1, 99));
  canvas.DrawText((width - TextWidth(page, kBody)) / 2, height - margin, kBody,
                  kFaint, page);
  Random look = random->Fork();
  const Corners corners = DrawCorners(-3, 3, &look);
  Warp(corners, &canvas);
  LightUnevenly(/*darkest=*/236, &look, &canvas);
  AddGrain(4, random, &canvas);

  const size_t sentences =
      of_left.statements.size() + of_right.statements.size();
  const Question asked = of_left
                             .statements[random->Below(static_cast<uint32_t>(
                                 of_left.statements.size()))]
                             .question;
  return {
      std::move(canvas),
      {asked,
       {"What is the title of this page?", title},
       {"Copy the first paragraph.", of_left.first_paragraph},
       {"How many sentences are on this page?", absl::StrCat(sentences, ".")},
       {"What stands at the foot of the page?", page}}};
}

}  // namespace ballast
