// Measures decoding and resizing to RGB, as ratios within one run: alternatives
// alternate image by image, and medians are compared. Wanted:
//   exact decode + resize over libjpeg-turbo's decode of the same files  <= 1.2
//   memory beyond the result, 12-megapixel baseline JPEG                <= 4 MB
//   headers read for the index, page cache                  >= 100,000 a second
// For thread scaling see thread_scaling_benchmark.
//
//   bazel run --config=opt //tests/benchmarks:image_benchmark

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <hwy/targets.h>

#include "proto/image/engine_jpeg.h"
#include "server/data/index/image_probe.h"
#include "server/files/file.h"
#include "server/media/image/image.h"
#include "server/media/image/quad_kernels.h"
#include "server/media/image/sound_scan.h"
#include "tests/benchmarks/image_corpus.h"
#include "tests/benchmarks/plain_jpeg.h"
#include "tests/fakes/malloc_counter.h"
#include "trainer_shim/resample_plan.h"

namespace ballast {
namespace {

// Bounds of an image after resizing: the processor class's default and the
// released checkpoints'.
constexpr int64_t kClassDefault = 1003520;
constexpr int64_t kCheckpoint = 12845056;

// Disables AVX-512, to measure as on machines without it.
constexpr int64_t kBeyondAvx2 = HWY_AVX3 | HWY_AVX3_DL;

// This thread's CPU time, which other programs on the machine affect less than
// wall time.
double ProcessorSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

double GetSeconds(const std::function<void()>& work) {
  const double start = ProcessorSeconds();
  work();
  return ProcessorSeconds() - start;
}

// The times of one kind of work on each image of a corpus.
class Times {
 public:
  explicit Times(size_t images) : seconds_(images) {}
  void Add(size_t image, double seconds) { seconds_[image].push_back(seconds); }
  // The sum over all images of their medians.
  double Total() const {
    double total = 0;
    for (std::vector<double> one : seconds_) {
      std::nth_element(one.begin(), one.begin() + one.size() / 2, one.end());
      total += one[one.size() / 2];
    }
    return total;
  }

