#include "server/command/draw/dataset_config.h"

#include "absl/strings/str_cat.h"

namespace ballast {

const char* ShardExtension(DatasetFormat format) {
  switch (format) {
    case DatasetFormat::kParquet:
      return "parquet";
    case DatasetFormat::kJsonl:
      return "jsonl";
    default:
      return "tar";
  }
}

namespace {

// The keys of the source that reads the dataset.
const char* SourceText(DatasetFormat format) {
  switch (format) {
    case DatasetFormat::kParquet:
      return "format: parquet, path: \"docs-*.parquet\"";
    case DatasetFormat::kJsonl:
      return "format: jsonl, path: \"docs-*.jsonl\"";
    case DatasetFormat::kEnergon:
      return "format: energon, path: \".\", energon: {crude: webdataset}";
    default:
      return "format: webdataset, path: \"docs-*.tar\"";
  }
}

}  // namespace

std::string DatasetConfigText(DatasetFormat format) {
  // Four images of max_pixels take 4096 tokens, and the words of a drawn sample
  // at most 5000, or 3500 with images: max_tokens is never reached.
  return absl::StrCat(
      R"(# A Ballast job on this dataset; written by make-corpus, yours to change.
# Paths are relative to this file.
sources:
  - {name: docs, )",
      SourceText(format), R"(}
order: {seed: 1234, shuffle: true}
model: {profile: qwen2_5_vl, tokenizer: bytes, chat_template: chatml, min_pixels: 3136, max_pixels: 802816}
batch: {global: 32, micro: 16, max_tokens: 8192}
topology:
  modules: {vision: {dp: 4}, language: {dp: 4}}
balance: {delivery: exchange}
serve: {listen: ["127.0.0.1:7070"]}
)");
}

}  // namespace ballast
