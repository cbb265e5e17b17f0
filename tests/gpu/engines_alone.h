#ifndef BALLAST_TESTS_GPU_ENGINES_ALONE_H_
#define BALLAST_TESTS_GPU_ENGINES_ALONE_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/image/engine_jpeg.h"
#include "tests/gpu/device_testing.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/device_image_decoder.h"
#include "trainer_shim/jpeg_feed.h"

namespace ballast {

inline double Seconds(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * now.tv_nsec;
}

// Figures of a round of whole_way_gpu_benchmark.
struct Result {
  double images_s = 0;
  double rank_ms = 0;  // processor time, an image
  double server_ms = 0;
  double server_user_ms = 0;
  double server_system_ms = 0;
  double server_faults = 0;  // pages, an image
  double bytes = 0;          // of blocks, an image
  double next_ms = 0;
  double engines_busy = 0;  // engine threads in Decode, of the time
  double by_hardware = 0;   // of the images
};

// nvJPEG's engines alone on the files of a folder, in batches of 32.
class EnginesAlone {
 public:
  static constexpr size_t kEngineBatch = 32;
  static constexpr size_t kEngineThreads = 2;

  explicit EnginesAlone(const std::string& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream in(entry.path(), std::ios::binary);
      std::string bytes((std::istreambuf_iterator<char>(in)), {});
      const auto judged = JudgeForEngines(bytes);
      if (!judged.ok() || judged->refusal != EngineRefusal::kNone) continue;
      forms_.push_back(judged->form);
      megapixels_ += 1e-6 * judged->form.width * judged->form.height;
      pinned_.push_back(OrDie(PinnedBuffer::Create(bytes.size())));
      std::memcpy(pinned_.back().data(), bytes.data(), bytes.size());
      sizes_.push_back(bytes.size());
    }
    if (forms_.empty()) {
      std::fprintf(stderr, "no JPEG for the engines in %s\n", folder.c_str());
      std::exit(1);
    }
    megapixels_ /= static_cast<double>(forms_.size());
    size_t file = 0;
    for (size_t b = 0; b < kEngineThreads * 2; ++b) {
      std::vector<EncodedJpeg>& batch = batches_.emplace_back();
      uint64_t planes = 0;
      for (size_t i = 0; i < kEngineBatch; ++i, ++file) {
        const size_t f = file % forms_.size();
        batch.push_back(
            {{reinterpret_cast<const char*>(pinned_[f].data()), sizes_[f]},
             forms_[f],
             nullptr});
        planes += LayOutPlanes(forms_[f]).bytes;
      }
      planes_.push_back(Filled<uint8_t>(planes, 0));
      uint8_t* to = planes_.back().data();
      for (EncodedJpeg& image : batch) {
        image.planes = to;
        to += LayOutPlanes(image.form).bytes;
      }
    }
    std::vector<std::unique_ptr<JpegEngine>> engines;
    for (size_t i = 0; i < kEngineThreads; ++i) {
      auto engine =
          OrDie(DeviceJpegEngine::Create(DeviceJpegEngine::Hardware::kIfThere));
      if (!engine->hardware().ok()) OrDie(engine->hardware());
      engines.push_back(std::move(engine));
    }
    queue_ = std::make_unique<JpegEngineQueue>(std::move(engines));
  }
  double megapixels() const { return megapixels_; }

  Result Run(double seconds) {
    const double rank = Seconds(CLOCK_PROCESS_CPUTIME_ID);
    const double begin = Seconds(CLOCK_MONOTONIC);
    std::vector<uint64_t> tickets;
    size_t ended = 0;
    while (Seconds(CLOCK_MONOTONIC) - begin < seconds ||
           ended < tickets.size()) {
      const bool more = Seconds(CLOCK_MONOTONIC) - begin < seconds;
      if (more && tickets.size() - ended < batches_.size()) {
        tickets.push_back(
            OrDie(queue_->Begin(batches_[tickets.size() % batches_.size()])));
      } else {
        OrDie(queue_->Wait(tickets[ended++]));
      }
    }
    const double images = static_cast<double>(ended * kEngineBatch);
    Result result;
    result.images_s = images / (Seconds(CLOCK_MONOTONIC) - begin);
    result.rank_ms = 1e3 * (Seconds(CLOCK_PROCESS_CPUTIME_ID) - rank) / images;
    return result;
  }

 private:
  std::vector<PlaneForm> forms_;
  std::vector<PinnedBuffer> pinned_;
  std::vector<uint64_t> sizes_;
  double megapixels_ = 0;
  std::vector<std::vector<EncodedJpeg>> batches_;
  std::vector<DeviceBuffer> planes_;
  std::unique_ptr<JpegEngineQueue> queue_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_GPU_ENGINES_ALONE_H_
