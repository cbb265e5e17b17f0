#include "server/command/draw/draw_scene.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/command/draw/photo.h"

namespace ballast {
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
constexpr const char* kNames[] = {"Alma",  "Bruno", "Clara", "Dario",
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
  const auto names =
      DrawWithoutReturn(count, static_cast<int>(std::size(kNames)), random);
  const int cell_width = canvas->width() / kAcross;
  const int cell_height = canvas->height() / kDown;
  const int scale = std::clamp(cell_width / 100, 1, 5);
  std::vector<Shape> shapes;
  for (int i = 0; i < count; ++i) {
    shapes.push_back(
        {random->Pick(kKinds), kColors[colors[i]], kNames[names[i]]});
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
