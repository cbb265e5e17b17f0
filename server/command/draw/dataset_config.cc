#include "server/command/draw/dataset_config.h"

#include "absl/strings/str_cat.h"

namespace ballast {

const char* ShardExtension(DatasetFormat format) {
  return format == DatasetFormat::kParquet ? "parquet" : "tar";
}

std::string DatasetConfigText(DatasetFormat format) {
  // Four images of max_pixels take 4096 tokens, and the words of a drawn sample
  // at most 5000, or 3500 with images: max_tokens is never reached.
  const char* name =
      format == DatasetFormat::kParquet ? "parquet" : "webdataset";
  return absl::StrCat(
      R"(# A Ballast job on this dataset; written by make-corpus, yours to change.
# Paths are relative to this file.
sources:
  - {name: docs, format: )",
      name, ", path: \"docs-*.", ShardExtension(format), R"("}
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
