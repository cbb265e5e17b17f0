// Compares what a conversation in JSON lines costs by the format's own reading
// and by the form `chat`, which makes the same sample of it. Both read the same
// lines, of LLaVA's shape, in one run.

#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "absl/strings/str_cat.h"
#include "server/data/form/form.h"
#include "server/data/jsonl/conversation_json.h"

namespace ballast {
namespace {

std::vector<RecipeRecord> Records() {
  std::vector<RecipeRecord> records(1024);
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].text = absl::StrCat(
        R"({"id": ")", i, R"(", "image": "coco/)", i,
        R"(.jpg", "conversations": [)");
    const size_t turns = 2 + 2 * (i % 5);
    for (size_t k = 0; k < turns; ++k) {
      absl::StrAppend(&records[i].text, k > 0 ? ", " : "", R"({"from": ")",
                      k % 2 == 0 ? "human" : "gpt", R"(", "value": ")",
                      k == 0 ? "<image>\\n" : "",
                      std::string(40 + 31 * (i + k) % 400, 'x'), R"("})");
    }
    records[i].text += "]}";
  }
  return records;
}

void OwnReading(benchmark::State& state) {
  const std::vector<RecipeRecord> records = Records();
  size_t at = 0;
  for (auto _ : state) {
    std::string line = records[at++ % records.size()].text;
    const auto sample = ReadJsonSample(&line);
    if (!sample.ok()) state.SkipWithError("a record is not read");
    benchmark::DoNotOptimize(sample);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(OwnReading);

void ByForm(benchmark::State& state) {
  const std::vector<RecipeRecord> records = Records();
  v1::Source::Form form;
  form.set_name("chat");
  const auto reader = FormReader::Create(form, {});
  if (!reader.ok()) return state.SkipWithError("no form");
  size_t at = 0;
  for (auto _ : state) {
    const auto sample = reader->Read(records[at++ % records.size()]);
    if (!sample.ok()) state.SkipWithError("a record is not read");
    benchmark::DoNotOptimize(sample);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(ByForm);

}  // namespace
}  // namespace ballast

BENCHMARK_MAIN();