 private:
  std::vector<std::vector<double>> seconds_;
};

void Resize(ImageDecoder& decoder, const CorpusImage& image,
            std::vector<uint8_t>& out) {
  out.resize(
      std::max(out.size(), size_t{image.width} * image.height * kChannels));
  const absl::Status status = decoder.DecodeResized(
      image.bytes, image.header, image.width, image.height,
      absl::MakeSpan(out).first(size_t{image.width} * image.height *
                                kChannels));
  if (status.ok()) return;
  std::cerr << status << std::endl;
  std::exit(1);
}

// Peak signal-to-noise ratio in dB; 99 for equal pictures.
double Psnr(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b,
            size_t size) {
  double sum = 0;
  for (size_t i = 0; i < size; ++i) {
    const double difference = int{a[i]} - int{b[i]};
    sum += difference * difference;
  }
  return sum == 0 ? 99 : 10 * std::log10(255 * 255 * (size / sum));
}

void BM_DecodeResize(benchmark::State& state) {
  if (state.range(1)) hwy::DisableTargets(kBeyondAvx2);
  const std::vector<CorpusImage> corpus = LoadImageCorpus(state.range(0));
  PlainJpeg plain;
  ImageDecoder exact;
  ImageOptions options;
  options.fast = true;
  ImageDecoder fast(options);
  std::vector<uint8_t> exact_out, fast_out;
  Times rows(corpus.size()), whole(corpus.size()), exact_times(corpus.size()),
      fast_times(corpus.size());
  double pixels = 0, psnr = 0, least_psnr = INFINITY;
  bool are_jpegs = true;
  for (auto _ : state) {
    pixels = psnr = 0;
    for (size_t i = 0; i < corpus.size(); ++i) {
      const CorpusImage& image = corpus[i];
      are_jpegs = are_jpegs && image.header.format == ImageFormat::kJpeg;
      if (are_jpegs) {
        rows.Add(i, GetSeconds([&] { plain.DecodeRows(image.bytes); }));
        whole.Add(i, GetSeconds([&] { plain.DecodeWhole(image.bytes); }));
      }
      exact_times.Add(i, GetSeconds([&] { Resize(exact, image, exact_out); }));
      fast_times.Add(i, GetSeconds([&] { Resize(fast, image, fast_out); }));
      const double one =
          Psnr(exact_out, fast_out, size_t{image.width} * image.height * 3);
      psnr += one;
      least_psnr = std::min(least_psnr, one);
      pixels += double(image.header.width) * image.header.height;
    }
  }
  const double n = corpus.size();
  state.SetLabel(std::string(KernelTarget()));
  hwy::DisableTargets(0);
  if (are_jpegs) {
    state.counters["over_libjpeg"] = exact_times.Total() / rows.Total();
    state.counters["over_libjpeg_whole"] = exact_times.Total() / whole.Total();
  }
  state.counters["images/s"] = n / exact_times.Total();
  state.counters["Mpixel/s"] = pixels / 1e6 / exact_times.Total();
  state.counters["fast_speedup"] = exact_times.Total() / fast_times.Total();
  state.counters["fast_psnr_db"] = psnr / n;
  state.counters["fast_psnr_least"] = least_psnr;
}
BENCHMARK(BM_DecodeResize)
    ->ArgNames({"max_pixels", "avx2"})
    ->ArgsProduct({{kClassDefault, kCheckpoint}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

// Measures everything that one thread takes from malloc in addition to the
// result: decoder, tables and libjpeg included.
void BM_PeakMemory(benchmark::State& state) {
  CorpusImage image;
  image.bytes = DrawPhotograph(4000, 3000);
  image.header = ReadImageHeader(image.bytes).value();
  image.width = 1148;
  image.height = 868;
  std::vector<uint8_t> out(size_t{image.width} * image.height * kChannels);
  int64_t peak = 0;
  for (auto _ : state) {
    StartMallocCount();
    ImageDecoder decoder;
    Resize(decoder, image, out);
    peak = std::max(peak, ReadMallocCount().peak);
  }
  state.counters["peak_MB"] = peak / 1e6;
}
BENCHMARK(BM_PeakMemory)->Unit(benchmark::kMillisecond);

// Reads the sizes of images that are adjacent in a file, as in a tar.
void BM_ReadSizes(benchmark::State& state) {
  const std::vector<CorpusImage> corpus = LoadImageCorpus(kClassDefault);
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path = std::string(folder == nullptr ? "/tmp" : folder) +
                           "/ballast_image_benchmark.bin";
  {
    std::ofstream out(path, std::ios::binary);
    for (const CorpusImage& image : corpus) out << image.bytes;
  }
  const absl::StatusOr<File> file = File::Open(path);
  const ImageSizeReader reader =
      [](absl::string_view bytes) -> absl::StatusOr<ImageSize> {
    const absl::StatusOr<ImageHeader> header = ReadImageSize(bytes, {});
    if (!header.ok()) return header.status();
    return ImageSize{header->width, header->height};
  };
  uint64_t images = 0;
  for (auto _ : state) {
    uint64_t offset = 0;
    for (const CorpusImage& image : corpus) {
      const auto size =
          ProbeImage(*file, offset, image.bytes.size(), reader, JudgeHeader);
      if (!size.ok()) {
        state.SkipWithError(std::string(size.status().message()).c_str());
        return;
      }
      offset += image.bytes.size();
      ++images;
    }
  }
  std::remove(path.c_str());
  state.counters["images/s"] =
      benchmark::Counter(images, benchmark::Counter::kIsRate);
}
BENCHMARK(BM_ReadSizes);

// Parses headers in memory: sizes, and whether JPEG engines take the image.
template <typename Read>
void ReadHeaders(benchmark::State& state, Read read) {
  const std::vector<CorpusImage> corpus = LoadImageCorpus(kClassDefault);
  for (auto _ : state) {
    for (const CorpusImage& image : corpus) {
      auto header = read(image.bytes);
      benchmark::DoNotOptimize(header);
    }
  }
  state.counters["images/s"] = benchmark::Counter(
      state.iterations() * corpus.size(), benchmark::Counter::kIsRate);
}
void BM_ParseSizes(benchmark::State& state) {
  ReadHeaders(state,
              [](absl::string_view bytes) { return ReadImageSize(bytes, {}); });
}
BENCHMARK(BM_ParseSizes);
void BM_JudgeForEngines(benchmark::State& state) {
  ReadHeaders(state, JudgeForEngines);
}
BENCHMARK(BM_JudgeForEngines);

// Over the files that engines take: the check of every bit, and a decode as its
// yardstick.
template <typename Check>
void CheckFiles(benchmark::State& state, Check check) {
  uint64_t images = 0;
  const std::vector<CorpusImage> corpus = LoadImageCorpus(kClassDefault);
  for (auto _ : state) {
    for (const CorpusImage& image : corpus) {
      const auto judged = JudgeForEngines(image.bytes);
      if (!judged.ok() || judged->refusal != EngineRefusal::kNone) continue;
      auto result = check(image.bytes);
      benchmark::DoNotOptimize(result);
      ++images;
    }
  }
  state.counters["images/s"] =
      benchmark::Counter(images, benchmark::Counter::kIsRate);
}
void BM_CheckScan(benchmark::State& state) { CheckFiles(state, CheckScan); }
BENCHMARK(BM_CheckScan)->Unit(benchmark::kMillisecond);
void BM_DecodeCheckedFiles(benchmark::State& state) {
  ImageDecoder decoder;
  CheckFiles(state, [&](absl::string_view bytes) {
    return decoder.Decode(bytes).status();
  });
}
BENCHMARK(BM_DecodeCheckedFiles)->Unit(benchmark::kMillisecond);

// What a rank that decodes on the GPU computes on its host for an image of a
// size that it meets for the first time: width, height, and those after
// resizing.
void BM_PlanNewSize(benchmark::State& state) {
  ResampleRequest request;
  const PlaneForm form = {static_cast<uint32_t>(state.range(0)),
                          static_cast<uint32_t>(state.range(1)),
                          ChromaSampling::k420};
  request.out_width = static_cast<uint32_t>(state.range(2));
  request.out_height = static_cast<uint32_t>(state.range(3));
  ResamplePlanner planner;
  uint32_t met = 0;
  for (auto _ : state) {
    // Kept weights are forgotten long before a size comes again.
    request.form = form;
    request.form.width += met;
    request.form.height += met;
    met = (met + 1) % 1000;
    if (!planner.Plan({&request, 1}).ok()) state.SkipWithError("not planned");
    benchmark::DoNotOptimize(planner.plan().weights.data());
  }
}
BENCHMARK(BM_PlanNewSize)
    ->Args({900, 880, 896, 868})
    ->Args({2592, 1936, 1148, 868})
    ->Args({4032, 3024, 1148, 868})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace ballast

BENCHMARK_MAIN();
