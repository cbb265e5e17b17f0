#ifndef BALLAST_TESTS_FAKES_EDIT_BATCH_H_
#define BALLAST_TESTS_FAKES_EDIT_BATCH_H_

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/aligned_buffer.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/patchify.h"

namespace ballast {

// Changes a batch into one that a test wants.

inline void DropTensor(PackedBatch* batch, absl::string_view name) {
  std::vector<BatchTensor>& all = batch->tensors;
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](const BatchTensor& tensor) {
                             return tensor.row->name == name;
                           }),
            all.end());
}

// Gives a packed tensor other values and as many columns as hold them.
template <typename T>
void ReplaceTensor(PackedBatch* batch, absl::string_view name,
                   const std::vector<T>& values) {
  for (BatchTensor& tensor : batch->tensors) {
    if (tensor.row->name != name) continue;
    int64_t& columns = tensor.shape.sides[tensor.shape.rank - 1];
    if (columns != 0) {
      columns = values.size() / (tensor.shape.elements() / columns);
    }
    tensor.offset = AlignUp(batch->packed.size(), 256);
    batch->packed.resize(tensor.offset + values.size() * sizeof(T));
    std::memcpy(batch->packed.data() + tensor.offset, values.data(),
                values.size() * sizeof(T));
  }
}

// Pixels in bfloat16 instead of float32.
inline PackedBatch RoundedPixels(const PackedBatch& batch) {
  PackedBatch rounded = batch;
  rounded.pixel_type = PixelType::kBfloat16;
  for (BatchTensor& tensor : rounded.tensors) {
    if (tensor.row->type != ElementType::kPixels) continue;
    std::vector<uint16_t> values;
    for (const float value : batch.Get<float>(tensor.row->name)) {
      values.push_back(ToBfloat16(value));
    }
    tensor.type = ElementType::kBfloat16;
    ReplaceTensor(&rounded, tensor.row->name, values);
  }
  return rounded;
}

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_EDIT_BATCH_H_
