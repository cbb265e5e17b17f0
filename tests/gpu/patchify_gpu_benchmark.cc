// Measures patchify's speed relative to a copy within device memory of the same
// number of bytes (half read, half written), alternating in one run. Every byte
// of the pixels is random, the worst case for looking up values.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/gpu/device_testing.h"
#include "trainer_shim/cuda/patchify_cuda.h"
#include "trainer_shim/patchify.h"

namespace ballast {
namespace {

constexpr int kRounds = 11;
constexpr uint64_t kBytesOfMeasurement = uint64_t{8} << 30;

struct Case {
  std::string name;
  int images;
  uint32_t least, most;  // sides of the grids, in tokens
};

const Case kCases[] = {
    {"64 photographs of 1 megapixel", 64, 36, 36},
    {"256 pages and receipts", 256, 12, 60},
    {"4096 thumbnails", 4096, 1, 8},
    {"8 photographs of 1 megapixel", 8, 36, 36},
};

class Event {
 public:
  Event() { OrDie(cudaEventCreate(&event_), "event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_;
};

// Milliseconds of one call of `work` on the device, the mean of `calls`.
double Milliseconds(int calls, const std::function<void()>& work) {
  Event begin;
  Event end;
  OrDie(cudaEventRecord(begin.get(), nullptr), "event");
  for (int i = 0; i < calls; ++i) work();
  OrDie(cudaEventRecord(end.get(), nullptr), "event");
  OrDie(cudaEventSynchronize(end.get()), "wait for the device");
  float milliseconds = 0;
  OrDie(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "event");
  return milliseconds / calls;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Images {
  std::vector<PatchifyImage> table;
  uint64_t pixel_bytes = 0;
  uint64_t rows = 0;
};

// Images at multiples of 256 bytes, as in a block.
Images Draw(const Case& what, const PatchShape& shape) {
  std::mt19937 random(99);
  Images images;
  for (int i = 0; i < what.images; ++i) {
    const auto side = [&] {
      return shape.merge *
             (what.least + random() % (what.most - what.least + 1));
    };
    const uint32_t h = side();
    const uint32_t w = side();
    images.table.push_back({images.pixel_bytes, images.rows, h, w,
                            h * shape.patch, w * shape.patch});
    const uint64_t bytes = uint64_t{3} * h * w * shape.patch * shape.patch;
    images.pixel_bytes += (bytes + 255) / 256 * 256;
    images.rows += shape.tiles() ? 1 : uint64_t{h} * w;
  }
  return images;
}

void Measure(const Case& what, const PatchShape& shape, PixelType type) {
  const Images images = Draw(what, shape);
  std::vector<uint8_t> bytes(images.pixel_bytes);
  std::mt19937 random(5);
  for (uint8_t& byte : bytes) byte = random();
  const DeviceBuffer pixels = ToDevice(bytes);
  const DeviceBuffer table = ToDevice(images.table);
  const uint64_t value_bytes = type == PixelType::kFloat32 ? 4 : 2;
  const uint64_t out_bytes = images.rows * shape.row() * value_bytes;
  const DeviceBuffer out = OrDie(DeviceBuffer::Create(out_bytes));
  uint64_t moved = out_bytes;
  for (const PatchifyImage& image : images.table) {
    moved += uint64_t{3} * image.height * image.width;
  }
  const DeviceBuffer from = Filled<uint8_t>(moved / 2, 1);
  const DeviceBuffer to = Filled<uint8_t>(moved / 2, 2);

  const CudaPatchifier patchifier = OrDie(CudaPatchifier::Create(
      shape, NormaliseTable({0.48, 0.46, 0.41}, {0.27, 0.26, 0.28},
                            Normalisation::kTorchvision)));
  PatchifyBatch batch;
  batch.pixels = pixels.data();
  batch.pixel_bytes = pixels.size();
  batch.images = images.table;
  batch.device_images = reinterpret_cast<const PatchifyImage*>(table.data());
  batch.out = out.data();
  batch.out_rows = images.rows;
  batch.tile_h = shape.tile_h;
  batch.tile_w = shape.tile_w;
  batch.type = type;
  const auto patchify = [&](PatchifyKernel kernel) {
    batch.kernel = kernel;
    OrDie(patchifier.Launch(batch, nullptr));
  };
  const auto copy = [&] {
    OrDie(cudaMemcpyAsync(to.data(), from.data(), moved / 2,
                          cudaMemcpyDeviceToDevice, nullptr),
          "copy");
  };
  const auto fast = [&] { patchify(PatchifyKernel::kFastest); };
  const auto simple = [&] { patchify(PatchifyKernel::kSimple); };

  const int calls = std::clamp<int>(kBytesOfMeasurement / moved, 1, 100);
  std::vector<double> copies, fasts, simples, ratios;
  for (int round = -1; round < kRounds; ++round) {
    const double a = Milliseconds(calls, copy);
    const double b = Milliseconds(calls, fast);
    const double c = Milliseconds(1, simple);
    if (round < 0) continue;  // warm-up
    copies.push_back(a);
    fasts.push_back(b);
    simples.push_back(c);
    ratios.push_back(a / b);
  }
  const auto rate = [&](const std::vector<double>& times) {
    return moved / Median(times) / 1e6;
  };
  std::printf("%-30s %5u %-8s %8.1f %10.0f %10.0f %10.0f %7.3f %7.3f\n",
              what.name.c_str(), shape.patch,
              type == PixelType::kFloat32 ? "float32" : "bfloat16", moved / 1e6,
              rate(copies), rate(simples), rate(fasts), Median(ratios),
              *std::min_element(ratios.begin(), ratios.end()));
  std::fflush(stdout);
}

void MeasureAll() {
  cudaDeviceProp device;
  OrDie(cudaGetDeviceProperties(&device, 0), "asking for the device");
  std::printf(
      "%s, %d multiprocessors; bytes read and written, GB/s; median "
      "of %d rounds\n",
      device.name, device.multiProcessorCount, kRounds);
  std::printf("%-30s %5s %-8s %8s %10s %10s %10s %7s %7s\n", "images", "patch",
              "values", "MB", "copy", "simple", "patchify", "ratio", "least");
  for (const PixelType type : {PixelType::kBfloat16, PixelType::kFloat32}) {
    for (const uint32_t patch : {14, 16}) {
      for (const Case& what : kCases) Measure(what, {patch, 2, 2}, type);
    }
    Measure({"192 tiles", 192, 1, 1}, {448, 1, 1, false, 0, 448, 448}, type);
    Measure({"48 tiles", 48, 1, 1}, {896, 1, 1, false, 0, 896, 896}, type);
    Measure({"64 photographs, raster order", 64, 36, 36}, {16, 1, 1}, type);
    Measure({"64 photographs, channels last", 64, 36, 36}, {16, 1, 1, true},
            type);
  }
}

}  // namespace
}  // namespace ballast

int main() { ballast::MeasureAll(); }
