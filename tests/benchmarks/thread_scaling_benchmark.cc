// Measures images a second of N threads over N times one thread's, with whole
// images for each (wanted: at least 0.9): ours, and for comparison
// libjpeg-turbo alone, whose threads share nothing but the machine. If both
// drop alike, the machine's threads, clock or memory are the reason.
//
//   bazel run --config=opt //tests/benchmarks:thread_scaling_benchmark

#include <time.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "absl/types/span.h"
#include "common/machine.h"
#include "server/media/image/image.h"
#include "tests/benchmarks/image_corpus.h"
#include "tests/benchmarks/plain_jpeg.h"

namespace ballast {
namespace {

constexpr int64_t kClassDefault = 1003520;
// Passes of each thread over the corpus while it is measured.
constexpr int kPasses = 3;

// One thread's work on one image.
using Work = std::function<void(const CorpusImage&)>;
// Creates the work with the state that it keeps between images.
using MakeWork = std::function<Work()>;

struct Throughput {
  double wall = 0;       // images a second
  double processor = 0;  // images a second of a thread's CPU time
};

double ProcessorSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

// Every thread processes the whole corpus, each starting at another image, and
// is timed from the common start to its own end, so that no thread measures the
// time after others have finished.
Throughput Measure(const std::vector<CorpusImage>& corpus, size_t threads,
                   const MakeWork& make_work) {
  std::barrier start(threads);
  std::vector<double> wall(threads), processor(threads);
  std::vector<std::thread> workers;
  for (size_t t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      const Work work = make_work();
      for (const CorpusImage& image : corpus) work(image);
      start.arrive_and_wait();
      const auto began = std::chrono::steady_clock::now();
      const double before = ProcessorSeconds();
      for (size_t i = 0; i < kPasses * corpus.size(); ++i) {
        work(corpus[(t + i) % corpus.size()]);
      }
      processor[t] = ProcessorSeconds() - before;
      wall[t] = std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                              began)
                    .count();
    });
  }
  for (std::thread& worker : workers) worker.join();
  const double images = kPasses * corpus.size();
  Throughput sum;
  for (const double seconds : wall) sum.wall += images / seconds;
  sum.processor = threads * images /
                  std::accumulate(processor.begin(), processor.end(), 0.0);
  return sum;
}

Work Ours() {
  return [decoder = std::make_shared<ImageDecoder>(),
          out = std::make_shared<std::vector<uint8_t>>()](
             const CorpusImage& image) {
    const size_t bytes = size_t{3} * image.width * image.height;
    out->resize(std::max(out->size(), bytes));
    const absl::Status status =
        decoder->DecodeResized(image.bytes, image.header, image.width,
                               image.height, absl::MakeSpan(*out).first(bytes));
    if (status.ok()) return;
    std::cerr << status << std::endl;
    std::exit(1);
  };
}

Work LibjpegTurbo() {
  return [decoder = std::make_shared<PlainJpeg>()](const CorpusImage& image) {
    decoder->DecodeRows(image.bytes);
  };
}

void BM_ThreadScaling(benchmark::State& state) {
  const std::vector<CorpusImage> corpus = LoadImageCorpus(kClassDefault);
  const size_t threads = state.range(0);
  Throughput ours, plain, ours_one, plain_one;
  for (auto _ : state) {
    ours_one = Measure(corpus, 1, Ours);
    ours = Measure(corpus, threads, Ours);
    plain_one = Measure(corpus, 1, LibjpegTurbo);
    plain = Measure(corpus, threads, LibjpegTurbo);
  }
  state.counters["images/s"] = ours.wall;
  state.counters["efficiency"] = ours.wall / (threads * ours_one.wall);
  state.counters["efficiency_processor"] = ours.processor / ours_one.processor;
  state.counters["libjpeg_efficiency"] =
      plain.wall / (threads * plain_one.wall);
  state.counters["over_libjpeg"] = plain.wall / ours.wall;
}

// Powers of two, and all cores.
void Threads(benchmark::internal::Benchmark* benchmark) {
  const uint32_t all = Cores();
  for (uint32_t threads = 2; threads < all; threads *= 2) {
    benchmark->Arg(threads);
  }
  benchmark->Arg(all);
}
BENCHMARK(BM_ThreadScaling)
    ->ArgName("threads")
    ->Apply(Threads)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace ballast

BENCHMARK_MAIN();
