#include "trainer_shim/cuda/nvjpeg_decoder.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "proto/image/engine_jpeg.h"

namespace ballast {
namespace {

// Other major versions have not been compared with libjpeg.
constexpr char kNvjpegLibrary[] = "libnvjpeg.so.13";

// The library is never closed, since its threads may still run.
absl::StatusOr<void*> FindNvjpeg() {
  if (void* loaded = dlopen(kNvjpegLibrary, RTLD_NOW | RTLD_NOLOAD)) {
    return loaded;
  }
  if (dlsym(RTLD_DEFAULT, "nvjpegCreateExV2") != nullptr) return RTLD_DEFAULT;
  if (void* found = dlopen(kNvjpegLibrary, RTLD_NOW | RTLD_LOCAL)) return found;
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

absl::StatusOr<NvjpegApi> FindNvjpegApi() {
  const absl::StatusOr<void*> library = FindNvjpeg();
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
const char* GetName(nvjpeg::Status status) {
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
      new absl::StatusOr<NvjpegApi>(FindNvjpegApi());
  if (!api->ok()) return api->status();
  return &**api;
}

absl::Status NvjpegStatus(nvjpeg::Status status, absl::string_view what) {
  if (status == nvjpeg::kSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, " failed: nvJPEG says ",
                                          GetName(status), " (", status, ")"));
}

namespace {

constexpr size_t kMaxAtATime = 64;

const unsigned char* GetData(const EncodedJpeg& image) {
  return reinterpret_cast<const unsigned char*>(image.bytes.data());
}

// The length of a file up to its first scan's data; the whole length if it is
// not a JPEG.
size_t HeaderBytes(absl::string_view bytes) {
  constexpr uint8_t kStartOfScan = 0xDA;
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(bytes[at]); };
  size_t at = 2;
  while (at + 4 <= bytes.size() && byte(at) == 0xFF) {
    const bool scan = byte(at + 1) == kStartOfScan;
    at += 2 + (byte(at + 2) << 8 | byte(at + 3));
    if (scan) return std::min(at, bytes.size());
  }
  return bytes.size();
}

// CUDA may return memory that work on another stream still uses, and make
// `stream` wait for that work. JPEG engines write outside any stream's order,
// so the host waits. This happens only when memory grows.
cudaError_t MakeOnDevice(void** memory, size_t size, cudaStream_t stream) {
  const cudaError_t made = cudaMallocAsync(memory, size, stream);
  return made == cudaSuccess ? cudaStreamSynchronize(stream) : made;
}

cudaError_t FreeOnDevice(void* memory, cudaStream_t stream) {
  return cudaFreeAsync(memory, stream);
}

cudaError_t MakePinned(void** memory, size_t size, cudaStream_t) {
  return cudaHostAlloc(memory, size, cudaHostAllocDefault);
}

cudaError_t FreePinned(void* memory, cudaStream_t) {
  return cudaFreeHost(memory);
}

}  // namespace

NvjpegDecoder::Memory::~Memory() {
  for (const Piece& piece : pieces_) free_(piece.memory, stream_);
}

nvjpeg::Allocator NvjpegDecoder::Memory::allocator() {
  return {Allocate, Release, this};
}

int NvjpegDecoder::Memory::Allocate(void* context, void** memory, size_t size,
                                    cudaStream_t) {
  auto* all = static_cast<Memory*>(context);
  Piece* best = nullptr;
  for (Piece& piece : all->pieces_) {
    if (piece.used || piece.size < size) continue;
    if (best == nullptr || piece.size < best->size) best = &piece;
  }
  if (best == nullptr) {
    void* made = nullptr;
    const cudaError_t error = all->make_(&made, size, all->stream_);
    if (error != cudaSuccess) return error;
    all->pieces_.push_back({made, size, false});
    best = &all->pieces_.back();
  }
  best->used = true;
  *memory = best->memory;
  return 0;
}

int NvjpegDecoder::Memory::Release(void* context, void* memory, size_t,
                                   cudaStream_t) {
  for (Piece& piece : static_cast<Memory*>(context)->pieces_) {
    if (piece.memory == memory) piece.used = false;
  }
  return 0;
}

NvjpegDecoder::NvjpegDecoder(const NvjpegApi* api, cudaStream_t stream,
                             const Options& options)
    : api_(api),
      stream_(stream),
      options_(options),
      device_memory_(MakeOnDevice, FreeOnDevice, stream),
      pinned_memory_(MakePinned, FreePinned, stream),
      device_allocator_(device_memory_.allocator()),
      pinned_allocator_(pinned_memory_.allocator()) {}

NvjpegDecoder::~NvjpegDecoder() {
  if (header_ != nullptr) api_->JpegStreamDestroy(header_);
  if (state_ != nullptr) api_->JpegStateDestroy(state_);
  if (handle_ != nullptr) api_->Destroy(handle_);
}

absl::StatusOr<std::unique_ptr<NvjpegDecoder>> NvjpegDecoder::Create(
    cudaStream_t stream, const Options& options) {
  BALLAST_ASSIGN_OR_RETURN(const NvjpegApi* const api, LoadNvjpeg());
  std::unique_ptr<NvjpegDecoder> decoder(
      new NvjpegDecoder(api, stream, options));
  const absl::Status status = decoder->Start();
  if (!status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no JPEG engines: ", status.message()));
  }
  return decoder;
}

absl::Status NvjpegDecoder::Start() {
  BALLAST_RETURN_IF_ERROR(NvjpegStatus(
      api_->CreateExV2(options_.backend, &device_allocator_, &pinned_allocator_,
                       options_.flags, &handle_),
      "start of nvJPEG's hardware backend"));
  BALLAST_RETURN_IF_ERROR(NvjpegStatus(api_->JpegStateCreate(handle_, &state_),
                                       "making nvJPEG's state"));
  BALLAST_RETURN_IF_ERROR(NvjpegStatus(
      api_->JpegStreamCreate(handle_, &header_), "making nvJPEG's parser"));
  unsigned engines = 0;
  unsigned cores = 0;
  BALLAST_RETURN_IF_ERROR(
      NvjpegStatus(api_->GetHardwareDecoderInfo(handle_, &engines, &cores),
                   "asking nvJPEG for the number of JPEG engines"));
  at_a_time_ = std::clamp<size_t>(size_t{engines} * cores, 1, kMaxAtATime);
  return absl::OkStatus();
}

bool NvjpegDecoder::Parse(absl::string_view bytes) {
  return api_->JpegStreamParseHeader(
             handle_, reinterpret_cast<const unsigned char*>(bytes.data()),
             bytes.size(), header_) == nvjpeg::kSuccess;
}

bool NvjpegDecoder::Takes(const EncodedJpeg& image) {
  // nvJPEG reads all bytes that it gets, and needs only the header.
  if (!Parse(image.bytes.substr(0, HeaderBytes(image.bytes))) &&
      !Parse(image.bytes)) {
    return false;
  }
  int is_supported = 1;
  return api_->DecodeBatchedSupported(handle_, header_, &is_supported) ==
             nvjpeg::kSuccess &&
         is_supported == 0;
}

void NvjpegDecoder::Prepare(absl::Span<const EncodedJpeg* const> images,
                            size_t batch) {
  if (options_.prepare < 0) return;
  uint32_t width = width_;
  uint32_t height = height_;
  for (const EncodedJpeg* image : images) {
    width = std::max(width, image->form.width);
    height = std::max(height, image->form.height);
  }
  const size_t most = std::max(most_, batch);
  if (width == width_ && height == height_ && most == most_) return;
  width_ = width;
  height_ = height;
  most_ = most;
  // A refusal is not an error: the engines then allocate as needed.
  api_->DecodeBatchedPreAllocate(
      handle_, state_, static_cast<int>(most), static_cast<int>(width),
      static_cast<int>(height), options_.prepare, nvjpeg::kOutputYuv);
}

absl::Status NvjpegDecoder::Enqueue(
    absl::Span<const EncodedJpeg* const> images) {
  const size_t batch = images.size();
  if (batch_ != batch) {
    batch_ = 0;
    BALLAST_RETURN_IF_ERROR(NvjpegStatus(
        api_->DecodeBatchedInitialize(handle_, state_, static_cast<int>(batch),
                                      /*max_cpu_threads=*/1,
                                      nvjpeg::kOutputYuv),
        "preparing a batch of JPEGs"));
    batch_ = batch;
  }
  Prepare(images, batch);
  data_.clear();
  lengths_.clear();
  images_.clear();
  for (const EncodedJpeg* image : images) {
    data_.push_back(GetData(*image));
    lengths_.push_back(image->bytes.size());
    const PlaneLayout layout = LayOutPlanes(image->form);
    nvjpeg::Image planes = {};
    for (int plane = 0; plane < image->form.planes(); ++plane) {
      planes.channel[plane] = image->planes + layout.offset[plane];
      planes.pitch[plane] = layout.pitch[plane];
    }
    images_.push_back(planes);
  }
  const absl::Status status = NvjpegStatus(
      api_->DecodeBatched(handle_, state_, data_.data(), lengths_.data(),
                          images_.data(), stream_),
      absl::StrCat("decoding a batch of ", batch, " JPEGs"));
  if (!status.ok()) batch_ = 0;
  return status;
}

}  // namespace ballast
