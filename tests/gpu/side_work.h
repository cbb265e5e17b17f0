#ifndef BALLAST_TESTS_GPU_SIDE_WORK_H_
#define BALLAST_TESTS_GPU_SIDE_WORK_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/device_testing.h"
#include "tests/gpu/engine_files.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/device_image_decoder.h"
#include "trainer_shim/cuda/plane_kernels.h"
#include "trainer_shim/jpeg_feed.h"
#include "trainer_shim/resample_plan.h"

namespace ballast {

// What the shim has the GPU do for one batch of encoded images, part by part,
// to see which of them slows the trainer's step. Chunks are those of the shim:
// as many images as the engines decode at a time, of like sizes together.
class SideWork {
 public:
  static constexpr size_t kThreads = 2;
  static constexpr double kPixels = 1003520;  // of a resized image

  // `images` of a batch, of the files of `folder`, in turns.
  SideWork(const std::string& folder, size_t images)
      : files_(EngineFilesOf(folder)) {
    std::vector<std::unique_ptr<JpegEngine>> engines;
    size_t at_a_time = 1;
    for (size_t i = 0; i < kThreads; ++i) {
      auto engine =
          OrDie(DeviceJpegEngine::Create(DeviceJpegEngine::Hardware::kIfThere));
      OrDie(engine->hardware());
      at_a_time = engine->at_a_time();
      engines.push_back(std::move(engine));
    }
    queue_ = std::make_unique<JpegEngineQueue>(std::move(engines));
    stream_ = OrDie(CudaStream::CreateUrgent());
    done_ = OrDie(Event::Create());
    kernels_ = std::make_unique<PlaneKernels>(OrDie(PlaneKernels::Create()));
    std::vector<const EngineFile*> batch;
    for (size_t i = 0; i < images; ++i) {
      batch.push_back(&files_[i % files_.size()]);
      bytes_ += batch.back()->bytes.size();
    }
    std::sort(batch.begin(), batch.end(),
              [](const EngineFile* a, const EngineFile* b) {
                return AreaOf(*a) > AreaOf(*b);
              });
    from_ = OrDie(PinnedBuffer::Create(bytes_));
    to_ = Filled<uint8_t>(bytes_, 0);
    uint64_t at = 0;
    for (size_t begin = 0; begin < images; begin += at_a_time) {
      const size_t end = std::min(images, begin + at_a_time);
      AddChunk({batch.begin() + begin, batch.begin() + end}, &at);
    }
  }

  // Each blocks until the GPU is done; from any thread.

  // Files to planes, as fast as the engines go.
  void Engines() {
    OrDie(cudaSetDevice(0), "choosing the device");
    std::deque<JpegEngineQueue::Ticket> begun;
    const auto end_one = [&] {
      OrDie(queue_->Wait(begun.front()));
      begun.pop_front();
    };
    for (const auto& chunk : chunks_) {
      if (begun.size() == kThreads * JpegEngineQueue::kBatchesOfEngine) {
        end_one();
      }
      begun.push_back(OrDie(queue_->Begin(chunk->jpegs)));
    }
    while (!begun.empty()) end_one();
  }

  // Planes to resized pixels, a chunk each `pause_ms`.
  void Kernels(double pause_ms) {
    OrDie(cudaSetDevice(0), "choosing the device");
    for (const auto& chunk : chunks_) {
      OrDie(kernels_->Launch(chunk->batch, stream_.get()));
      if (pause_ms == 0) continue;
      Wait();
      const timespec pause = {0, static_cast<int64_t>(1e6 * pause_ms)};
      nanosleep(&pause, nullptr);
    }
    Wait();
  }

  // The files' bytes to the device, as their block goes there.
  void Copies() {
    OrDie(cudaSetDevice(0), "choosing the device");
    OrDie(cudaMemcpyAsync(to_.data(), from_.data(), bytes_,
                          cudaMemcpyHostToDevice, stream_.get()),
          "copy to the device");
    Wait();
  }

 private:
  struct Chunk {
    std::vector<EncodedJpeg> jpegs;
    DeviceBuffer planes, narrow, pixels, images, taps, weights;
    ResamplePlanner planner;
    PlaneBatch batch;
  };

  static uint64_t AreaOf(const EngineFile& file) {
    return uint64_t{file.form.width} * file.form.height;
  }
  // Near what a model's processor makes of it.
  static uint32_t SideOf(uint32_t side, const EngineFile& file) {
    const double scale = std::sqrt(kPixels / static_cast<double>(AreaOf(file)));
    return std::max(28u, static_cast<uint32_t>(side * scale / 28) * 28);
  }

  void Wait() {
    OrDie(done_.Record(stream_.get()));
    OrDie(done_.Wait());
  }

  void AddChunk(const std::vector<const EngineFile*>& files, uint64_t* at) {
    auto chunk = std::make_unique<Chunk>();
    std::vector<ResampleRequest> requests;
    uint64_t planes = 0, pixels = 0;
    for (const EngineFile* file : files) {
      const uint32_t width = SideOf(file->form.width, *file);
      const uint32_t height = SideOf(file->form.height, *file);
      requests.push_back({file->form, width, height, planes, pixels});
      planes += LayOutPlanes(file->form).bytes;
      pixels += (uint64_t{3} * width * height + 255) / 256 * 256;
      std::memcpy(from_.data() + *at, file->bytes.data(), file->bytes.size());
      chunk->jpegs.push_back(
          {{reinterpret_cast<const char*>(from_.data() + *at),
            file->bytes.size()},
           file->form,
           nullptr});
      *at += file->bytes.size();
    }
    chunk->planes = Filled<uint8_t>(planes, 0x55);
    for (size_t i = 0; i < files.size(); ++i) {
      chunk->jpegs[i].planes = chunk->planes.data() + requests[i].planes;
    }
    OrDie(chunk->planner.Plan(requests));
    const ResamplePlan& plan = chunk->planner.plan();
    chunk->narrow = Filled<uint8_t>(plan.narrow_bytes, 0);
    chunk->pixels = Filled<uint8_t>(pixels, 0);
    chunk->images = ToDevice(plan.images);
    chunk->taps = ToDevice(plan.taps);
    chunk->weights = ToDevice(plan.weights);
    PlaneBatch& batch = chunk->batch;
    batch.plan = &plan;
    batch.images = reinterpret_cast<const ResampleImage*>(chunk->images.data());
    batch.taps = reinterpret_cast<const AxisTaps*>(chunk->taps.data());
    batch.weights = reinterpret_cast<const int32_t*>(chunk->weights.data());
    batch.planes = chunk->planes.data();
    batch.narrow = chunk->narrow.data();
    batch.out = chunk->pixels.data();
    chunks_.push_back(std::move(chunk));
  }

  const std::vector<EngineFile> files_;
  uint64_t bytes_ = 0;  // of a batch's files
  PinnedBuffer from_;
  DeviceBuffer to_;
  CudaStream stream_;
  Event done_;
  std::unique_ptr<PlaneKernels> kernels_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::unique_ptr<JpegEngineQueue> queue_;  // its threads use the chunks
};

}  // namespace ballast

#endif  // BALLAST_TESTS_GPU_SIDE_WORK_H_
