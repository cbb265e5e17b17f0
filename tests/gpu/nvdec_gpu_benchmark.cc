// How fast the GPU's video engines are, what they cost the processor, and how
// much they slow matrix products down. Prints a JSON object a line.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/gpu/device_testing.h"
#include "tests/gpu/made_clips.h"
#include "tests/gpu/matrix_products.h"
#include "trainer_shim/cuda/nvdec_decoder.h"

namespace ballast {
namespace {

double ProcessorSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return time.tv_sec + time.tv_usec * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

size_t UsedMib() {
  size_t free = 0;
  size_t all = 0;
  OrDie(cudaMemGetInfo(&free, &all), "asking for memory");
  return (all - free) >> 20;
}

// Threads that decode a clip over and over, each on a decoder of its own.
class Engines {
 public:
  // Every `every`-th frame is wanted.
  Engines(const MadeClip& clip, int threads, uint32_t every) {
    std::atomic<int> ready = 0;
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, &clip, &ready, every] {
        OrDie(UseDevice(0));
        const CudaStream stream = OrDie(CudaStream::CreateUrgent());
        const VideoBounds bounds = {*clip.engine_codec(), clip.form.width,
                                    clip.form.height};
        const auto decoder =
            OrDie(NvdecDecoder::Create(stream.get(), {&bounds, 1}));
        std::vector<uint32_t> wanted;
        for (uint32_t packet = 0; packet < clip.packets.size();
             packet += every) {
          wanted.push_back(packet);
        }
        const DeviceBuffer planes = OrDie(DeviceBuffer::Create(
            LayOutPlanes(clip.form).bytes * wanted.size()));
        EncodedStretch stretch = {*clip.engine_codec(), clip.form, clip.packets,
                                  wanted, planes.data()};
        OrDie(decoder->Decode(stretch));
        ++ready;
        while (!ended_) {
          OrDie(decoder->Decode(stretch));
          frames_ += clip.packets.size();
          wanted_ += wanted.size();
        }
      });
    }
    while (ready < threads) std::this_thread::yield();
  }
  ~Engines() {
    ended_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  uint64_t frames() const { return frames_; }
  uint64_t wanted() const { return wanted_; }

 private:
  std::atomic<bool> ended_ = false;
  std::atomic<uint64_t> frames_ = 0;
  std::atomic<uint64_t> wanted_ = 0;
  std::vector<std::thread> threads_;
};

void Measure(const MadeClip& clip, int threads, uint32_t every) {
  Engines engines(clip, threads, every);
  const double processor = ProcessorSeconds();
  const uint64_t frames = engines.frames();
  const uint64_t wanted = engines.wanted();
  const absl::Time begin = Clock::Real()->Now();
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  const double seconds = absl::ToDoubleSeconds(Clock::Real()->Now() - begin);
  const uint64_t decoded = engines.frames() - frames;
  std::printf(
      "{\"clip\": \"%s\", \"threads\": %d, \"every\": %u, \"frames_s\": %.0f, "
      "\"wanted_s\": %.0f, \"processor_ms_a_frame\": %.3f, \"used_mib\": "
      "%zu}\n",
      clip.name.c_str(), threads, every, decoded / seconds,
      (engines.wanted() - wanted) / seconds,
      (ProcessorSeconds() - processor) * 1000 / std::max<uint64_t>(decoded, 1),
      UsedMib());
  std::fflush(stdout);
}

// Milliseconds of products.
double StepMs(MatrixProducts* products, const CudaStream& stream) {
  const Event begin = OrDie(Event::CreateTimed());
  const Event end = OrDie(Event::CreateTimed());
  OrDie(begin.Record(stream.get()));
  OrDie(products->Enqueue(100));
  OrDie(end.Record(stream.get()));
  OrDie(end.Wait());
  return absl::ToDoubleMilliseconds(OrDie(TimeBetween(begin, end)));
}

void MeasureBeside(const MadeClip& clip, int threads, uint32_t every) {
  const CudaStream stream = OrDie(CudaStream::Create());
  absl::StatusOr<MatrixProducts> products =
      MatrixProducts::Create(stream.get());
  if (!products.ok()) {
    std::printf("%s\n", products.status().ToString().c_str());
    return;
  }
  for (int i = 0; i < 3; ++i) StepMs(&*products, stream);
  std::vector<double> slower;
  for (int round = 0; round < 5; ++round) {
    double alone = 0;
    double beside = 0;
    for (int i = 0; i < 5; ++i) alone += StepMs(&*products, stream);
    {
      Engines engines(clip, threads, every);
      StepMs(&*products, stream);
      for (int i = 0; i < 5; ++i) beside += StepMs(&*products, stream);
    }
    StepMs(&*products, stream);
    for (int i = 0; i < 5; ++i) alone += StepMs(&*products, stream);
    slower.push_back(2 * beside / alone - 1);
  }
  std::sort(slower.begin(), slower.end());
  std::printf(
      "{\"clip\": \"%s\", \"threads\": %d, \"every\": %u, "
      "\"products_slower\": %.4f, \"from\": %.4f, \"to\": %.4f}\n",
      clip.name.c_str(), threads, every, slower[slower.size() / 2],
      slower.front(), slower.back());
  std::fflush(stdout);
}

int Run(absl::string_view name) {
  OrDie(cudaSetDevice(0), "choosing the device");
  for (const MadeClip& clip : MadeClips()) {
    if (!clip.damage.empty() || !clip.engine_codec().has_value() ||
        clip.form.width < 1280 || !absl::StrContains(clip.name, name)) {
      continue;
    }
    for (const int threads : {1, 7, 14}) Measure(clip, threads, 1);
    Measure(clip, 14, 12);
    for (const int threads : {7, 14}) MeasureBeside(clip, threads, 1);
    MeasureBeside(clip, 14, 12);
  }
  return 0;
}

}  // namespace
}  // namespace ballast

// An argument selects the clips whose names contain it.
int main(int argc, char** argv) {
  return ballast::Run(argc > 1 ? argv[1] : "");
}
