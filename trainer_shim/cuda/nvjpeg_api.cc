#include "trainer_shim/cuda/nvjpeg_api.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

// Other major versions have not been compared with libjpeg.
constexpr char kLibrary[] = "libnvjpeg.so.13";

// The library is never closed, since its threads may still run.
absl::StatusOr<void*> FindLibrary() {
  if (void* loaded = dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD)) return loaded;
  if (dlsym(RTLD_DEFAULT, "nvjpegCreateExV2") != nullptr) return RTLD_DEFAULT;
  if (void* found = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL)) return found;
  return absl::FailedPreconditionError(absl::StrCat(
      "no nvJPEG: the process has loaded none, and the system has none (",
      dlerror(),
      "); install PyPI's nvidia-nvjpeg or a CUDA 13 toolkit, and set "
      "LD_LIBRARY_PATH"));
}

template <typename Function>
void Resolve(void* library, const char* name, Function* function,
             absl::Status* status) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function != nullptr) return;
  status->Update(absl::FailedPreconditionError(
      absl::StrCat("nvJPEG has no ", name, ": wanted version 13")));
}

absl::StatusOr<NvjpegApi> Load() {
  const absl::StatusOr<void*> library = FindLibrary();
  if (!library.ok()) return library.status();
  NvjpegApi api;
  absl::Status status;
  const auto resolve = [&](const char* name, auto* function) {
    Resolve(*library, name, function, &status);
  };
  resolve("nvjpegGetProperty", &api.GetProperty);
  resolve("nvjpegCreateExV2", &api.CreateExV2);
  resolve("nvjpegDestroy", &api.Destroy);
  resolve("nvjpegJpegStateCreate", &api.JpegStateCreate);
  resolve("nvjpegJpegStateDestroy", &api.JpegStateDestroy);
  resolve("nvjpegJpegStreamCreate", &api.JpegStreamCreate);
  resolve("nvjpegJpegStreamDestroy", &api.JpegStreamDestroy);
  resolve("nvjpegJpegStreamParseHeader", &api.JpegStreamParseHeader);
  resolve("nvjpegDecodeBatchedSupported", &api.DecodeBatchedSupported);
  resolve("nvjpegDecodeBatchedInitialize", &api.DecodeBatchedInitialize);
  resolve("nvjpegDecodeBatchedPreAllocate", &api.DecodeBatchedPreAllocate);
  resolve("nvjpegDecodeBatched", &api.DecodeBatched);
  resolve("nvjpegGetHardwareDecoderInfo", &api.GetHardwareDecoderInfo);
  if (!status.ok()) return status;
  return api;
}

// The names of nvjpegStatus_t.
const char* NameOf(nvjpeg::Status status) {
  constexpr const char* kNames[] = {"success",
                                    "not initialized",
                                    "invalid parameter",
                                    "bad JPEG",
                                    "JPEG not supported",
                                    "allocator failure",
                                    "execution failed",
                                    "architecture mismatch",
                                    "internal error",
                                    "implementation not supported",
                                    "incomplete bitstream"};
  constexpr int kCount = sizeof(kNames) / sizeof(kNames[0]);
  return status >= 0 && status < kCount ? kNames[status] : "unknown status";
}

}  // namespace

absl::StatusOr<const NvjpegApi*> LoadNvjpeg() {
  static const absl::StatusOr<NvjpegApi>* const api =
      new absl::StatusOr<NvjpegApi>(Load());
  if (!api->ok()) return api->status();
  return &**api;
}

absl::Status NvjpegStatus(nvjpeg::Status status, absl::string_view what) {
  if (status == nvjpeg::kSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, " failed: nvJPEG says ",
                                          NameOf(status), " (", status, ")"));
}

}  // namespace ballast
