#ifndef BALLAST_TESTS_GPU_ENGINE_SWEEP_H_
#define BALLAST_TESTS_GPU_ENGINE_SWEEP_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "proto/image/engine_jpeg.h"
#include "tests/gpu/device_testing.h"
#include "tests/gpu/engine_files.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/nvjpeg_decoder.h"

// What engine_sweep_gpu_benchmark measures: variants, and a thread's decoder.
namespace ballast {

// NVJPEG_BACKEND_HARDWARE_DEVICE: files in device memory.
inline constexpr int kBackendHardwareDevice = 5;
inline constexpr int kCss420 = 2;  // NVJPEG_CSS_420
// NVJPEG_FLAGS_HW_DECODE_NO_PIPELINE.
inline constexpr unsigned kNoPipeline = 1;

inline double Seconds(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * now.tv_nsec;
}

struct Variant {
  const char* files = "";
  int backend = nvjpeg::kBackendHardware;
  unsigned flags = 0;
  size_t batch = 16;
  size_t threads = 2;
  int prepare = nvjpeg::kCss444;
  bool sorted = false;  // each batch by size
  // Images of every third batch, the others being full; 0: all are full.
  size_t tail = 0;
  const char* of_short = "anew";

  bool copies() const { return std::strcmp(of_short, "copies") == 0; }
};

// Calls of one kind, with their waits.
struct Calls {
  double seconds = 0;
  uint64_t count = 0;
  double ms() const { return 1e3 * seconds / std::max<uint64_t>(count, 1); }
};

struct Times {  // seconds
  double parse = 0, submit = 0, wait = 0;
  double submit_wall = 0, wait_wall = 0;
  uint64_t images = 0;
  Calls full, after, tail;

  void Add(const Times& other) {
    parse += other.parse;
    submit += other.submit;
    wait += other.wait;
    submit_wall += other.submit_wall;
    wait_wall += other.wait_wall;
    images += other.images;
    for (Calls Times::*kind : {&Times::full, &Times::after, &Times::tail}) {
      (this->*kind).seconds += (other.*kind).seconds;
      (this->*kind).count += (other.*kind).count;
    }
  }
};

// Files in pinned or device memory, as the shim's are.
struct Files {
  explicit Files(std::vector<EngineFile> from) : all(std::move(from)) {
    uint64_t bytes = 0;
    for (const EngineFile& file : all) bytes += (file.bytes.size() + 255) / 256;
    pinned = OrDie(PinnedBuffer::Create(256 * bytes));
    device = OrDie(DeviceBuffer::Create(256 * bytes));
    uint64_t offset = 0;
    for (const EngineFile& file : all) {
      std::memcpy(pinned.data() + offset, file.bytes.data(), file.bytes.size());
      offsets.push_back(offset);
      offset += (file.bytes.size() + 255) / 256 * 256;
    }
    OrDie(cudaMemcpy(device.data(), pinned.data(), offset,
                     cudaMemcpyHostToDevice),
          "copy to the device");
  }
  absl::string_view At(size_t index, bool on_device) const {
    const uint8_t* base = on_device ? device.data() : pinned.data();
    return {reinterpret_cast<const char*>(base + offsets[index]),
            all[index].bytes.size()};
  }
  std::vector<EngineFile> all;
  PinnedBuffer pinned;
  DeviceBuffer device;
  std::vector<uint64_t> offsets;
};

// One thread's engine, and three batches that it decodes in turn.
class Worker {
 public:
  Worker(const Files& files, const Variant& variant, size_t index)
      : on_device_(variant.backend == kBackendHardwareDevice) {
    stream_ = OrDie(CudaStream::CreateUrgent());
    done_ = OrDie(Event::Create());
    NvjpegDecoder::Options options;
    options.backend = variant.backend;
    options.flags = variant.flags;
    options.prepare = variant.prepare;
    decoder_ = OrDie(NvjpegDecoder::Create(stream_.get(), options));
    if (variant.copies()) {
      copy_ = OrDie(NvjpegDecoder::Create(stream_.get(), options));
    }
    tail_ = variant.tail;
    for (std::vector<EncodedJpeg>& batch : batches_) {
      uint64_t bytes = 0;
      const bool is_short = tail_ != 0 && &batch == &batches_[kBatches - 1];
      for (size_t i = 0; i < (is_short ? tail_ : variant.batch); ++i) {
        const size_t file = (index * 7 + i) % files.all.size();
        EncodedJpeg image;
        image.bytes = files.At(file, on_device_);
        image.form = files.all[file].form;
        image.planes = reinterpret_cast<uint8_t*>(bytes);
        batch.push_back(image);
        bytes += LayOutPlanes(image.form).bytes;
      }
      if (variant.sorted) {
        std::sort(batch.begin(), batch.end(),
                  [](const EncodedJpeg& a, const EncodedJpeg& b) {
                    return a.form.width * a.form.height >
                           b.form.width * b.form.height;
                  });
      }
      planes_.push_back(Filled<uint8_t>(bytes, 0));
      for (EncodedJpeg& image : batch) {
        image.planes =
            planes_.back().data() + reinterpret_cast<uintptr_t>(image.planes);
      }
      ++index;
    }
  }

