#ifndef BALLAST_TESTS_TRAINER_SHIM_C_API_EMBEDDING_JOB_H_
#define BALLAST_TESTS_TRAINER_SHIM_C_API_EMBEDDING_JOB_H_

// One rank of a job with placement `split`, through the C interface: every
// embedding is a code of its sample and its row, so that a row that arrives at
// another place shows.

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "trainer_shim/c_api/c_api.h"

namespace ballast {

// `images` and `micro`: most images of a sample, and samples of a micro-batch.
inline std::string EmbeddingJobConfig(uint32_t dp, uint32_t images,
                                      uint32_t micro, const char* balance) {
  return absl::StrCat(
      "sources:\n"
      "  - name: mock\n"
      "    format: mock\n"
      "    lengths: {mode: lognormal, min: 64, max: 256, mean: 120, sigma: 0.6,"
      " count: 400}\n"
      "    images: {min: 0, max: ",
      images,
      ", pixels: {min: 4000, max: 60000, mean: 20000, sigma: 0.8}}\n"
      "model: {profile: qwen2_5_vl, tokenizer: bytes}\n"
      "batch: {global: ",
      2 * micro, ", micro: ", micro,
      ", max_tokens: 1024}\n"
      "topology: {modules: {vision: {dp: ",
      dp, "}, language: {dp: ", dp, "}}}\nbalance: {", balance,
      ", cost: {vision: {linear: 1}, language: {linear: 3, quadratic: 0.01}}}\n"
      "serve: {threads: 2, memory: 64MiB, listen: ['unix:/replaced']}\n");
}

struct EmbeddingType {
  int32_t dtype;
  uint64_t bytes;
  uint64_t width;
};
inline constexpr EmbeddingType kEmbeddingTypes[] = {
    {BALLAST_FLOAT64, 8, 3},
    {BALLAST_FLOAT32, 4, 5},
    {BALLAST_BFLOAT16, 2, 7},
    {BALLAST_FLOAT16, 2, 1},
};

// A sample of a batch, and its number of the encoder's tokens.
struct EmbeddingSample {
  uint64_t position;
  uint64_t rows;
};

// Bytes of the rows of `samples`, in order. `salt` tells exchanges apart.
inline std::string RowCodes(const std::vector<EmbeddingSample>& samples,
                            uint64_t row_bytes, uint64_t salt) {
  std::string bytes;
  for (const EmbeddingSample& sample : samples) {
    for (uint64_t row = 0; row < sample.rows; ++row) {
      for (uint64_t i = 0; i < row_bytes; ++i) {
        uint64_t code = (sample.position << 32 | row << 8 | i) + salt;
        code *= 0x9E3779B97F4A7C15;
        bytes.push_back(static_cast<char>(code >> 56));
      }
    }
  }
  return bytes;
}

// The samples of a batch. `rows_of` gives a sample's number of tokens.
inline std::vector<EmbeddingSample> SamplesOf(
    const ballast_batch* batch,
    const std::function<uint64_t(uint64_t position)>& rows_of) {
  ballast_batch_info info = {};
  info.struct_size = sizeof(info);
  EXPECT_EQ(ballast_batch_get_info(batch, &info), BALLAST_OK);
  std::vector<EmbeddingSample> samples;
  for (uint32_t i = 0; i < info.num_samples; ++i) {
    ballast_sample sample = {};
    sample.struct_size = sizeof(sample);
    EXPECT_EQ(ballast_batch_get_sample(batch, i, &sample), BALLAST_OK);
    samples.push_back({sample.position, rows_of(sample.position)});
  }
  return samples;
}

inline uint64_t GetRows(const std::vector<EmbeddingSample>& samples) {
  uint64_t rows = 0;
  for (const EmbeddingSample& sample : samples) rows += sample.rows;
  return rows;
}

// Access to the arrays, which may be in device memory.
struct EmbeddingMemory {
  void* stream = nullptr;
  std::function<void*(const std::string& bytes)> upload;  // a new array
  std::function<std::string(const void* data, uint64_t bytes)> download;
};

// Exchanges a micro-batch's rows of every type, both ways, and compares what
// arrives with the samples of this rank. `dummy_rows`: what the encoder makes
// of a dummy. Returns the first bad status.
inline int ExchangeBothWays(ballast_shim* encoder, const ballast_batch* media,
                            const std::vector<EmbeddingSample>& sent,
                            const std::vector<EmbeddingSample>& wanted,
                            const EmbeddingMemory& memory,
                            uint64_t dummy_rows = 1) {
  ballast_batch_info info = {};
  info.struct_size = sizeof(info);
  EXPECT_EQ(ballast_batch_get_info(media, &info), BALLAST_OK);
  if (info.dummy_image == 0) dummy_rows = 0;
  uint64_t salt = info.step * 1000 + info.micro_batch * 100;
  for (const EmbeddingType& type : kEmbeddingTypes) {
    const uint64_t row = type.bytes * type.width;
    const std::string dummy(dummy_rows * row, '\x5A');
    ballast_embedding_rows rows = {};
    rows.struct_size = sizeof(rows);
    rows.dtype = type.dtype;
    rows.width = type.width;
    rows.tower_rows = GetRows(sent) + dummy_rows;
    rows.text_rows = GetRows(wanted);
    const uint64_t tower_bytes = rows.tower_rows * row;
    const uint64_t text_bytes = rows.text_rows * row;

    rows.tower = memory.upload(RowCodes(sent, row, ++salt) + dummy);
    rows.text = memory.upload(std::string(text_bytes, '\x11'));
    int status =
        ballast_shim_exchange_embeddings(encoder, media, &rows, memory.stream);
    if (status != BALLAST_OK) return status;
    EXPECT_EQ(memory.download(rows.text, text_bytes),
              RowCodes(wanted, row, salt))
        << "type " << type.dtype;
    EXPECT_EQ(memory.download(rows.tower, tower_bytes),
              RowCodes(sent, row, salt) + dummy);

    rows.text = memory.upload(RowCodes(wanted, row, ++salt));
    status =
        ballast_shim_return_gradients(encoder, media, &rows, memory.stream);
    if (status != BALLAST_OK) return status;
    EXPECT_EQ(memory.download(rows.tower, tower_bytes),
              RowCodes(sent, row, salt) + std::string(dummy_rows * row, '\0'))
        << "gradients of type " << type.dtype;
  }
  return BALLAST_OK;
}

}  // namespace ballast

#endif  // BALLAST_TESTS_TRAINER_SHIM_C_API_EMBEDDING_JOB_H_
