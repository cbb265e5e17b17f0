// Prints size and last field's offset of the C interface's structs, which
// loader_test.py compares with those of ctypes.

#include <cstddef>
#include <cstdio>

#include "trainer_shim/c_api/c_api.h"

#define STRUCT(name, last)                                \
  std::printf(#name " %zu %zu\n", sizeof(ballast_##name), \
              offsetof(ballast_##name, last))

int main() {
  STRUCT(connection, reserved2);
  STRUCT(nccl_options, reserved);
  STRUCT(shim_options, reserved3);
  STRUCT(checkpoint_info, data_fingerprint);
  STRUCT(batch_info, pack_ms);
  STRUCT(tensor, shape);
  STRUCT(sample, reserved);
  STRUCT(totals, frames);
}
