#ifndef BALLAST_TESTS_TRAINER_SHIM_C_API_C_BATCH_H_
#define BALLAST_TESTS_TRAINER_SHIM_C_API_C_BATCH_H_

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainer_shim/c_api/c_api.h"
#include "trainer_shim/host/packed_batch.h"

namespace ballast {

// Copies `bytes` to the host; the source may be device memory.
using CopyBytes =
    std::function<void(void* to, const void* from, uint64_t bytes)>;

inline uint64_t ElementSize(int32_t dtype) {
  switch (dtype) {
    case BALLAST_INT64:
      return 8;
    case BALLAST_INT32:
    case BALLAST_FLOAT32:
      return 4;
    case BALLAST_BFLOAT16:
      return 2;
    default:
      return 1;
  }
}

// A tensor's name, type, shape and bytes.
struct CTensor {
  ballast_tensor tensor = {};
  std::string bytes;
};

// The contents of a C batch, read only through the C interface.
struct CBatch {
  ballast_batch_info info = {};
  std::map<std::string, CTensor> tensors;
  std::vector<std::string> order;       // of the names of `tensors`
  std::vector<ballast_sample> samples;  // name is dangling
  std::vector<std::string> names;
  ballast_totals totals[3] = {};
  std::string digest;
};

inline CBatch ReadBatch(const ballast_batch* batch, void* stream,
                        const CopyBytes& copy) {
  CBatch read;
  read.info.struct_size = sizeof(read.info);
  EXPECT_EQ(ballast_batch_get_info(batch, &read.info), BALLAST_OK);
  for (uint32_t i = 0; i < read.info.num_tensors; ++i) {
    CTensor each;
    each.tensor.struct_size = sizeof(each.tensor);
    EXPECT_EQ(ballast_batch_get_tensor(batch, i, &each.tensor), BALLAST_OK);
    uint64_t bytes = ElementSize(each.tensor.dtype);
    for (uint32_t d = 0; d < each.tensor.ndim; ++d) {
      bytes *= each.tensor.shape[d];
    }
    each.bytes.resize(bytes);
    if (bytes > 0) {
      if (each.tensor.device_type == BALLAST_DEVICE_CPU) {
        std::memcpy(each.bytes.data(), each.tensor.data, bytes);
      } else {
        copy(each.bytes.data(), each.tensor.data, bytes);
      }
    }
    read.order.push_back(each.tensor.name);
    const bool added =
        read.tensors.emplace(each.tensor.name, std::move(each)).second;
    EXPECT_TRUE(added);
  }
  for (uint32_t i = 0; i < read.info.num_samples; ++i) {
    ballast_sample sample = {};
    sample.struct_size = sizeof(sample);
    EXPECT_EQ(ballast_batch_get_sample(batch, i, &sample), BALLAST_OK);
    read.names.push_back(sample.name);
    read.samples.push_back(sample);
  }
  for (int of = 0; of < 3; ++of) {
    read.totals[of].struct_size = sizeof(ballast_totals);
    EXPECT_EQ(ballast_batch_get_totals(batch, of, &read.totals[of]),
              BALLAST_OK);
  }
  char digest[33] = {};
  EXPECT_EQ(ballast_batch_digest(batch, stream, digest), BALLAST_OK);
  read.digest = digest;
  return read;
}

// ComputeDigest over the tensors as the C interface describes them.
inline std::string ComputeDigest(const CBatch& from) {
  BatchInfo info;
  info.max_seqlen = from.info.max_seqlen;
  info.vision_max_seqlen = from.info.vision_max_seqlen;
  info.dummy_image = from.info.dummy_image != 0;
  std::vector<TensorView> views;
  for (const std::string& name : from.order) {
    const CTensor& each = from.tensors.at(name);
    TensorView& view = views.emplace_back();
    view.name = name.c_str();
    view.type = static_cast<ElementType>(each.tensor.dtype);
    view.data = each.bytes.data();
    view.shape.rank = each.tensor.ndim;
    std::copy_n(each.tensor.shape, 4, view.shape.sides.begin());
  }
  return ComputeDigest(info, views);
}

// Compares everything that a rank got through the C interface with what it got
// through C++.
inline void ExpectSameBatch(const CBatch& got, const PackedBatch& want) {
  SCOPED_TRACE(::testing::Message()
               << "step " << want.step << " micro-batch " << want.micro_batch
               << " module " << want.role.module() << " rank "
               << want.role.dp_rank());
  EXPECT_EQ(got.info.step, want.step);
  EXPECT_EQ(got.info.micro_batch, want.micro_batch);
  EXPECT_EQ(got.info.bytes_moved, want.bytes_moved);
  EXPECT_EQ(got.info.bytes_read, want.bytes_read);
  EXPECT_EQ(ComputeDigest(got), ComputeDigest(want));
  EXPECT_EQ(got.digest, ComputeDigest(want));
  ASSERT_EQ(got.samples.size(), want.samples.size());
  for (size_t i = 0; i < want.samples.size(); ++i) {
    EXPECT_EQ(got.names[i], want.samples[i].name);
    EXPECT_EQ(got.samples[i].position, want.samples[i].position);
    EXPECT_EQ(got.samples[i].source, want.samples[i].source);
    EXPECT_EQ(got.samples[i].ordinal, want.samples[i].ordinal);
    EXPECT_EQ(got.samples[i].placeholder,
              want.samples[i].placeholder ? 1u : 0u);
  }
  const PackedTotals* const totals[] = {&want.totals, &want.micro_batch_totals,
                                        &want.step_totals};
  for (int of = 0; of < 3; ++of) {
    EXPECT_EQ(got.totals[of].samples, totals[of]->samples);
    EXPECT_EQ(got.totals[of].tokens, totals[of]->tokens);
    EXPECT_EQ(got.totals[of].tokens_squared, totals[of]->tokens_squared);
    EXPECT_EQ(got.totals[of].padded_tokens, totals[of]->padded_tokens);
    EXPECT_EQ(got.totals[of].padded_tokens_squared,
              totals[of]->padded_tokens_squared);
    EXPECT_EQ(got.totals[of].label_tokens, totals[of]->label_tokens);
    EXPECT_EQ(got.totals[of].patches, totals[of]->patches);
    EXPECT_EQ(got.totals[of].images, totals[of]->images);
    EXPECT_EQ(got.totals[of].videos, totals[of]->videos);
    EXPECT_EQ(got.totals[of].clips, totals[of]->clips);
    EXPECT_EQ(got.totals[of].frames, totals[of]->frames);
  }
  for (const auto& [name, each] : got.tensors) {
    const std::string host = name + "_host";
    if (got.tensors.count(host) == 0) continue;
    EXPECT_EQ(got.tensors.at(host).bytes, each.bytes) << name;
    EXPECT_EQ(got.tensors.at(host).tensor.device_type, BALLAST_DEVICE_CPU);
  }
}

}  // namespace ballast

#endif  // BALLAST_TESTS_TRAINER_SHIM_C_API_C_BATCH_H_
