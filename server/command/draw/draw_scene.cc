#include "server/command/draw/draw_scene.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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
constexpr const char* kKinds[] = {"ellipse", "triangle", "rectangle",
                                  "lozenge"};
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
  const char* kind;
  NamedColor color;
  const char* name;
  std::string described() const { return absl::StrCat(color.name, " ", kind); }
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

void DrawShape(const Shape& shape, const Box& box, Canvas* canvas) {
  const absl::string_view kind = shape.kind;
  if (kind == "ellipse") {
    canvas->FillEllipse(box, shape.color.rgb);
  } else if (kind == "triangle") {
    canvas->FillTriangle(box, shape.color.rgb);
  } else if (kind == "rectangle") {
    canvas->FillBox(box, shape.color.rgb);
  } else {
    canvas->FillLozenge(box, shape.color.rgb);
  }
}

// Draws a pale colour, on which every shape and the black names stand out.
Rgb PaleColor(Random* random) {
  const auto channel = [&] {
    return static_cast<uint8_t>(random->Between(150, 225));
  };
  const uint8_t r = channel();
  const uint8_t g = channel();
  return {r, g, channel()};
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
    DrawShape(shapes.back(), box, canvas);
    canvas->DrawText(box.x + (width - TextWidth(shapes.back().name, scale)) / 2,
                     box.y + height + 2 * scale, scale, {20, 20, 24},
                     shapes.back().name);
  }
  return shapes;
}

}  // namespace

Picture DrawScene(Random* random) {
  const Aspect& aspect = random->Pick(kAspects);
  const int width = random->Lognormal(900, 0.45, 320, 2048);
  Canvas canvas(width, width * aspect.height / aspect.width, {0, 0, 0});
  const Rgb sky = PaleColor(random);
  canvas.FillGradient(sky, PaleColor(random));
  const std::vector<Shape> shapes = PlaceShapes(random, &canvas);
  canvas.AddNoise(8, random);

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
