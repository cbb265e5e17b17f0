// Measures the way of records through a recipe in one process, beside a plain
// Python loop of the same function over the same lines (wanted: 0.8 of its
// records a second). One that does nothing shows what the way itself costs. The
// figures are of processor time, ours and the process's: a busy machine changes
// them little.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "absl/strings/str_cat.h"
#include "common/python_helper.h"
#include "server/recipe/image_recipe.h"
#include "server/recipe/recipe.h"

namespace ballast {
namespace {

constexpr int kRecords = 4096;
constexpr char kModule[] = "trainer_shim/python/ballast/recipe.py";

// Each returns at once, or makes messages of some ten turns: roles are renamed,
// texts are cleaned, long ones are cut.
constexpr char kNothing[] = R"(
import ballast.recipe as recipe
sample = recipe.Sample(text="x")
@recipe.cook
def cook(record):
    return sample
)";
constexpr char kTurns[] = R"(
import re
import ballast.recipe as recipe
SPACES = re.compile(r"\s+")
ROLES = {"human": "user", "gpt": "assistant"}
@recipe.cook
def cook(record):
    row = record.json()
    messages = []
    for turn in row["turns"]:
        said = SPACES.sub(" ", turn["said"]).strip()
        words = said.split(" ")
        if len(words) > 200:
            said = " ".join(words[:200])
        messages.append({"role": ROLES[turn["who"]], "content": said})
    return recipe.Sample(messages, images=[record.media("image")])
)";

// Runs `cook` over the lines in this process, and prints the records a second.
constexpr char kLoop[] = R"(
import importlib.util, sys, time, types
package = sys.modules["ballast"] = types.ModuleType("ballast")
package.__path__ = []
spec = importlib.util.spec_from_file_location("ballast.recipe", sys.argv[1])
recipe = sys.modules["ballast.recipe"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(recipe)
exec(compile(open(sys.argv[2]).read(), "recipe", "exec"), {"__name__": "recipe"})
lines = open(sys.argv[3], "rb").read().splitlines()
best = 0
for _ in range(5):
    begin = time.process_time()
    for number, line in enumerate(lines):
        recipe._cook(recipe.Record("source", "name", "jsonl", line))
    best = max(best, len(lines) / (time.process_time() - begin))
print(best)
)";

std::string MakeLine(int number) {
  std::string line =
      absl::StrCat(R"({"image": ")", number, R"(.jpg", "turns": [)");
  for (int turn = 0; turn < 10; ++turn) {
    absl::StrAppend(&line, turn > 0 ? ", " : "", R"({"who": ")",
                    turn % 2 == 0 ? "human" : "gpt", R"(", "said": ")");
    for (int word = 0; word < 35; ++word) {
      absl::StrAppend(&line, "word", (number * 31 + turn * 7 + word) % 97,
                      word % 9 == 8 ? "  " : " ");
    }
    line += "\"}";
  }
  return line + "]}";
}

std::string Write(const std::string& name, const std::string& text) {
  const std::string path = absl::StrCat(
      std::filesystem::temp_directory_path().string(), "/ballast-", name);
  std::ofstream(path) << text;
  return path;
}

double ReadClock(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return time.tv_sec + time.tv_nsec / 1e9;
}

// Processor time of this process and of its children, in seconds.
double ProcessorTime() {
  double all = ReadClock(CLOCK_PROCESS_CPUTIME_ID);
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream children(task.path() / "children");
    for (pid_t child; children >> child;) {
      clockid_t clock;
      if (clock_getcpuclockid(child, &clock) == 0) all += ReadClock(clock);
    }
  }
  return all;
}

// Records a second of the plain loop; 0 if it cannot run.
double RunLoop(const std::string& python, const std::string& recipe,
               const std::string& lines) {
  const std::string loop = Write("loop.py", kLoop);
  FILE* const out = popen(
      absl::StrCat(python, " ", loop, " ", kModule, " ", recipe, " ", lines)
          .c_str(),
      "r");
  double rate = 0;
  if (out == nullptr) return rate;
  if (fscanf(out, "%lf", &rate) != 1) rate = 0;
  pclose(out);
  return rate;
}

