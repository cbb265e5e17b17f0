// Measures the cost of counting and timing (docs/measurements/delivery.md,
// "Instruments"): one record, alone and while a thread on every core records
// into the same instruments; for comparison, instruments that are not sharded;
// and all records of one sample with one image.
//
//   bazel run --config=opt //tests/benchmarks:metrics_benchmark

#include <atomic>
#include <chrono>
#include <cstdint>

#include <benchmark/benchmark.h>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/instruments.h"
#include "common/machine.h"
#include "common/mutex.h"
#include "proto/schedule.pb.h"
#include "server/delivery/delivery_instruments.h"
#include "server/delivery/stall_watchdog.h"

namespace ballast {
namespace {

// Shared by all threads of a benchmark; never read.
BuildInstruments& Instruments() {
  static auto* instruments = new BuildInstruments;
  return *instruments;
}

ActiveSamples& Board() {
  static auto* board = new ActiveSamples(Clock::Real());
  return *board;
}

void BM_Clock(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(std::chrono::steady_clock::now());
  }
}

void BM_Counter(benchmark::State& state) {
  for (auto _ : state) Instruments().vision.media[MediumKind::kImage].Add();
}

void BM_Histogram(benchmark::State& state) {
  for (auto _ : state) {
    Instruments().decode.Record(absl::Milliseconds(3));
  }
}

void BM_Stopwatch(benchmark::State& state) {
  for (auto _ : state) Stopwatch(&Instruments().tokenise);
}

// Enters a sample on the board and removes it, with one stage between.
void BM_ActiveSamples(benchmark::State& state) {
  ActiveSample work;
  work.stage = "beginning";
  for (auto _ : state) {
    ActiveSamples::Scope entry(&Board(), work);
    entry.Stage("decoding an image");
  }
}

// An instrument without shards: every record moves one cache line to its core.
void BM_OneAtomicForAll(benchmark::State& state) {
  static std::atomic<uint64_t> count = 0;
  for (auto _ : state) count.fetch_add(1, std::memory_order_relaxed);
}

// An instrument with a lock.
void BM_OneLockForAll(benchmark::State& state) {
  static auto* mutex = new Mutex;
  static uint64_t count = 0;
  for (auto _ : state) {
    MutexLock lock(mutex);
    benchmark::DoNotOptimize(++count);
  }
}

// All records of FileSampleBuilder for a sample with one image and its text, in
// both modules; `strips` of 16 rows, which the resampler times one by one.
void BM_Sample(benchmark::State& state) {
  const int64_t strips = state.range(0);
  BuildInstruments& instruments = Instruments();
  for (auto _ : state) {
    {
      ActiveSample work;
      work.module = v1::MODULE_VISION;
      work.stage = "beginning";
      ActiveSamples::Scope entry(&Board(), work);
      entry.Stage("reading images");
      Stopwatch(&instruments.read_images).Stop();
      entry.Stage("decoding an image");
      const auto start = std::chrono::steady_clock::now();
      std::chrono::nanoseconds busy{0};
      for (int64_t strip = 0; strip < strips; ++strip) {
        const auto strip_start = std::chrono::steady_clock::now();
        busy += std::chrono::steady_clock::now() - strip_start;
      }
      const absl::Duration resize = absl::FromChrono(busy);
      instruments.decode.Record(Stopwatch::Since(start) - resize);
      instruments.resize.Record(resize);
      instruments.media_bytes.Add(200'000);
      instruments.vision.media[MediumKind::kImage].Add();
    }
    ActiveSample work;
    work.module = v1::MODULE_LANGUAGE;
    work.stage = "beginning";
    ActiveSamples::Scope entry(&Board(), work);
    entry.Stage("reading text");
    Stopwatch(&instruments.read_text).Stop();
    entry.Stage("tokenising");
    const Stopwatch tokenising(&instruments.tokenise);
    instruments.tokens.Add(300);
  }
}

// Runs with one thread, and with one on every core.
void Threads(benchmark::internal::Benchmark* benchmark) {
  benchmark->Threads(1);
  if (Cores() > 1) benchmark->Threads(static_cast<int>(Cores()));
}
BENCHMARK(BM_Clock)->Apply(Threads)->UseRealTime();
BENCHMARK(BM_Counter)->Apply(Threads)->UseRealTime();
BENCHMARK(BM_Histogram)->Apply(Threads)->UseRealTime();
BENCHMARK(BM_Stopwatch)->Apply(Threads)->UseRealTime();
BENCHMARK(BM_ActiveSamples)->Apply(Threads)->UseRealTime();
BENCHMARK(BM_OneAtomicForAll)->Apply(Threads)->UseRealTime();
BENCHMARK(BM_OneLockForAll)->Apply(Threads)->UseRealTime();
// A receipt of 1.1 megapixels has about 100 strips.
BENCHMARK(BM_Sample)
    ->ArgName("strips")
    ->Arg(0)
    ->Arg(100)
    ->Apply(Threads)
    ->UseRealTime();

}  // namespace
}  // namespace ballast

BENCHMARK_MAIN();
