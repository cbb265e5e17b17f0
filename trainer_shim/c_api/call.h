#ifndef BALLAST_TRAINER_SHIM_C_API_CALL_H_
#define BALLAST_TRAINER_SHIM_C_API_CALL_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "trainer_shim/batch_pool.h"
#include "trainer_shim/c_api/c_api.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/rank_shim.h"

// The types that the handles of c_api.h point to.

struct ballast_bytes {
  std::string bytes;
};

struct ballast_communicator {
  // Aborts an end that no shim has taken: over NCCL, leaving in good order
  // waits until the other ranks leave, and they would wait for this one.
  ~ballast_communicator();

  std::unique_ptr<ballast::Communicator> end;
};

struct ballast_shim {
  std::unique_ptr<ballast::RankShim> shim;
};

// A ballast_batch is a BatchEntry; the type itself is never defined.

namespace ballast {

// Keeps the message for ballast_last_error and returns the code.
int Finish(const absl::Status& status);

// Runs the body of a function of the C interface and turns anything it throws,
// such as bad_alloc, into a status.
template <typename Body>
int Call(Body body) {
  try {
    return Finish(body());
  } catch (const std::bad_alloc&) {
    return Finish(absl::ResourceExhaustedError("out of memory"));
  } catch (const std::exception& error) {
    return Finish(absl::InternalError(error.what()));
  } catch (...) {
    return Finish(absl::InternalError("an exception of no known type"));
  }
}

// INVALID_ARGUMENT naming `what` if `pointer` is null.
inline absl::Status CheckGiven(const void* pointer, const char* what) {
  if (pointer != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " is NULL"));
}

// INVALID_ARGUMENT for an impossible struct_size, most often one that was never
// set.
absl::Status CheckStructSize(uint32_t size, const char* what);

// Reads the caller's struct as this library knows it; fields that the caller
// lacks are 0. `T` begins with struct_size. Errors: INVALID_ARGUMENT (null, an
// impossible size, a field other than 0 that this library does not know).
template <typename T>
absl::StatusOr<T> ReadStruct(const T* given, const char* what) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (absl::Status status = CheckGiven(given, what); !status.ok()) {
    return status;
  }
  uint32_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  if (absl::Status status = CheckStructSize(size, what); !status.ok()) {
    return status;
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (uint32_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": byte ", i, " of ", size,
        " is not 0: the caller sets a field that this library, which knows ",
        sizeof(T), " bytes, does not have; the library is too old"));
  }
  T known = {};
  std::memcpy(&known, given, std::min<size_t>(size, sizeof(T)));
  return known;
}

// Fills the fields that the caller has; fields that this library does not know
// become 0. `struct_size` stays the caller's. Errors: INVALID_ARGUMENT (null,
// an impossible size).
template <typename T>
absl::Status WriteStruct(const T& value, T* given, const char* what) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (absl::Status status = CheckGiven(given, what); !status.ok()) {
    return status;
  }
  uint32_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  if (absl::Status status = CheckStructSize(size, what); !status.ok()) {
    return status;
  }
  auto* bytes = reinterpret_cast<unsigned char*>(given);
  const size_t known = std::min<size_t>(size, sizeof(T));
  std::memcpy(bytes, &value, known);
  std::memset(bytes + known, 0, size - known);
  std::memcpy(bytes, &size, sizeof(size));
  return absl::OkStatus();
}

// ---- Handles

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

#endif  // BALLAST_TRAINER_SHIM_C_API_CALL_H_
