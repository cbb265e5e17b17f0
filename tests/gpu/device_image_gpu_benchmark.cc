// Measures decoding on the GPU: nvJPEG's engines alone (files to planes), the
// way on from there (files to resized pixels, and to patches), alternating in
// one run; processor time for each image; the latency of one batch of 8.
//
// The files are the corpus's photographs of a megapixel or more and pictures of
// 4.9 megapixels that are made here.

#include <algorithm>
#include <cmath>
#include <cstdio>
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
#include "trainer_shim/cuda/patchify_cuda.h"
#include "trainer_shim/jpeg_feed.h"
#include "trainer_shim/patchify.h"

namespace ballast {
namespace {

constexpr int kRounds = 3;
constexpr size_t kImagesOfRound = 512;
constexpr uint32_t kFactor = 28;        // patch * merge
constexpr double kMaxPixels = 1003520;  // of a resized image
constexpr PatchShape kShape = {14, 2, 2};

double Seconds(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * now.tv_nsec;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A side of the resized image: kMaxPixels in the picture's proportions.
uint32_t SideOf(uint32_t side, uint32_t other) {
  const double shrunk = side * std::sqrt(kMaxPixels / (1.0 * side * other));
  return std::max(kFactor, static_cast<uint32_t>(shrunk / kFactor) * kFactor);
}

// A batch of files with memory for every stage.
struct Batch {
  std::vector<EncodedImage> images;
  std::vector<EncodedJpeg> jpegs;
  std::vector<PatchifyImage> patches;
  DeviceBuffer planes, pixels, values, device_patches;
  uint64_t rows = 0;
};

Batch MakeBatch(const std::vector<EngineFile>& files, size_t count) {
  Batch batch;
  uint64_t planes = 0;
  uint64_t pixels = 0;
  for (size_t i = 0; i < count; ++i) {
    const EngineFile& file = files[i % files.size()];
    EncodedImage image;
    image.bytes = file.bytes;
    image.form = file.form;
    image.out_width = SideOf(file.form.width, file.form.height);
    image.out_height = SideOf(file.form.height, file.form.width);
    image.out = pixels;
    batch.images.push_back(image);
    batch.patches.push_back(
        {pixels, batch.rows, image.out_height / kShape.patch,
         image.out_width / kShape.patch, image.out_height, image.out_width});
    batch.rows += uint64_t{image.out_height / kShape.patch} *
                  (image.out_width / kShape.patch);
    pixels +=
        (uint64_t{3} * image.out_width * image.out_height + 255) / 256 * 256;
    planes += LayOutPlanes(file.form).bytes;
  }
  batch.planes = Filled<uint8_t>(planes, 0);
  batch.pixels = Filled<uint8_t>(pixels, 0);
  batch.values = Filled<uint16_t>(batch.rows * kShape.row(), 0);
  batch.device_patches = ToDevice(batch.patches);
  uint8_t* to = batch.planes.data();
  for (const EncodedImage& image : batch.images) {
    batch.jpegs.push_back({image.bytes, image.form, to});
    to += LayOutPlanes(image.form).bytes;
  }
  return batch;
}

struct Result {
  double images_per_second = 0;
  double cpu_ms = 0;  // an image, all threads of the process
};

// Runs `count` batches through `begin` and `end`, several begun at a time.
template <typename Begin, typename End>
Result Run(std::vector<Batch>& batches, size_t of_batch, Begin begin, End end) {
  const size_t count = std::max<size_t>(4, kImagesOfRound / of_batch);
  std::deque<std::pair<uint64_t, Batch*>> begun;
  const auto end_one = [&] {
    end(begun.front().first, begun.front().second);
    begun.pop_front();
  };
  const double cpu = Seconds(CLOCK_PROCESS_CPUTIME_ID);
  const double wall = Seconds(CLOCK_MONOTONIC);
  for (size_t i = 0; i < count; ++i) {
    if (begun.size() == batches.size()) end_one();
    Batch* batch = &batches[i % batches.size()];
    begun.emplace_back(begin(batch), batch);
  }
  while (!begun.empty()) end_one();
  OrDie(cudaDeviceSynchronize(), "wait for the device");
  const double images = static_cast<double>(count * of_batch);
  return {images / (Seconds(CLOCK_MONOTONIC) - wall),
          1e3 * (Seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) / images};
}

void Report(const char* what, const std::vector<Result>& results,
            double megapixels, double alone) {
  std::vector<double> speeds;
  std::vector<double> cpu;
  for (const Result& result : results) {
    speeds.push_back(result.images_per_second);
    cpu.push_back(result.cpu_ms);
  }
  const double speed = Median(speeds);
  std::printf(
      "    %-22s %7.0f images/s %6.2f Gpx/s %5.2f ms of CPU %5.2f of "
      "engines alone\n",
      what, speed, speed * megapixels / 1e3, Median(cpu),
      alone == 0 ? 1 : speed / alone);
}

double SpeedOf(const std::vector<Result>& results) {
  std::vector<double> speeds;
  for (const Result& r : results) speeds.push_back(r.images_per_second);
  return Median(speeds);
}

void Measure(const std::vector<EngineFile>& files, size_t of_batch,
             size_t engines) {
  double megapixels = 0;
  for (const EngineFile& file : files) {
    megapixels += 1e-6 * file.form.width * file.form.height / files.size();
  }
  std::vector<Batch> batches;
  const size_t in_flight = engines * JpegEngineQueue::kBatchesOfEngine;
  for (size_t i = 0; i < in_flight; ++i) {
    batches.push_back(MakeBatch(files, of_batch));
  }
  std::vector<std::unique_ptr<JpegEngine>> made;
  for (size_t i = 0; i < engines; ++i) {
    made.push_back(
        OrDie(DeviceJpegEngine::Create(DeviceJpegEngine::Hardware::kIfThere)));
  }
  auto queue = std::make_unique<JpegEngineQueue>(std::move(made));
  DeviceImageDecoder::Options options;
  options.engines = engines;
  options.memory = uint64_t{8} << 30;
  const auto decoder = OrDie(DeviceImageDecoder::Create(options));
  OrDie(decoder->hardware());
  const NormaliseTable table({0.48, 0.46, 0.41}, {0.27, 0.26, 0.28},
                             Normalisation::kTorchvision);
  const CudaPatchifier patchifier =
      OrDie(CudaPatchifier::Create(kShape, table));
  const CudaStream stream = OrDie(CudaStream::Create());

  const auto alone = [&] {
    return Run(
        batches, of_batch,
        [&](Batch* batch) { return OrDie(queue->Begin(batch->jpegs)); },
        [&](uint64_t ticket, Batch*) { OrDie(queue->Wait(ticket)); });
  };
  const auto begin = [&](Batch* batch) {
    return OrDie(decoder->Begin(batch->images, batch->pixels.data()));
  };
  const auto pixels = [&] {
    return Run(batches, of_batch, begin, [&](uint64_t ticket, Batch*) {
      OrDie(decoder->Finish(ticket, stream.get()));
    });
  };
  const auto patches = [&] {
    return Run(batches, of_batch, begin, [&](uint64_t ticket, Batch* batch) {
      OrDie(decoder->Finish(ticket, stream.get()));
      PatchifyBatch launch;
      launch.pixels = batch->pixels.data();
      launch.pixel_bytes = batch->pixels.size();
      launch.images = batch->patches;
      launch.device_images =
          reinterpret_cast<const PatchifyImage*>(batch->device_patches.data());
      launch.out = batch->values.data();
      launch.out_rows = batch->rows;
      OrDie(patchifier.Launch(launch, stream.get()));
      // The next batch writes to these pixels.
      OrDie(stream.Synchronize());
    });
  };
  alone();
  patches();
  std::vector<Result> of_alone, of_pixels, of_patches;
  for (int round = 0; round < kRounds; ++round) {
    of_alone.push_back(alone());
    of_pixels.push_back(pixels());
    of_patches.push_back(patches());
  }
  std::printf("  batches of %zu, %zu engine threads\n", of_batch, engines);
  Report("engines alone", of_alone, megapixels, 0);
  Report("to resized pixels", of_pixels, megapixels, SpeedOf(of_alone));
  Report("to patches", of_patches, megapixels, SpeedOf(of_alone));
  if (decoder->counts().by_host + queue->counts().by_host != 0) {
    std::printf(
        "    %d images were decoded by the host\n",
        static_cast<int>(decoder->counts().by_host + queue->counts().by_host));
  }
  if (of_batch != 8) return;
  std::vector<double> engine_ms, ms;
  for (int i = 0; i < 30; ++i) {
    double from = Seconds(CLOCK_MONOTONIC);
    OrDie(queue->Wait(OrDie(queue->Begin(batches[0].jpegs))));
    engine_ms.push_back(1e3 * (Seconds(CLOCK_MONOTONIC) - from));
    from = Seconds(CLOCK_MONOTONIC);
    OrDie(decoder->Finish(begin(&batches[0]), stream.get()));
    OrDie(stream.Synchronize());
    ms.push_back(1e3 * (Seconds(CLOCK_MONOTONIC) - from));
  }
  std::printf("    one batch: %.2f ms engines alone, %.2f ms to pixels\n",
              Median(engine_ms), Median(ms));
}

void MeasureAll(const char* name, const std::vector<EngineFile>& files) {
  if (files.empty()) return;
  double bytes = 0;
  double pixels = 0;
  for (const EngineFile& file : files) {
    bytes += file.bytes.size();
    pixels += 1.0 * file.form.width * file.form.height;
  }
  std::printf("%s: %zu files, %.2f megapixels and %.2f MB each\n", name,
              files.size(), 1e-6 * pixels / files.size(),
              1e-6 * bytes / files.size());
  for (const size_t of_batch : {8, 16, 32}) Measure(files, of_batch, 2);
}

int Main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::vector<EngineFile> corpus;
  for (EngineFile& file : CorpusEngineFiles()) {
    if (file.form.width * file.form.height >= 1000000) {
      corpus.push_back(std::move(file));
    }
  }
  MeasureAll("corpus", corpus);
  std::vector<EngineFile> made;
  for (uint32_t i = 0; i < 8; ++i) {
    const MadeJpeg picture = {
        .width = 2560, .height = 1920, .quality = 85, .seed = i + 1};
    made.push_back({GetName(picture),
                    MakeJpeg(picture),
                    {picture.width, picture.height, picture.sampling}});
  }
  MeasureAll("made pictures of 4.9 megapixels", made);
  return 0;
}

}  // namespace
}  // namespace ballast

int main() { return ballast::Main(); }
