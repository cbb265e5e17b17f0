#ifndef BALLAST_TRAINER_SHIM_C_API_HANDLES_H_
#define BALLAST_TRAINER_SHIM_C_API_HANDLES_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "trainer_shim/batch_pool.h"
#include "trainer_shim/c_api/c_api.h"
#include "trainer_shim/c_api/call.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/rank_shim.h"

// The types that the handles of c_api.h point to.

struct ballast_bytes {
  std::string bytes;
};

struct ballast_communicator {
  std::unique_ptr<ballast::Communicator> end;
};

struct ballast_shim {
  std::unique_ptr<ballast::RankShim> shim;
};

// A ballast_batch is a BatchEntry; the type itself is never defined.

namespace ballast {

inline BatchEntry* GetEntry(const ballast_batch* batch) {
  return reinterpret_cast<BatchEntry*>(const_cast<ballast_batch*>(batch));
}
inline const ballast_batch* GetHandle(BatchEntry* entry) {
  return reinterpret_cast<const ballast_batch*>(entry);
}

// INVALID_ARGUMENT for a null shim, or a stream with a backend that takes none.
inline absl::Status CheckStream(const ballast_shim* shim, const void* stream) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(shim, "shim"));
  if (stream == nullptr || shim->shim->on_device()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "stream is given, and BACKEND_HOST has none; wanted NULL");
}

inline ballast_bytes* NewBytes(std::string bytes) {
  return new ballast_bytes{std::move(bytes)};
}

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_C_API_HANDLES_H_
