// Where nvJPEG's time goes: files to planes with its backends, flags, sizes of
// batches around the number of engines and numbers of threads, without anything
// of ours around it. Prints a JSON object a line: images a second; for each
// image the processor time of parsing headers, of the call that decodes a batch
// and of the wait for it; in the end what the process's threads were executing,
// by a profiling timer.
//
// Full and short batches in turns show what nvJPEG's preparing for another size
// costs ("tail": images of a short one; "short": "anew" as it comes, "copies" a
// decoder for each of both sizes).
// "full_ms" and "short_ms" are the times of a call and its wait: that of a full
// batch after another of these, "after_ms" of one after a short one.
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

#include "tests/gpu/cpu_profile.h"
#include "tests/gpu/device_testing.h"
#include "tests/gpu/engine_files.h"
#include "tests/gpu/engine_sweep.h"
#include "trainer_shim/cuda/nvjpeg_decoder.h"

namespace ballast {
namespace {

// Sizes of batches to try where engines decode `full` images at a time.
std::vector<size_t> BatchesAround(size_t full) {
  return {full, full + 1, 2 * full, 2 * full + 2, 4 * full, 32};
}

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
    sum.Add(times[i]);
    status.Update(statuses[i]);
  }
  std::printf(
      "{\"files\": \"%s\", \"backend\": %d, \"flags\": %u, \"batch\": %zu, "
      "\"threads\": %zu, \"prepare\": %d, \"sorted\": %d, \"at_a_time\": %zu, "
      "\"tail\": %zu, \"short\": \"%s\", ",
      variant.files, variant.backend, variant.flags, variant.batch,
      variant.threads, variant.prepare, variant.sorted, workers[0]->at_a_time(),
      variant.tail, variant.of_short);
  if (!status.ok()) {
    std::printf("\"error\": \"%s\"}\n", std::string(status.message()).c_str());
    return;
  }
  const double us = 1e6 / static_cast<double>(sum.images);
  std::printf(
      "\"images_s\": %.0f, \"cpu_us\": %.0f, \"parse_us\": %.1f, "
      "\"submit_us\": %.0f, \"wait_us\": %.0f, \"submit_wall_us\": %.0f, "
      "\"wait_wall_us\": %.0f, \"full_ms\": %.2f",
      static_cast<double>(sum.images) / wall_s, cpu_s * us, sum.parse * us,
      sum.submit * us, sum.wait * us, sum.submit_wall * us, sum.wait_wall * us,
      sum.full.ms());
  if (variant.tail != 0) {
    std::printf(", \"after_ms\": %.2f, \"short_ms\": %.2f", sum.after.ms(),
                sum.tail.ms());
  }
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
    made.push_back({GetName(picture),
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
    const size_t full = Worker(*files, {.files = name}, 0).at_a_time();
    for (const size_t tail : {size_t{1}, (full + 1) / 2}) {
      for (const size_t threads : {1, 2}) {
        for (const char* of_short : {"anew", "copies"}) {
          Measure(*files,
                  {name, backend, flags, full, threads, nvjpeg::kCss444, false,
                   tail, of_short},
                  seconds, false);
        }
      }
    }
    for (const int prepare : prepares) {
      for (const bool sorted : {false, true}) {
        for (const size_t batch : BatchesAround(full)) {
          for (const size_t threads : {1, 2, 4}) {
            const Variant variant = {name,    backend, flags, batch,
                                     threads, prepare, sorted};
            const bool closely = batch == 2 * full && threads == 1 && !sorted;
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
