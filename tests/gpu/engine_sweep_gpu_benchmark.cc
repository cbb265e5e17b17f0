// Where nvJPEG's time goes: files to planes with its backends, flags, sizes of
// batches and numbers of threads, without anything of ours around it. Prints a
// JSON object a line: images a second; for each image the processor time of
// parsing headers, of the call that decodes a batch and of the wait for it; in
// the end what the process's threads were executing, by a profiling timer.
//
//   engine_sweep_gpu_benchmark [--all] [--blocking] [--on-device]
//       [--no-pipeline] [SECONDS]
//
// --all also measures without memory prepared, or prepared for 4:2:0 alone;
// --blocking lets CUDA's own waits block instead of spin; --on-device tries
// the backend that reads files in device memory; --no-pipeline nvJPEG's flag of
// that name; SECONDS of each measurement, by default 0.3.

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/image/plane_form.h"
#include "tests/gpu/cpu_profile.h"
#include "tests/gpu/device_testing.h"
#include "tests/gpu/engine_files.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/nvjpeg_decoder.h"

namespace ballast {
namespace {

// NVJPEG_BACKEND_HARDWARE_DEVICE: files in device memory.
constexpr int kBackendHardwareDevice = 5;
constexpr int kCss420 = 2;  // NVJPEG_CSS_420
// NVJPEG_FLAGS_HW_DECODE_NO_PIPELINE.
constexpr unsigned kNoPipeline = 1;

double Seconds(clockid_t clock) {
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
};

struct Times {  // seconds
  double parse = 0, submit = 0, wait = 0;
  double submit_wall = 0, wait_wall = 0;
  uint64_t images = 0;
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

// One thread's engine, and two batches that it decodes in turn.
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
    for (std::vector<EncodedJpeg>& batch : batches_) {
      uint64_t bytes = 0;
      for (size_t i = 0; i < variant.batch; ++i) {
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
    const std::vector<EncodedJpeg>& batch = batches_[next_++ % 2];
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
        if (!decoder_->Takes(*image)) {
          return absl::InternalError("an image is refused");
        }
      }
    }
    lap(&times->parse, nullptr);
    const absl::Status status = decoder_->Enqueue(jpegs_);
    if (!status.ok()) return status;
    lap(&times->submit, &times->submit_wall);
    OrDie(done_.Record(stream_.get()));
    OrDie(done_.Wait());
    lap(&times->wait, &times->wait_wall);
    times->images += batch.size();
    return absl::OkStatus();
  }

