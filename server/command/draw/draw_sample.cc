#include "server/command/draw/draw_sample.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "server/command/draw/canvas.h"

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

// Draws a page of a report: a title over two columns of text, 700..1500 pixels
// wide.
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

// Draws a table of numbers with a header, row names and a row of sums.
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

// Draws a photograph of a room with coloured shapes and their names, on the
// wall and on the floor: 320..2048 pixels wide, in the aspect ratios of
// photographs. No two shapes share a colour or a name.
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

}  // namespace

Passage MakePassage(Random* random) {
  const size_t length = random->Lognormal(800, 0.8, 60, 3900);
  // Limit of the trailing sentences that a question asks to repeat.
  constexpr size_t kCopied = 8;
  std::vector<Statement> statements;
  Passage passage;
  while (passage.text.size() < length) {
    statements.push_back(MakeStatement(random, /*foreign=*/true));
    absl::StrAppend(&passage.text, passage.text.empty() ? "" : " ",
                    statements.back().sentence);
  }
  const size_t count = statements.size();
  const size_t copied = count < kCopied ? count : kCopied;
  std::string copy;
  for (size_t i = count - copied; i < count; ++i) {
    absl::StrAppend(&copy, copy.empty() ? "" : " ", statements[i].sentence);
  }
  passage.questions = {
      statements[random->Below(static_cast<uint32_t>(count))].question,
      {copied == 1 ? "Repeat the last sentence."
                   : absl::StrCat("Repeat the last ", copied, " sentences."),
       copy},
      {"How many sentences does the text have?",
       count == 1 ? "One." : absl::StrCat(count, ".")}};
  return passage;
}

namespace {

constexpr int kMaxTurns = 3;
// A longer answer appears only as the first of a conversation.
constexpr size_t kShortAnswer = 120;

int ImageCount(Preset preset, Random* random) {
  if (preset == Preset::kText || preset == Preset::kSpeech) return 0;
  const uint32_t draw = random->Below(100);
  if (preset == Preset::kReceipts) return draw < 88 ? 1 : 2;
  return draw < 15 ? 0 : draw < 65 ? 1 : draw < 85 ? 2 : draw < 95 ? 3 : 4;
}

Picture DrawPicture(Preset preset, Random* random) {
  const uint32_t draw = random->Below(100);
  if (preset == Preset::kReceipts || draw < 35) return DrawReceipt(random);
  if (draw < 60) return DrawTextPage(random);
  if (draw < 75) return DrawTable(random);
  return DrawScene(random);
}

FileFormat PickFormat(Preset preset, Random* random) {
  const uint32_t draw = random->Below(100);
  if (preset == Preset::kReceipts || draw < 80) return FileFormat::kJpeg;
  return draw < 92 ? FileFormat::kPng : FileFormat::kWebp;
}

// Removes a question from the list, which must not be empty, and returns it.
// The first is the natural one to ask.
Question TakeQuestion(std::vector<Question>* questions, Random* random) {
  const uint32_t count = static_cast<uint32_t>(questions->size());
  const uint32_t index = random->Chance(40) ? 0 : random->Below(count);
  Question taken = (*questions)[index];
  questions->erase(questions->begin() + index);
  return taken;
}

void DropLongAnswers(std::vector<std::vector<Question>>* topics) {
  for (std::vector<Question>& questions : *topics) {
    questions.erase(std::remove_if(questions.begin(), questions.end(),
                                   [](const Question& question) {
                                     return question.answer.size() >
                                            kShortAnswer;
                                   }),
                    questions.end());
  }
}

// The text of the first turn with the image marks before or after it.
std::string PlaceMarks(size_t images, const std::string& words,
                       Random* random) {
  std::string marks;
  for (size_t i = 0; i < images; ++i) {
    absl::StrAppend(&marks, i == 0 ? "" : "\n", "<image>");
  }
  if (marks.empty()) return words;
  return random->Chance(80) ? absl::StrCat(marks, "\n", words)
                            : absl::StrCat(words, "\n", marks);
}

using Turns = std::vector<std::pair<std::string, std::string>>;

// Generates the conversation. `topics` are the questions about each picture, or
// about the passage; `opening` precedes the first question.
Turns Converse(size_t images, std::vector<std::vector<Question>> topics,
               const std::string& opening, Random* random) {
  Turns turns;
  if (random->Chance(10)) {
    turns.emplace_back("system", "Answer from what is shown, briefly.");
  }
  const int pairs = random->Between(1, kMaxTurns);
  for (int pair = 0; pair < pairs; ++pair) {
    const uint32_t topic = random->Below(static_cast<uint32_t>(topics.size()));
    if (topics[topic].empty()) break;
    const Question asked = TakeQuestion(&topics[topic], random);
    std::string words = asked.question;
    if (images > 1) words = absl::StrCat("Image ", topic + 1, ": ", words);
    if (pair == 0) words = PlaceMarks(images, opening + words, random);
    turns.emplace_back("human", words);
    turns.emplace_back("gpt", asked.answer);
    if (pair == 0) DropLongAnswers(&topics);
  }
  return turns;
}

std::string WriteConversation(uint64_t number, const Turns& turns) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [from, value] : turns) {
    list.push_back({{"from", from}, {"value", value}});
  }
  const nlohmann::ordered_json json = {{"id", absl::StrFormat("%06d", number)},
                                       {"conversations", list}};
  return json.dump();
}

}  // namespace

