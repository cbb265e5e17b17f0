#ifndef BALLAST_TRAINER_SHIM_TENSOR_TABLE_H_
#define BALLAST_TRAINER_SHIM_TENSOR_TABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "trainer_shim/batch_info.h"

namespace ballast {

// The tensors of batches, one row each. The layout, both backends, the digest,
// the C interface, Python and docs/thd_format.md read the table, so a new
// tensor needs a row and the code that computes its values.

// The rows of the library, then the rows of AddTensorRow, then `more`.
std::shared_ptr<const TensorTable> MakeTensorTable(
    const TensorTable& more = {});

// A tensor of a number for each token: [1, L] or, in a padded batch, [n, L /
// n]; `axes` of them if there are several. nullopt if the rank receives no
// text.
std::optional<TensorValue> GetTokens(const BatchInfo& info, int64_t axes = 1);

// Adds a row to all tables made from now on: for code that is linked to the
// library. The row is not kPacked: nothing would fill it. Returns true, so that
// a static variable can hold the call.
bool AddTensorRow(TensorRow row);

// Fills in info->tensors, packed_bytes and list_bytes from the rest of `info`.
void LayOutTensors(BatchInfo* info);

// The tensor of this name; null if the batch has none.
const BatchTensor* FindTensor(const BatchInfo& info, absl::string_view name);

inline constexpr int kHostMemory = -1;

// A dense, row-major array. Owns nothing.
struct TensorView {
  const char* name = "";  // as in the table
  ElementType type = ElementType::kInt64;
  const void* data = nullptr;
  int device = kHostMemory;  // or CUDA's number
  TensorShape shape;

  uint64_t bytes() const { return shape.elements() * ElementBytes(type); }
};

// The memory of a batch's tensors.
struct TensorMemory {
  int device = kHostMemory;         // of both
  const uint8_t* packed = nullptr;  // packed_bytes
  // list_bytes. Null: the lists are where the layouts have them.
  const uint8_t* lists = nullptr;
};

// Replaces the contents of `views` with the batch's tensors, in the order of
// the table, each followed by its copy in host memory. Allocates only if
// `views` lacks the capacity.
void ListTensors(const BatchInfo& info, const TensorMemory& memory,
                 std::vector<TensorView>* views);

// XXH3-128 over name, type, shape and bytes of all `views`, which are in host
// memory, and over the batch's longest segments and dummy image, as 32
// hexadecimal digits: equal batches have equal digests.
std::string ComputeDigest(const BatchInfo& info,
                          const std::vector<TensorView>& views);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_TENSOR_TABLE_H_