void BM_Cook(benchmark::State& state, const char* text) {
  const std::string path = Write("recipe.py", text);
  const auto recipe = Recipe::Open(path, {.processes = 1});
  if (!recipe.ok()) {
    state.SkipWithError(recipe.status().ToString().c_str());
    return;
  }
  const size_t batch = state.range(0);
  std::vector<RecipeRecord> records(kRecords);
  std::vector<const RecipeRecord*> pointers;
  std::string lines;
  for (int i = 0; i < kRecords; ++i) {
    records[i].text = MakeLine(i);
    records[i].name = absl::StrCat("line ", i);
    absl::StrAppend(&lines, records[i].text, "\n");
    pointers.push_back(&records[i]);
  }
  double seconds = 1e9;  // of the best round, as of the loop
  for (auto _ : state) {
    const double before = ProcessorTime();
    for (size_t i = 0; i < pointers.size(); i += batch) {
      const auto cooked = (*recipe)->Cook(absl::MakeConstSpan(
          pointers.data() + i, std::min(batch, pointers.size() - i)));
      for (const auto& one : cooked) {
        if (!one.ok()) {
          state.SkipWithError(one.status().ToString().c_str());
          return;
        }
      }
    }
    seconds = std::min(seconds, (ProcessorTime() - before) / kRecords);
  }
  const double plain =
      RunLoop(FindPythons()[0], path, Write("lines.jsonl", lines));
  state.counters["us_a_record"] = seconds * 1e6;
  state.counters["records_a_second"] = 1 / seconds;
  state.counters["plain_loop"] = plain;
  state.counters["ratio"] = 1 / seconds / plain;
}

// One record at a time, as while serving without others, and as many as an
// index gives at once. As many rounds as the loop has: the best of fewer is
// worse on a busy machine.
BENCHMARK_CAPTURE(BM_Cook, nothing, kNothing)
    ->Arg(1)
    ->Arg(64)
    ->Iterations(5)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Cook, turns, kTurns)
    ->Arg(1)
    ->Arg(64)
    ->Iterations(5)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// Gives the image as its only crop.
constexpr char kImages[] = R"(
import ballast.recipe as recipe
@recipe.image_plan
def plan(facts):
    return recipe.ImagePlan([(facts.height, facts.width)], tokens=1)
@recipe.pixels
def pixels(rgb, plan, rng):
    return rgb
)";
constexpr char kDrawnImages[] = R"(
import ballast.recipe as recipe
@recipe.image_plan(most_tokens=1)
def plan(facts, rng):
    return recipe.ImagePlan([(facts.height, facts.width)], tokens=1)
)";

std::shared_ptr<const ImageRecipe> OpenImages(benchmark::State& state,
                                              const char* text) {
  const auto recipe =
      ImageRecipe::Open(Write("image_recipe.py", text), {.processes = 1});
  if (recipe.ok()) return *recipe;
  state.SkipWithError(recipe.status().ToString().c_str());
  return nullptr;
}

// Plans of images that were not planned before, many at a time as for a step.
void BM_Plan(benchmark::State& state, const char* text) {
  const auto recipe = OpenImages(state, text);
  if (recipe == nullptr) return;
  std::vector<PlanFacts> images(512);
  uint32_t round = 0;
  double seconds = 1e9;
  for (auto _ : state) {
    ++round;
    for (size_t i = 0; i < images.size(); ++i) {
      images[i].height = 1000 + round;
      images[i].width = 1000 + i;
      images[i].draw.epoch = round;
    }
    const double before = ProcessorTime();
    const auto plans = recipe->Plan(images);
    seconds = std::min(seconds, (ProcessorTime() - before) / images.size());
    if (!plans[0].ok()) state.SkipWithError("not planned");
  }
  state.counters["us_an_image"] = seconds * 1e6;
}

// Pixels of one image of a megapixel, there and back.
void BM_Pixels(benchmark::State& state) {
  const auto recipe = OpenImages(state, kImages);
  if (recipe == nullptr) return;
  PlanFacts facts;
  facts.height = facts.width = 1000;
  facts.draw.ordinal = 1;  // not one of those that are made twice
  const auto plan = std::move(recipe->Plan({&facts, 1})[0]);
  std::vector<uint8_t> rgb(3'000'000), made(3'000'000);
  const std::vector<absl::Span<uint8_t>> crops = {absl::MakeSpan(made)};
  double seconds = 1e9;
  for (auto _ : state) {
    const double before = ProcessorTime();
    const absl::Status status = recipe->MakePixels(facts, *plan, rgb, crops);
    seconds = std::min(seconds, ProcessorTime() - before);
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  }
  state.counters["us_an_image"] = seconds * 1e6;
}

BENCHMARK_CAPTURE(BM_Plan, once_a_size, kImages)->Iterations(10);
BENCHMARK_CAPTURE(BM_Plan, drawn, kDrawnImages)->Iterations(10);
BENCHMARK(BM_Pixels)->Iterations(50);

}  // namespace
}  // namespace ballast

BENCHMARK_MAIN();
