// Measures tokenization on one core (wanted: 10 MB/s of English prose). If
// BALLAST_BENCHMARK_TOKENIZER and BALLAST_BENCHMARK_TEXT name a tokenizer.json
// (or a SentencePiece model) and a file of text, measures these; otherwise a
// small tokenizer on drawn prose, which is repetitive and says little.
// compare_tokenizers.py compares with Hugging Face's tokenizers.

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "absl/strings/str_cat.h"
#include "server/command/draw/receipt.h"
#include "server/text/model_tokenizer.h"

namespace ballast {
namespace {

// The size of one encoded text, about a sample's; cut at spaces.
constexpr size_t kPieceBytes = 4096;

std::string ReadText() {
  if (const char* path = std::getenv("BALLAST_BENCHMARK_TEXT")) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string text;
  Random random(1, 0);
  while (text.size() < (1 << 18)) {
    absl::StrAppend(&text, MakeStatement(&random, false).sentence, " ");
  }
  return text;
}

std::vector<std::string> MakePieces() {
  const std::string text = ReadText();
  std::vector<std::string> pieces;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin + kPieceBytes;
    end = end >= text.size() ? text.size() : text.find(' ', end);
    if (end == text.npos) end = text.size();
    pieces.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

constexpr char kBpe[] = "tests/server/text/bpe/testdata/qwen2.tokenizer.json";
constexpr char kSentencePiece[] =
    "tests/server/text/sentencepiece/testdata/llama.model";

// The file to measure instead of `path`.
std::string Asked(const char* path) {
  const char* asked = std::getenv("BALLAST_BENCHMARK_TOKENIZER");
  return asked != nullptr ? asked : path;
}

void BM_Encode(benchmark::State& state, const char* path) {
  const auto tokenizer = MakeTokenizer(Asked(path));
  if (!tokenizer.ok()) {
    state.SkipWithError(tokenizer.status().ToString().c_str());
    return;
  }
  const std::vector<std::string> pieces = MakePieces();
  const bool with_ends = state.range(0) != 0;
  std::vector<int32_t> ids;
  std::vector<size_t> ends;
  size_t bytes = 0;
  size_t tokens = 0;
  for (auto _ : state) {
    for (const std::string& piece : pieces) {
      ids.clear();
      ends.clear();
      const absl::Status status =
          (*tokenizer)
              ->EncodeWithEnds(piece, &ids, with_ends ? &ends : nullptr);
      if (!status.ok()) state.SkipWithError(status.ToString().c_str());
      bytes += piece.size();
      tokens += ids.size();
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
  state.counters["bytes_a_token"] =
      static_cast<double>(bytes) / static_cast<double>(tokens);
}
// Ends of tokens are needed for conversations, for the labels.
BENCHMARK_CAPTURE(BM_Encode, bpe, kBpe)->ArgName("ends")->Arg(0)->Arg(1);
// libsentencepiece runs in another process, so wall time is measured.
BENCHMARK_CAPTURE(BM_Encode, sentencepiece, kSentencePiece)
    ->ArgName("ends")
    ->Arg(0)
    ->Arg(1)
    ->UseRealTime();

void BM_Load(benchmark::State& state, const char* path) {
  for (auto _ : state) {
    const auto tokenizer = MakeTokenizer(Asked(path));
    if (!tokenizer.ok()) {
      state.SkipWithError(tokenizer.status().ToString().c_str());
    }
  }
}
BENCHMARK_CAPTURE(BM_Load, bpe, kBpe)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Load, sentencepiece, kSentencePiece)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace ballast

BENCHMARK_MAIN();