  // A hash of the samples of the batches' planes.
  uint64_t Hash() const {
    uint64_t hash = 14695981039346656037u;
    for (size_t b = 0; b < 2; ++b) {
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
  std::unique_ptr<NvjpegDecoder> decoder_;
  std::vector<EncodedJpeg> batches_[2];
  std::vector<DeviceBuffer> planes_;
  std::vector<const EncodedJpeg*> jpegs_;
  size_t next_ = 0;
};

void Measure(const Files& files, const Variant& variant, double seconds,
             bool hash) {
  std::vector<std::unique_ptr<Worker>> workers;
  for (size_t i = 0; i < variant.threads; ++i) {
    workers.push_back(std::make_unique<Worker>(files, variant, i));
  }
  std::barrier<> begin(variant.threads + 1);
  std::vector<Times> times(variant.threads);
  std::vector<absl::Status> statuses(variant.threads);
  std::vector<std::thread> threads;
  std::atomic<double> until{0};
  for (size_t i = 0; i < variant.threads; ++i) {
    threads.emplace_back([&, i] {
      OrDie(cudaSetDevice(0), "choosing the device");
      Times warm;
      for (int k = 0; k < 3 && statuses[i].ok(); ++k) {
        statuses[i] = workers[i]->Decode(&warm);
      }
      begin.arrive_and_wait();
      begin.arrive_and_wait();
      while (statuses[i].ok() && Seconds(CLOCK_MONOTONIC) < until) {
        statuses[i] = workers[i]->Decode(&times[i]);
      }
    });
  }
  begin.arrive_and_wait();
  const double cpu = Seconds(CLOCK_PROCESS_CPUTIME_ID);
  const double wall = Seconds(CLOCK_MONOTONIC);
  until = wall + seconds;
  begin.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
  const double cpu_s = Seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  const double wall_s = Seconds(CLOCK_MONOTONIC) - wall;
  Times sum;
  absl::Status status;
  for (size_t i = 0; i < variant.threads; ++i) {
    sum.images += times[i].images;
    sum.parse += times[i].parse;
    sum.submit += times[i].submit;
    sum.wait += times[i].wait;
    sum.submit_wall += times[i].submit_wall;
    sum.wait_wall += times[i].wait_wall;
    status.Update(statuses[i]);
  }
  std::printf(
      "{\"files\": \"%s\", \"backend\": %d, \"flags\": %u, \"batch\": %zu, "
      "\"threads\": %zu, \"prepare\": %d, \"sorted\": %d, \"at_a_time\": %zu, ",
      variant.files, variant.backend, variant.flags, variant.batch,
      variant.threads, variant.prepare, variant.sorted,
      workers[0]->at_a_time());
  if (!status.ok()) {
    std::printf("\"error\": \"%s\"}\n", std::string(status.message()).c_str());
    return;
  }
  const double us = 1e6 / static_cast<double>(sum.images);
  std::printf(
      "\"images_s\": %.0f, \"cpu_us\": %.0f, \"parse_us\": %.1f, "
      "\"submit_us\": %.0f, \"wait_us\": %.0f, \"submit_wall_us\": %.0f, "
      "\"wait_wall_us\": %.0f",
      static_cast<double>(sum.images) / wall_s, cpu_s * us, sum.parse * us,
      sum.submit * us, sum.wait * us, sum.submit_wall * us, sum.wait_wall * us);
  if (hash) {
    std::printf(", \"hash\": \"%016llx\"",
                static_cast<unsigned long long>(workers[0]->Hash()));
  }
  std::printf("}\n");
}

int Main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  double seconds = 0.3;
  bool blocking = false;
  std::vector<int> prepares = {nvjpeg::kCss444};
  int backend = nvjpeg::kBackendHardware;
  unsigned flags = nvjpeg::kFlagsDefault;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--all") == 0) {
      prepares = {-1, nvjpeg::kCss444, kCss420};
    } else if (std::strcmp(argv[i], "--blocking") == 0) {
      blocking = true;
    } else if (std::strcmp(argv[i], "--on-device") == 0) {
      backend = kBackendHardwareDevice;
    } else if (std::strcmp(argv[i], "--no-pipeline") == 0) {
      flags = kNoPipeline;
    } else {
      seconds = std::atof(argv[i]);
    }
  }
  if (blocking) {
    OrDie(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync),
          "asking to block");
  }
  OrDie(cudaSetDevice(0), "choosing the device");
  OrDie(cudaFree(nullptr), "making the context");
  std::vector<EngineFile> photographs;
  uint64_t bytes = 0;
  for (EngineFile& file : CorpusEngineFiles()) {
    if (file.form.width * file.form.height < 1000000) continue;
    bytes += file.bytes.size();
    photographs.push_back(std::move(file));
  }
  std::vector<EngineFile> made;
  for (uint32_t i = 0; i < 8; ++i) {
    const MadeJpeg picture = {
        .width = 2560, .height = 1920, .quality = 85, .seed = i + 1};
    made.push_back({NameOf(picture),
                    MakeJpeg(picture),
                    {picture.width, picture.height, picture.sampling}});
  }
  std::printf("{\"blocking\": %s, \"photographs\": %zu, \"bytes\": %llu}\n",
              blocking ? "true" : "false", photographs.size(),
              static_cast<unsigned long long>(bytes));
  std::vector<std::pair<const char*, std::unique_ptr<Files>>> all;
  if (!photographs.empty()) {
    all.emplace_back("corpus", std::make_unique<Files>(std::move(photographs)));
  }
  all.emplace_back("made", std::make_unique<Files>(std::move(made)));
  for (const auto& [name, files] : all) {
    for (const int prepare : prepares) {
      for (const bool sorted : {false, true}) {
        for (const size_t batch : {7, 8, 14, 16, 28, 32}) {
          for (const size_t threads : {1, 2, 4}) {
            const Variant variant = {name,    backend, flags, batch,
                                     threads, prepare, sorted};
            const bool closely = batch == 14 && threads == 1 && !sorted;
            if (closely) CpuProfile::Begin();
            Measure(*files, variant, seconds, closely);
            if (!closely) continue;
            CpuProfile::End();
            CpuProfile::Print(name);
          }
        }
        if (std::strcmp(name, "made") == 0) break;  // all of one size
      }
    }
  }
  // Whether a process whose context exists can still choose to block.
  std::printf(
      "{\"late\": \"%s\"}\n",
      cudaGetErrorName(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync)));
  return 0;
}

}  // namespace
}  // namespace ballast

int main(int argc, char** argv) { return ballast::Main(argc, argv); }
