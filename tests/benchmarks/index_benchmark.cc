// Measures opening an index and the first steps that look samples up in it. The
// index has 10^7 samples of one image each, 650 MB, or
// BALLAST_BENCHMARK_SAMPLES of them. `cold` starts with none of it in the page
// cache, as far as the file system evicts it.

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "server/data/index/index_file.h"
#include "server/data/index/index_writer.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

constexpr uint64_t kSampleBytes = 100'000;
constexpr uint64_t kSamplesInFile = 10'000;

uint64_t NumSamples() {
  const char* text = std::getenv("BALLAST_BENCHMARK_SAMPLES");
  return text == nullptr ? 100'000 : std::strtoull(text, nullptr, 10);
}

IndexContents Contents(uint64_t samples) {
  IndexContents contents;
  contents.format = 1;
  for (uint64_t i = 0; i < samples; ++i) {
    if (i % kSamplesInFile == 0) {
      contents.files.push_back({"docs-" + std::to_string(contents.files.size()),
                                {kSamplesInFile * kSampleBytes, 0},
                                0});
    }
    IndexSampleRecord sample = {};
    sample.file = i / kSamplesInFile;
    sample.offset = i % kSamplesInFile * kSampleBytes;
    sample.length = kSampleBytes;
    sample.text_check = i * 0x9E3779B97F4A7C15;
    sample.first_image = i;
    sample.num_images = 1;
    sample.text_tokens = 100 + i * 37 % 400;
    sample.label_tokens = 50;
    contents.samples.push_back(sample);
    contents.images.push_back({static_cast<uint32_t>(300 + i * 53 % 200),
                               static_cast<uint32_t>(600 + i * 101 % 900)});
  }
  return contents;
}

// Removes the file when the program ends.
class IndexOnDisk {
 public:
  IndexOnDisk() {
    const char* folder = std::getenv("TEST_TMPDIR");
    path_ = std::string(folder == nullptr ? "/tmp" : folder) +
            "/index_benchmark." + std::to_string(getpid()) + ".index";
    if (!WriteIndex(path_, Contents(NumSamples())).ok()) std::abort();
  }
  ~IndexOnDisk() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

  // Evicts the file from the page cache, or reads all of it.
  void Cache(bool cached) const {
    const int descriptor = open(path_.c_str(), O_RDONLY);
    posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    std::vector<char> buffer(1 << 20);
    while (cached && read(descriptor, buffer.data(), buffer.size()) > 0) {
    }
    close(descriptor);
  }

 private:
  std::string path_;
};

const IndexOnDisk& Index() {
  static const IndexOnDisk index;
  return index;
}

std::shared_ptr<const IndexFile> Open() {
  auto opened = IndexFile::Open(Index().path());
  if (!opened.ok()) std::abort();
  return *std::move(opened);
}

// Bytes that this process has read from the disk.
uint64_t DiskBytes() {
  std::ifstream io("/proc/self/io");
  std::string key;
  uint64_t value = 0;
  while (io >> key >> value) {
    if (key == "read_bytes:") return value;
  }
  return 0;
}

// Opens the index and schedules `steps` steps of `samples` samples each.
void Start(benchmark::State& state, uint32_t steps) {
  const bool cold = state.range(0) != 0;
  const uint32_t samples = state.range(1);
  const v1::Config config =
      JobConfig(samples / 8, samples / 8, samples, samples);
  Index().Cache(!cold);
  uint64_t read = 0;
  for (auto _ : state) {
    state.PauseTiming();
    if (cold) Index().Cache(false);
    const uint64_t before = DiskBytes();
    state.ResumeTiming();
    std::shared_ptr<const IndexFile> index = Open();
    if (steps > 0) {
      const auto scheduler = Scheduler::Create(config, {index.get()});
      for (uint32_t step = 0; step < steps; ++step) {
        if (!(*scheduler)->Schedule(step).ok()) std::abort();
      }
    }
    state.PauseTiming();
    read += DiskBytes() - before;
    index.reset();
    state.ResumeTiming();
  }
  state.counters["disk_MB"] =
      static_cast<double>(read) / 1e6 / static_cast<double>(state.iterations());
}

void BM_Open(benchmark::State& state) { Start(state, 0); }
BENCHMARK(BM_Open)
    ->ArgNames({"cold", "samples"})
    ->Args({0, 64})
    ->Args({1, 64})
    ->Iterations(5)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

void BM_FirstSteps(benchmark::State& state) { Start(state, 4); }
BENCHMARK(BM_FirstSteps)
    ->ArgNames({"cold", "samples"})
    ->ArgsProduct({{0, 1}, {64, 1024, 16384, 131072}})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

uint64_t LookUp(const IndexFile& index, uint64_t ordinal) {
  const absl::StatusOr<IndexedSample> sample = index.sample(ordinal);
  if (!sample.ok()) std::abort();
  return sample->text_tokens + sample->media.images()[0].height;
}

uint64_t LookUpAll(const IndexFile& index) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < index.size(); ++i) sum += LookUp(index, i);
  return sum;
}

// Schedules a step whose samples have all been looked up before.
void BM_WarmStep(benchmark::State& state) {
  const uint32_t samples = state.range(0);
  const std::shared_ptr<const IndexFile> index = Open();
  const v1::Config config =
      JobConfig(samples / 8, samples / 8, samples, samples);
  const auto scheduler = Scheduler::Create(config, {index.get()});
  LookUpAll(*index);
  uint64_t step = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize((*scheduler)->Schedule(step++));
  }
}
BENCHMARK(BM_WarmStep)
    ->ArgName("samples")
    ->Arg(16384)
    ->Unit(benchmark::kMillisecond);

// Looks samples up in a shuffled order, all looked up before.
void BM_LookUp(benchmark::State& state) {
  const std::shared_ptr<const IndexFile> index = Open();
  uint64_t sum = LookUpAll(*index);
  uint64_t ordinal = 0;
  for (auto _ : state) {
    sum += LookUp(*index, ordinal);
    // Coprime to powers of ten.
    ordinal = (ordinal + 7'777'777'777) % index->size();
  }
  benchmark::DoNotOptimize(sum);
}
BENCHMARK(BM_LookUp);

}  // namespace
}  // namespace ballast

BENCHMARK_MAIN();
