#ifndef BALLAST_TESTS_TRAINER_SHIM_HOST_ADDED_ROW_H_
#define BALLAST_TESTS_TRAINER_SHIM_HOST_ADDED_ROW_H_

#include "trainer_shim/batch_layout.h"
#include "trainer_shim/tensor_table.h"

namespace ballast {

// A tensor that the library lacks: where each sample ends, without padding.
inline TensorRow EndsRow() {
  TensorRow row;
  row.name = "ends";
  row.host_name = "ends_host";
  row.type = ElementType::kInt32;
  row.shape = "[n]";
  row.field = &BatchFields::positions;
  row.join = Join::kItems;
  row.memory = Memory::kListed;
  row.contents = "the sum of the real lengths up to each sample";
  row.value = [](const BatchInfo& info) -> std::optional<TensorValue> {
    if (info.text.cu_seqlens.empty()) return std::nullopt;
    const int64_t count = info.text.cu_seqlens.size() - 1;
    return TensorValue{{count}, info.text.cu_seqlens.data() + 1};
  };
  return row;
}

}  // namespace ballast

#endif  // BALLAST_TESTS_TRAINER_SHIM_HOST_ADDED_ROW_H_