  size_t at_a_time() const { return decoder_->at_a_time(); }

  absl::Status Decode(Times* times) {
    const size_t turn = next_++ % kBatches;
    const bool is_short = tail_ != 0 && turn == kBatches - 1;
    NvjpegDecoder& decoder = is_short && copy_ != nullptr ? *copy_ : *decoder_;
    const std::vector<EncodedJpeg>& batch = batches_[turn];
    const double begin = Seconds(CLOCK_MONOTONIC);
    jpegs_.clear();
    for (const EncodedJpeg& image : batch) jpegs_.push_back(&image);
    double cpu = Seconds(CLOCK_THREAD_CPUTIME_ID);
    double wall = Seconds(CLOCK_MONOTONIC);
    const auto lap = [&](double* of_cpu, double* of_wall) {
      const double now = Seconds(CLOCK_THREAD_CPUTIME_ID);
      const double then = Seconds(CLOCK_MONOTONIC);
      *of_cpu += now - cpu;
      if (of_wall != nullptr) *of_wall += then - wall;
      cpu = now;
      wall = then;
    };
    if (!on_device_) {
      for (const EncodedJpeg* image : jpegs_) {
        if (!decoder.Takes(*image)) {
          return absl::InternalError("an image is refused");
        }
      }
    }
    lap(&times->parse, nullptr);
    const absl::Status status = decoder.Enqueue(jpegs_);
    if (!status.ok()) return status;
    lap(&times->submit, &times->submit_wall);
    OrDie(done_.Record(stream_.get()));
    OrDie(done_.Wait());
    lap(&times->wait, &times->wait_wall);
    times->images += batch.size();
    Calls& calls = is_short                  ? times->tail
                   : tail_ != 0 && turn == 0 ? times->after
                                             : times->full;
    calls.seconds += Seconds(CLOCK_MONOTONIC) - begin;
    ++calls.count;
    return absl::OkStatus();
  }

  // A hash of the samples of the batches' planes.
  uint64_t Hash() const {
    uint64_t hash = 14695981039346656037u;
    for (size_t b = 0; b < kBatches; ++b) {
      const std::vector<uint8_t> bytes =
          ToHost<uint8_t>(planes_[b], 0, planes_[b].size());
      uint64_t at = 0;
      for (const EncodedJpeg& image : batches_[b]) {
        const PlaneLayout layout = LayOutPlanes(image.form);
        for (int plane = 0; plane < image.form.planes(); ++plane) {
          for (uint32_t y = 0; y < image.form.plane_height(plane); ++y) {
            const uint8_t* row = bytes.data() + at + layout.offset[plane] +
                                 uint64_t{y} * layout.pitch[plane];
            for (uint32_t x = 0; x < image.form.plane_width(plane); ++x) {
              hash = (hash ^ row[x]) * 1099511628211u;
            }
          }
        }
        at += layout.bytes;
      }
    }
    return hash;
  }

 private:
  const bool on_device_;
  CudaStream stream_;
  Event done_;
  static constexpr size_t kBatches = 3;
  std::unique_ptr<NvjpegDecoder> decoder_;
  std::unique_ptr<NvjpegDecoder> copy_;  // for short batches; may be null
  size_t tail_ = 0;
  std::vector<EncodedJpeg> batches_[kBatches];
  std::vector<DeviceBuffer> planes_;
  std::vector<const EncodedJpeg*> jpegs_;
  size_t next_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_GPU_ENGINE_SWEEP_H_
