#ifndef BALLAST_TRAINER_SHIM_TENSOR_TABLE_H_
#define BALLAST_TRAINER_SHIM_TENSOR_TABLE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "trainer_shim/role_fields.h"

namespace ballast {

struct BatchInfo;

// The tensors of batches, one row each. The layout, both backends, the digest,
// the C interface, Python and docs/thd_format.md read the table, so a new
// tensor needs a row and the code that computes its values.

// The numbers of ballast_dtype (c_api_base.h).
enum class ElementType {
  kPixels = 0,  // only in rows: float32 or bfloat16, as the rank requests
  kInt32 = 2,
  kInt64 = 3,
  kFloat32 = 4,
  kBfloat16 = 5,
  kBool = 6,
};
uint64_t ElementBytes(ElementType type);  // 0 for kPixels
// Such as "int64"; "float32 or bfloat16" for kPixels.
absl::string_view ElementName(ElementType type);

// How the samples of a batch form a tensor.
enum class Join {
  // Tokens end to end along the last dimension, each sample padded to a
  // multiple of the alignment; in a padded batch a row of equal length for each
  // sample. A context rank has its part of every sample.
  kTokens,
  // Running sums over samples or items, which begin with 0.
  kSums,
  // Entries of the samples' items (images, crops, videos, patches) one after
  // the other, in the order of the samples.
  kItems,
  // Likewise, each item padded to the largest of the batch or of the model.
  kPaddedItems,
  // An entry for each data-parallel rank, or numbers of ranks.
  kRanks,
  // An entry for each sequence: of each sample, and two of a preference pair.
  kSequences,
};
absl::string_view JoinName(Join join);  // such as "tokens"

// The writer of a tensor, and its place.
enum class Memory {
  // The backend, from the samples' payload, in the batch's memory: by kernels
  // if that is a GPU's memory. Tensor peers may receive it from tensor rank 0.
  kPacked,
  // The host, from the schedule alone: in the batch's memory, with a copy in
  // host memory under the name NAME_host.
  kListed,
  kListedOnce,  // the same without the copy
  kHost,        // the host, in host memory alone
};
absl::string_view MemoryName(Memory memory);  // such as "packed"

// Up to 4 dimensions.
struct TensorShape {
  TensorShape() = default;
  TensorShape(std::initializer_list<int64_t> sides);

  int64_t elements() const;

  uint32_t rank = 0;                  // number of dimensions
  std::array<int64_t, 4> sides = {};  // the first `rank`, then 0
};

// A tensor of one batch, as its row describes it: the shape and, unless the row
// is kPacked, the values in host memory. Valid as long as the BatchInfo.
struct TensorValue {
  TensorShape shape;
  const void* data = nullptr;
};

// A member of BatchFields.
using BatchField = bool BatchFields::*;

struct TensorRow {
  std::string name;
  ElementType type = ElementType::kInt64;
  std::string shape;  // for readers, such as "[C, 2]"
  // The field (role_fields.h) with which a rank receives the tensor.
  BatchField field = nullptr;
  Join join = Join::kItems;
  Memory memory = Memory::kPacked;
  std::string contents;  // for readers
  // The tensor of a batch whose layouts are known; nullopt if this batch has
  // none. Pure.
  std::function<std::optional<TensorValue>(const BatchInfo&)> value;
  // NAME_host of a kListed row. Filled in by MakeTensorTable.
  std::string host_name = {};
};

// In the order in which batches list their tensors.
using TensorTable = std::vector<TensorRow>;

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

// The ranks that receive tensors of a field, such as "language, first stage".
absl::string_view GetReceivers(BatchField field);

// A tensor that a batch has.
struct BatchTensor {
  const TensorRow* row = nullptr;          // of BatchInfo::table
  ElementType type = ElementType::kInt64;  // never kPixels
  TensorShape shape;
  // Place, at a multiple of 256: for a kPacked tensor in the batch's packed
  // memory, for a kListed or kListedOnce one among the batch's lists, which the
  // host backend leaves in the layouts.
  uint64_t offset = 0;

  uint64_t bytes() const { return shape.elements() * ElementBytes(type); }
};

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