absl::StatusOr<Preset> ParsePreset(absl::string_view name) {
  if (name == "receipts") return Preset::kReceipts;
  if (name == "mixed") return Preset::kMixed;
  if (name == "text") return Preset::kText;
  if (name == "speech") return Preset::kSpeech;
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown preset '", name, "'; wanted receipts, mixed, text or speech"));
}

absl::StatusOr<DrawnSample> DrawSample(Preset preset, uint64_t seed,
                                       uint64_t number) {
  Random random(seed, number);
  DrawnSample sample;
  std::vector<std::vector<Question>> topics;
  std::string opening;
  const int images = ImageCount(preset, &random);
  for (int i = 0; i < images; ++i) {
    Picture picture = DrawPicture(preset, &random);
    DrawnImage image;
    image.format = PickFormat(preset, &random);
    image.width = picture.canvas.width();
    image.height = picture.canvas.height();
    BALLAST_ASSIGN_OR_RETURN(
        image.bytes, EncodeImage(picture.canvas.pixels(), image.width,
                                 image.height, image.format, /*quality=*/85));
    sample.images.push_back(std::move(image));
    topics.push_back(std::move(picture.questions));
  }
  if (preset == Preset::kSpeech) {
    const int clips = random.Chance(20) ? 2 : 1;
    for (int i = 0; i < clips; ++i) {
      Clip audio = DrawClip(&random);
      absl::StrAppend(&opening, "<audio>\n");
      sample.clips.push_back(std::move(audio.wav));
      if (i == 0) topics.push_back(std::move(audio.questions));
    }
  } else if (images == 0) {
    Passage passage = MakePassage(&random);
    opening = absl::StrCat(passage.text, "\n\n");
    topics.push_back(std::move(passage.questions));
  }
  sample.turns =
      Converse(sample.images.size(), std::move(topics), opening, &random);
  sample.conversation = WriteConversation(number, sample.turns);
  return sample;
}

namespace {

constexpr uint32_t kRate = 16000;

void AddLittle(uint64_t value, int bytes, std::string* to) {
  for (int i = 0; i < bytes; ++i)
    to->push_back(static_cast<char>(value >> 8 * i));
}

}  // namespace

std::string WriteWav(const std::vector<int16_t>& samples) {
  std::string wav = "RIFF";
  AddLittle(36 + 2 * samples.size(), 4, &wav);
  wav += "WAVEfmt ";
  AddLittle(16, 4, &wav);
  AddLittle(1, 2, &wav);  // PCM
  AddLittle(1, 2, &wav);
  AddLittle(kRate, 4, &wav);
  AddLittle(2 * kRate, 4, &wav);
  AddLittle(2, 2, &wav);
  AddLittle(16, 2, &wav);
  wav += "data";
  AddLittle(2 * samples.size(), 4, &wav);
  for (const int16_t sample : samples) {
    AddLittle(static_cast<uint16_t>(sample), 2, &wav);
  }
  return wav;
}

namespace {

// Parabolas, which look like a sine. The period is 65536.
int Wave(uint32_t phase) {
  const int p = static_cast<int>(phase & 0xFFFF) - 32768;
  return p * (32768 - std::abs(p)) >> 13;
}

}  // namespace

Clip DrawClip(Random* random) {
  const int all = random->Lognormal(6 * kRate, 0.7, kRate / 2, 30 * kRate);
  const int tones = random->Between(1, 5);
  std::vector<int16_t> samples;
  std::vector<int> pitches;
  for (int tone = 0; tone < tones; ++tone) {
    // Hertz, not near the pitch of the previous tone.
    int pitch = random->Between(2, 30) * 100;
    if (!pitches.empty() && pitches.back() == pitch) pitch += 100;
    pitches.push_back(pitch);
    const uint32_t step = static_cast<uint32_t>(pitch) * 65536u / kRate;
    const int length = all / tones;
    const int sounding = length - length / 5;
    for (int i = 0; i < length; ++i) {
      const int loud =
          i < sounding ? Wave(static_cast<uint32_t>(i) * step) / 3 : 0;
      samples.push_back(
          static_cast<int16_t>(loud + random->Between(-200, 200)));
    }
  }
  Clip audio;
  audio.wav = WriteWav(samples);
  audio.questions.push_back(
      {"How many tones are there?", absl::StrCat(tones, ".")});
  if (tones > 1) {
    audio.questions.push_back(
        {"Is the last tone higher than the first?",
         pitches.back() > pitches.front() ? "Yes." : "No."});
  }
  return audio;
}

}  // namespace ballast
