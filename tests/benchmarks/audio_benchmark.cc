// Measures plans of audio a second on one core, and seconds of audio for each
// second of processor time from a FLAC file to a model's features, its decoder
// process and this one together (compare_audio.py has librosa and transformers
// beside it).
//
//   audio_benchmark [--flac FILE] [GOOGLE BENCHMARK'S OPTIONS]

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "server/media/audio/audio_plan.h"
#include "server/media/audio/audio_reader.h"
#include "server/media/audio/log_mel.h"
#include "server/model/profiles.h"

namespace ballast {
namespace {

std::string* flac = new std::string;

void BM_Plan(benchmark::State& state, const std::string& name) {
  const v1::AudioFamily& family = *FindAudioFamily(name);
  uint64_t samples = 1;
  uint64_t tokens = 0;
  for (auto _ : state) {
    // 0.03 to 33 seconds.
    samples = (samples * 75 + 74) % 524287;
    const auto plan = PlanAudio(family, 500 + samples);
    tokens += plan.ok() ? plan->tokens : 0;
  }
  benchmark::DoNotOptimize(tokens);
  state.SetItemsProcessed(state.iterations());
}

void BM_Features(benchmark::State& state, const std::string& name) {
  const v1::AudioFamily& family = *FindAudioFamily(name);
  LogMel features = *LogMel::Create(family);
  std::vector<float> samples(10 * kModelRate);
  uint32_t random = 1;
  for (float& sample : samples) {
    random = random * 1664525 + 1013904223;
    sample = static_cast<float>(random >> 8) / (1 << 24) - 0.5F;
  }
  const AudioPlan plan = *PlanAudio(family, samples.size());
  for (auto _ : state) {
    benchmark::DoNotOptimize(*features.Compute(plan, samples, plan.frames));
  }
  state.counters["seconds_of_audio"] =
      benchmark::Counter(10.0 * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

// Processor time of this process and of those that it has reaped, in seconds.
double ProcessorTime() {
  double seconds = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used = {};
    getrusage(who, &used);
    for (const timeval& time : {used.ru_utime, used.ru_stime}) {
      seconds += static_cast<double>(time.tv_sec) +
                 1e-6 * static_cast<double>(time.tv_usec);
    }
  }
  return seconds;
}

void BM_FlacToFeatures(benchmark::State& state, const std::string& name) {
  const int fd = open(flac->c_str(), O_RDONLY | O_CLOEXEC);
  struct stat stat = {};
  if (fd < 0 || fstat(fd, &stat) != 0) {
    state.SkipWithError("no --flac FILE");
    return;
  }
  const AudioBytes file = {fd, 0, static_cast<uint64_t>(stat.st_size)};
  const v1::AudioFamily& family = *FindAudioFamily(name);
  LogMel features = *LogMel::Create(family);
  auto reader = std::make_unique<AudioReader>();
  // Starts the process.
  static_cast<void>(
      reader->ReadSamples(file, *reader->ReadFacts(file), {0, 1}));
  const double before = ProcessorTime();
  uint64_t samples = 0;
  for (auto _ : state) {
    const AudioFacts facts = *reader->ReadFacts(file);
    const AudioPlan plan = *PlanAudio(family, facts.samples);
    const auto audio = *reader->ReadSamples(file, facts, {0, plan.samples});
    benchmark::DoNotOptimize(*features.Compute(plan, audio, plan.frames));
    samples += facts.samples;
  }
  reader.reset();  // reaps the process
  state.counters["seconds_of_audio"] =
      static_cast<double>(samples) / kModelRate / (ProcessorTime() - before);
}

void Register() {
  for (const std::string& name : AudioFamilyNames()) {
    benchmark::RegisterBenchmark(("BM_Plan/" + name).c_str(), BM_Plan, name);
    benchmark::RegisterBenchmark(("BM_Features/" + name).c_str(), BM_Features,
                                 name);
  }
  if (flac->empty()) return;
  benchmark::RegisterBenchmark("BM_FlacToFeatures", BM_FlacToFeatures,
                               "qwen2_audio");
}

}  // namespace
}  // namespace ballast

int main(int argc, char** argv) {
  if (argc > 2 && std::strcmp(argv[1], "--flac") == 0) {
    *ballast::flac = argv[2];
    argc -= 2;
    for (int i = 1; i < argc; ++i) argv[i] = argv[i + 2];
  }
  ballast::Register();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
