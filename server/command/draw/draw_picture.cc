#include "server/command/draw/draw_picture.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/command/draw/photo.h"
#include "server/command/draw/prose.h"

namespace ballast {

namespace {

constexpr Rgb kTextInk = {30, 30, 36};
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
      canvas->DrawText(column.x, y, kBody, kTextInk, line, column.width);
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
  canvas.DrawText(margin, margin, {title_scale, Face::kSerifBold}, kTextInk,
                  title, width - 2 * margin);
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

namespace {

constexpr Rgb kTableInk = {24, 28, 40};
constexpr Rgb kLine = {120, 128, 140};
constexpr Rgb kHead = {206, 216, 230};
constexpr Rgb kStripe = {238, 241, 246};
constexpr const char* kNames[] = {
    "Antwerp", "Bergen", "Cadiz",  "Dover", "Esbjerg", "Faro",   "Gdansk",
    "Hull",    "Izmir",  "Jersey", "Kiel",  "Lisbon",  "Malaga", "Narvik",
    "Oslo",    "Porto",  "Quebec", "Riga",  "Split",   "Tunis"};
constexpr const char* kHeads[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
constexpr int kNameCharacters = 9;
constexpr int kNumberCharacters = 7;

struct Table {
  int rows;
  int columns;
  int first_head;
  std::vector<int> values;  // [rows][columns]
  const char* head(int column) const { return kHeads[first_head + column]; }
  int value(int row, int column) const {
    return values[row * columns + column];
  }
  int sum(int column) const {
    int total = 0;
    for (int row = 0; row < rows; ++row) total += value(row, column);
    return total;
  }
};

Table MakeTable(Random* random) {
  Table table;
  table.rows = random->Between(3, static_cast<int>(std::size(kNames)));
  table.columns = random->Between(2, 8);
  table.first_head =
      random->Between(0, static_cast<int>(std::size(kHeads)) - table.columns);
  for (int i = 0; i < table.rows * table.columns; ++i) {
    table.values.push_back(random->Lognormal(300, 0.9, 1, 9999));
  }
  return table;
}

// Draws `text` right-aligned at `right`.
void DrawRight(int right, int y, int scale, const std::string& text,
               Canvas* canvas) {
  const Type type = {scale, Face::kSans};
  canvas->DrawText(right - TextWidth(text, type), y, type, kTableInk, text);
}

}  // namespace

Picture DrawTable(Random* random) {
  const Table table = MakeTable(random);
  const std::string title = MakeTitle(random);
  const int scale = random->Between(2, 3);
  const int advance = kCharacterWidth * scale;
  const int pitch = 14 * scale;
  const int margin = 20 * scale;
  const int name_width = kNameCharacters * advance;
  const int cell_width = kNumberCharacters * advance;
  const int title_width =
      static_cast<int>(title.size()) * kCharacterWidth * (scale + 1);
  const int inner_width = std::max(name_width + table.columns * cell_width,
                                   title_width - scale - 1);
  const int top = margin + 2 * pitch;
  Canvas canvas(inner_width + 2 * margin,
                top + (table.rows + 2) * pitch + margin, {252, 252, 252});
  canvas.DrawText(margin, margin, {scale + 1, Face::kSansBold}, kTableInk,
                  title, inner_width);
  const int drop = (pitch - TextHeight(scale)) / 2;
  for (int row = -1; row <= table.rows; ++row) {
    const int y = top + (row + 1) * pitch;
    const bool head = row < 0;
    const bool sums = row == table.rows;
    const Box stripe = {margin, y, inner_width, pitch};
    if (head || sums) canvas.FillBox(stripe, kHead);
    if (!head && !sums && row % 2 == 1) canvas.FillBox(stripe, kStripe);
    canvas.DrawText(margin + scale * 2, y + drop,
                    {scale, head || sums ? Face::kSansBold : Face::kSans},
                    kTableInk,
                    head   ? "Port"
                    : sums ? "Sum"
                           : kNames[row],
                    name_width);
    for (int column = 0; column < table.columns; ++column) {
      const std::string text = head   ? std::string(table.head(column))
                               : sums ? absl::StrCat(table.sum(column))
                                      : absl::StrCat(table.value(row, column));
      DrawRight(margin + name_width + (column + 1) * cell_width - 2 * scale,
                y + drop, scale, text, &canvas);
    }
    canvas.FillBox({margin, y + pitch - 1, inner_width, 1}, kLine);
  }
  canvas.DrawFrame({margin, top, inner_width, (table.rows + 2) * pitch}, 2,
                   kLine);
  AddGrain(2, random, &canvas);

  const int row = random->Between(0, table.rows - 1);
  const int column = random->Between(0, table.columns - 1);
  std::string list;
  for (int r = 0; r < table.rows; ++r) {
    absl::StrAppend(&list, r == 0 ? "" : "\n", kNames[r], ": ",
                    table.value(r, column));
  }
  return {std::move(canvas),
          {{absl::StrCat("What is the value for ", kNames[row], " in ",
                         table.head(column), "?"),
            absl::StrCat(table.value(row, column), ".")},
           {absl::StrCat("What do the values of ", table.head(column),
                         " add up to?"),
            absl::StrCat(table.sum(column), ".")},
           {absl::StrCat("List all values of ", table.head(column), "."), list},
           {"What is the title of the table?", title},
           {"How many ports are listed?",
            absl::StrCat("There are ", table.rows, ".")}}};
}

namespace {

struct NamedColor {
  const char* name;
  Rgb rgb;
};
constexpr NamedColor kColors[] = {
    {"red", {200, 36, 40}},     {"green", {36, 140, 60}},
    {"blue", {40, 70, 190}},    {"yellow", {236, 206, 40}},
    {"purple", {120, 50, 150}}, {"orange", {236, 130, 30}},
    {"black", {24, 24, 28}},    {"white", {248, 248, 248}}};
struct Kind {
  const char* name;
  Form form;
};
constexpr Kind kKinds[] = {{"ellipse", Form::kEllipse},
                           {"triangle", Form::kTriangle},
                           {"rectangle", Form::kRectangle},
                           {"lozenge", Form::kLozenge}};
constexpr const char* kShapeNames[] = {"Alma",  "Bruno", "Clara", "Dario",
                                       "Edith", "Felix", "Greta", "Hugo"};
struct Aspect {
  int width, height;
};
constexpr Aspect kAspects[] = {{4, 3}, {3, 2}, {16, 9}, {1, 1}, {3, 4}};
// Columns of the grid of cells; a cell holds one shape at most.
constexpr int kAcross = 3;
constexpr int kDown = 2;

struct Shape {
  Kind kind;
  NamedColor color;
  const char* name;
  std::string described() const {
    return absl::StrCat(color.name, " ", kind.name);
  }
};

// Draws `count` different numbers below `bound`, in random order.
std::vector<int> DrawWithoutReturn(int count, int bound, Random* random) {
  std::vector<int> numbers(bound);
  for (int i = 0; i < bound; ++i) numbers[i] = i;
  for (int i = 0; i < count; ++i) {
    std::swap(numbers[i], numbers[random->Between(i, bound - 1)]);
  }
  numbers.resize(count);
  return numbers;
}

// Draws a pale colour that contrasts with every shape and with the black names.
Rgb PaleColor(Random* random) {
  const auto channel = [&] {
    return static_cast<uint8_t>(random->Between(150, 225));
  };
  const uint8_t r = channel();
  const uint8_t g = channel();
  return {r, g, channel()};
}

Rgb Darker(Rgb color, int percent) {
  const auto part = [&](uint8_t value) {
    return static_cast<uint8_t>(value * percent / 100);
  };
  return {part(color.r), part(color.g), part(color.b)};
}

// A wall above a floor of boards.
void DrawRoom(Rgb wall_top, Rgb wall_bottom, int floor, Random* look,
              Canvas* canvas) {
  const int width = canvas->width();
  const int height = canvas->height();
  canvas->FillGradient(wall_top, wall_bottom);
  const Rgb board = Darker(wall_bottom, look->Between(72, 84));
  canvas->FillBox({0, floor, width, height - floor}, board);
  // Boards run towards a point above the floor.
  const int boards = look->Between(7, 13);
  const int from = width * look->Between(30, 70) / 100;
  for (int i = -boards; i <= 2 * boards; ++i) {
    const int near = width * i / boards;
    const int far = from + (near - from) / 3;
    canvas->DrawLine({far, floor, near - far, height - floor},
                     std::max(1, width / 500), Darker(board, 88));
  }
  canvas->FillBox({0, floor - height / 60, width, std::max(2, height / 60)},
                  Darker(wall_bottom, 93));
  LightForm(Form::kRectangle, {0, floor, width, height - floor}, -22, 14,
            canvas);
  // The camera focuses on the objects before the wall.
  Blur(std::clamp(width / 400, 1, 4), canvas);
}

// A name on a slip of paper under a shape.
void DrawName(const std::string& name, int centre, int y, int scale,
              Canvas* canvas) {
  const Type type = {scale, Face::kSansBold};
  const int width = TextWidth(name, type) + 6 * scale;
  const Box slip = {centre - width / 2, y, width, 13 * scale};
  CastShadow(Form::kRectangle,
             {slip.x + scale, slip.y + 2 * scale, width, slip.height}, 70,
             2 * scale, canvas);
  canvas->FillBox(slip, {250, 249, 244});
  canvas->DrawText(slip.x + 3 * scale, y + 3 * scale, type, {20, 20, 24}, name);
}

std::vector<Shape> PlaceShapes(Random* random, Canvas* canvas) {
  const int count = random->Between(2, kAcross * kDown);
  const auto cells = DrawWithoutReturn(count, kAcross * kDown, random);
  const auto colors =
      DrawWithoutReturn(count, static_cast<int>(std::size(kColors)), random);
  const auto names = DrawWithoutReturn(
      count, static_cast<int>(std::size(kShapeNames)), random);
  const int cell_width = canvas->width() / kAcross;
  const int cell_height = canvas->height() / kDown;
  const int scale = std::clamp(cell_width / 100, 1, 5);
  std::vector<Shape> shapes;
  for (int i = 0; i < count; ++i) {
    shapes.push_back(
        {random->Pick(kKinds), kColors[colors[i]], kShapeNames[names[i]]});
    const int width = cell_width * random->Between(35, 85) / 100;
    const int height = cell_height * random->Between(35, 70) / 100;
    const Box box = {cells[i] % kAcross * cell_width + (cell_width - width) / 2,
                     cells[i] / kAcross * cell_height + cell_height / 20, width,
                     height};
    const Form form = shapes.back().kind.form;
    const int blur = std::max(2, cell_width / 40);
    if (cells[i] < kAcross) {
      // It hangs on the wall.
      CastShadow(form, {box.x + blur, box.y + blur, width, height}, 90, blur,
                 canvas);
    } else {
      // It is on the floor.
      CastShadow(Form::kEllipse,
                 {box.x - width / 20, box.y + height - height / 16,
                  width + width / 10, height / 8},
                 130, blur, canvas);
    }
    canvas->FillForm(form, box, shapes.back().color.rgb);
    LightForm(form, box, 22, -22, canvas);
    DrawName(shapes.back().name, box.x + width / 2, box.y + height + 3 * scale,
             scale, canvas);
  }
  return shapes;
}

}  // namespace

Picture DrawScene(Random* random) {
  const Aspect& aspect = random->Pick(kAspects);
  const int width = random->Lognormal(900, 0.45, 320, 2048);
  Canvas canvas(width, width * aspect.height / aspect.width, {0, 0, 0});
  const Rgb wall_top = PaleColor(random);
  const Rgb wall_bottom = PaleColor(random);
  Random look = random->Fork();
  DrawRoom(wall_top, wall_bottom, canvas.height() * look.Between(60, 70) / 100,
           &look, &canvas);
  const std::vector<Shape> shapes = PlaceShapes(random, &canvas);
  Warp(DrawCorners(-22, 22, &look), &canvas);
  LightUnevenly(/*darkest=*/185, &look, &canvas);
  Blur(width > 1200 ? 2 : 1, &canvas);
  AddGrain(8, random, &canvas);

  const Shape& asked =
      shapes[random->Below(static_cast<uint32_t>(shapes.size()))];
  std::vector<std::string> list;
  for (const Shape& shape : shapes) {
    list.push_back(
        absl::StrCat("a ", shape.described(), " named ", shape.name));
  }
  return {std::move(canvas),
          {{"What do you see in this picture?",
            absl::StrCat("I see ", absl::StrJoin(list, ", "), ".")},
           {absl::StrCat("What is the name of the ", asked.described(), "?"),
            absl::StrCat(asked.name, ".")},
           {absl::StrCat("Which colour does ", asked.name, " have?"),
            absl::StrCat("It is ", asked.color.name, ".")},
           {"How many shapes are there?",
            absl::StrCat("There are ", shapes.size(), ".")}}};
}

}  // namespace ballast
