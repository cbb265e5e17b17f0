// Measures `model.decode` from the server to packed patches on the GPU, as one
// vision rank of a job sees it: images a second, processor time of server and
// rank together, bytes sent, the server's memory. Beside it nvJPEG's engines
// alone decode the same files to planes, in batches of 32. All alternate in one
// run; medians are printed, and a JSON object at the end.
//
//   whole_way_gpu_benchmark --images DIR [--rounds N]
//       --server NAME=ADDRESS,PID... [--way THREADSxIMAGES[xCHUNKS][u]]
//       [--latency NAME=ADDRESS,PID]
//       [--beside NAME=ADDRESS,PID]
//
// --server serves micro-batches of one size; --latency is asked for one batch
// after the other; --beside is pulled by a loop of matrix products of 200 ms a
// step, which also runs beside the parts of the GPU's work alone (SideWork). No
// block is pulled twice, which a server would have in memory still.
// tests/gpu/engines.py starts the servers.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/gpu/cpu_profile.h"
#include "tests/gpu/device_testing.h"
#include "tests/gpu/engines_alone.h"
#include "tests/gpu/matrix_products.h"
#include "tests/gpu/server_process.h"
#include "tests/gpu/side_work.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/cuda_trainer_shim.h"

namespace ballast {
namespace {

constexpr double kMeasured = 1.2;  // seconds of each round
constexpr double kWarm = 0.8;
constexpr double kFirst = 4;
constexpr double kStep = 0.2;         // seconds of matrix products
constexpr int kSteps = 8;             // of each round beside matrix products
constexpr double kBetweenChunks = 3;  // ms, as the engines need for one
constexpr int kMinRounds = 5;

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2;
}

// A way to use the JPEG engines: "1x14", a thread and chunks of 14 images, 0
// the default; "1x14x3", three chunks of a thread in flight; "1x14u", images
// not by size.
struct Way {
  size_t threads = 0;  // 0: the default
  size_t images = 0;
  size_t chunks = 0;  // 0: the default
  bool by_size = true;
};

Way ParseWay(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, 'x');
  return {std::stoul(parts.at(0)), std::stoul(parts.at(1)),
          parts.size() > 2 ? std::stoul(parts[2]) : 0,
          text.find('u') == std::string::npos};
}

std::unique_ptr<CudaTrainerShim> MakeShim(const ServerProcess& server,
                                          bool overlap, const Way& way = {}) {
  CudaTrainerShim::Options options;
  if (way.threads != 0) options.decoder.engines = way.threads;
  options.decoder.images = way.images;
  if (way.chunks != 0) options.decoder.chunks = way.chunks;
  options.decoder.by_size = way.by_size;
  // The server still has blocks of steps that were pulled before.
  static uint64_t first_step = 0;
  options.source.start_step = first_step += 1'000'000;
  options.servers.addresses = {server.address};
  options.source.role.set_module(v1::MODULE_VISION);
  // Blocks of pixels are copied from where the server wrote them, too. Much
  // more would be fetched ahead during the measurement.
  options.source.max_bytes = uint64_t{192} << 20;
  options.overlap = overlap;
  return OrDie(CudaTrainerShim::Create(std::move(options)));
}

// Pulls for `seconds`.
Result Pull(CudaTrainerShim* shim, const ServerProcess& server,
            cudaStream_t stream, const Event& packed, double seconds) {
  Result result;
  const JpegEngineCounts before = shim->decoded();
  const double rank = Seconds(CLOCK_PROCESS_CPUTIME_ID);
  const ProcessUse used = UseOf(server.pid);
  const double begin = Seconds(CLOCK_MONOTONIC);
  double images = 0;
  std::vector<double> next;
  double now = begin;
  while (now - begin < seconds) {
    const BatchRef<DeviceBatch> batch = OrDie(shim->Next(stream));
    OrDie(packed.Record(stream));
    OrDie(packed.Wait());
    images += static_cast<double>(batch->totals.images);
    result.bytes += static_cast<double>(batch->bytes_read);
    const double then = Seconds(CLOCK_MONOTONIC);
    next.push_back(1e3 * (then - now));
    now = then;
  }
  const JpegEngineCounts after = shim->decoded();
  result.images_s = images / (now - begin);
  result.rank_ms = 1e3 * (Seconds(CLOCK_PROCESS_CPUTIME_ID) - rank) / images;
  const ProcessUse use = UseOf(server.pid);
  result.server_ms = 1e3 * (use.seconds - used.seconds) / images;
  result.server_user_ms = 1e3 * (use.user - used.user) / images;
  result.server_system_ms = 1e3 * (use.system - used.system) / images;
  result.server_faults = (use.faults - used.faults) / images;
  result.bytes /= images;
  result.next_ms = Median(next);
  result.engines_busy =
      absl::ToDoubleSeconds(after.busy - before.busy) / (now - begin);
  result.by_hardware =
      static_cast<double>(after.by_hardware - before.by_hardware) / images;
  return result;
}

std::string Json(const std::string& name, const std::vector<Result>& results) {
  const auto median = [&](double Result::*member) {
    std::vector<double> values;
    for (const Result& result : results) values.push_back(result.*member);
    return Median(values);
  };
  char text[768];
  std::snprintf(
      text, sizeof(text),
      "\"%s\": {\"images_s\": %.1f, \"rank_cpu_ms\": %.4f, "
      "\"server_cpu_ms\": %.4f, \"server_user_ms\": %.3f, "
      "\"server_system_ms\": %.3f, \"server_faults\": %.2f, "
      "\"cpu_ms\": %.4f, \"bytes_image\": %.0f, "
      "\"next_ms\": %.3f, \"engine_threads_busy\": %.3f, "
      "\"by_hardware\": %.4f}",
      name.c_str(), median(&Result::images_s), median(&Result::rank_ms),
      median(&Result::server_ms), median(&Result::server_user_ms),
      median(&Result::server_system_ms), median(&Result::server_faults),
      median(&Result::rank_ms) + median(&Result::server_ms),
      median(&Result::bytes), median(&Result::next_ms),
      median(&Result::engines_busy), median(&Result::by_hardware));
  return text;
}

// One batch after the other, none made ahead: from the call of Next, with the
// block in the server's memory, to the patches.
std::string Latency(const ServerProcess& server, cudaStream_t stream,
                    const Event& packed) {
  const auto shim = MakeShim(server, /*overlap=*/false);
  std::vector<double> times;
  double images = 0;
  for (int i = 0; i < 60; ++i) {
    // Lets the block be staged: it is not to be waited for.
    const timespec pause = {0, 20'000'000};
    nanosleep(&pause, nullptr);
    const double begin = Seconds(CLOCK_MONOTONIC);
    const BatchRef<DeviceBatch> batch = OrDie(shim->Next(stream));
    OrDie(packed.Record(stream));
    OrDie(packed.Wait());
    if (i >= 10) times.push_back(1e3 * (Seconds(CLOCK_MONOTONIC) - begin));
    images = static_cast<double>(batch->totals.images);
  }
  char text[256];
  std::snprintf(text, sizeof(text),
                "\"latency_%s\": {\"images\": %.0f, \"median_ms\": %.2f, "
                "\"least_ms\": %.2f, \"most_ms\": %.2f}",
                server.name.c_str(), images, Median(times),
                *std::min_element(times.begin(), times.end()),
                *std::max_element(times.begin(), times.end()));
  return text;
}

// Steps of matrix products: without a batch, with one each, and beside each
// part of a batch's work on the GPU alone; in turns. How much slower steps are
// is the median over rounds.
std::string Beside(const ServerProcess& server, const std::string& folder,
                   cudaStream_t stream, const Event& packed, int rounds) {
  absl::StatusOr<MatrixProducts> products = MatrixProducts::Create(stream);
  if (!products.ok()) {
    return absl::StrCat("\"beside\": {\"skipped\": \"",
                        products.status().message(), "\"}");
  }
  const auto wait = [&] {
    OrDie(packed.Record(stream));
    OrDie(packed.Wait());
  };
  OrDie(products->Enqueue(100));
  wait();
  double begin = Seconds(CLOCK_MONOTONIC);
  OrDie(products->Enqueue(100));
  wait();
  const int count = std::max(
      1, static_cast<int>(100 * kStep / (Seconds(CLOCK_MONOTONIC) - begin)));
  const auto shim = MakeShim(server, /*overlap=*/true);
  BatchRef<DeviceBatch> batch = OrDie(shim->Next(stream));
  const auto images = static_cast<size_t>(batch->totals.images);
  batch = {};
  SideWork side(folder, images);
  using Part = std::function<void()>;
  const std::vector<std::pair<const char*, Part>> parts = {
      {"engines", [&] { side.Engines(); }},
      {"kernels", [&] { side.Kernels(kBetweenChunks); }},
      {"copies", [&] { side.Copies(); }}};
  // The time of the later steps; `part` runs beside each.
  const auto run = [&](CudaTrainerShim* next, const Part& part) {
    std::vector<double> times;
    for (int i = 0; i < kSteps; ++i) {
      begin = Seconds(CLOCK_MONOTONIC);
      BatchRef<DeviceBatch> held;
      if (next != nullptr) held = OrDie(next->Next(stream));
      OrDie(products->Enqueue(count));
      std::thread beside;
      if (part) beside = std::thread(part);
      wait();
      if (i >= 2) times.push_back(1e3 * (Seconds(CLOCK_MONOTONIC) - begin));
      if (part) beside.join();
    }
    return Median(times);
  };
  std::vector<double> alone, slower;
  std::map<std::string, std::vector<double>> slower_by;
  run(shim.get(), nullptr);
  for (int round = 0; round < rounds; ++round) {
    alone.push_back(run(nullptr, nullptr));
    slower.push_back(run(shim.get(), nullptr) / alone.back() - 1);
    for (const auto& [name, part] : parts) {
      slower_by[name].push_back(run(nullptr, part) / alone.back() - 1);
    }
  }
  char text[256];
  std::snprintf(text, sizeof(text),
                "\"beside\": {\"products\": %d, \"images\": %zu, "
                "\"rounds\": %d, \"alone_ms\": %.3f, \"slower\": %.5f",
                count, images, rounds, Median(alone), Median(slower));
  std::string json =
      absl::StrCat(text, ", \"all\": [", absl::StrJoin(slower, ", "), "]");
  // Without products: the time of each part by itself.
  const std::vector<std::pair<const char*, Part>> idle = {
      parts[0], {"kernels", [&] { side.Kernels(0); }}, parts[2]};
  for (const auto& [name, part] : idle) {
    std::vector<double> times;
    for (int i = 0; i < 10; ++i) {
      begin = Seconds(CLOCK_MONOTONIC);
      part();
      times.push_back(1e3 * (Seconds(CLOCK_MONOTONIC) - begin));
    }
    std::snprintf(text, sizeof(text),
                  ", \"%s\": {\"alone_ms\": %.3f, \"slower\": %.5f, "
                  "\"all\": [",
                  name, Median(times), Median(slower_by[name]));
    absl::StrAppend(&json, text, absl::StrJoin(slower_by[name], ", "), "]}");
  }
  return absl::StrCat(json, "}");
}

int Main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::string images;
  std::vector<ServerProcess> servers, latencies, besides;
  std::vector<std::pair<std::string, Way>> ways;
  int rounds = 3;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i];
    const std::string value = argv[i + 1];
    if (key == "--images") images = value;
    if (key == "--rounds") rounds = std::atoi(argv[i + 1]);
    if (key == "--way") ways.emplace_back(value, ParseWay(value));
    if (key == "--server") servers.push_back(ParseServer(value));
    if (key == "--latency") latencies.push_back(ParseServer(value));
    if (key == "--beside") besides.push_back(ParseServer(value));
  }
  if (images.empty()) {
    std::printf("needs servers: gpu_bundle/engines.sh starts them\n");
    return 0;
  }
  OrDie(cudaSetDevice(0), "choosing the device");
  const CudaStream stream = OrDie(CudaStream::Create());
  const Event packed = OrDie(Event::Create());
  std::vector<std::string> json;
  {
    EnginesAlone alone(images);
    json.push_back(absl::StrCat("\"megapixels\": ", alone.megapixels()));
    alone.Run(kWarm);
    // Until the server has written to all of its arena: page faults are costs
    // of its first minute.
    for (const ServerProcess& server : servers) {
      const auto shim = MakeShim(server, /*overlap=*/true);
      Pull(shim.get(), server, stream.get(), packed, kFirst);
    }
    std::map<std::string, std::vector<Result>> results;
    for (int round = 0; round < rounds; ++round) {
      results["engines_alone"].push_back(alone.Run(kMeasured));
      for (const ServerProcess& server : servers) {
        std::vector<std::pair<std::string, Way>> all = {{server.name, Way()}};
        for (const auto& [name, way] : ways) {
          // Where the server decodes there is one way.
          if (server.name == "host") break;
          all.emplace_back(absl::StrCat(server.name, "_", name), way);
        }
        for (const auto& [name, way] : all) {
          const auto shim = MakeShim(server, /*overlap=*/true, way);
          Pull(shim.get(), server, stream.get(), packed, kWarm);
          results[name].push_back(
              Pull(shim.get(), server, stream.get(), packed, kMeasured));
        }
      }
    }
    for (const ServerProcess& server : servers) {
      const auto shim = MakeShim(server, /*overlap=*/true);
      CpuProfile::Begin();
      Pull(shim.get(), server, stream.get(), packed, kMeasured);
      CpuProfile::End();
      CpuProfile::Print(server.name.c_str());
    }
    for (const auto& [name, each] : results) {
      json.push_back(Json(name, each));
      std::printf("%s\n", json.back().c_str());
    }
    for (const ServerProcess& server : servers) {
      json.push_back(absl::StrCat(
          "\"memory_", server.name,
          "\": {\"resident_mib\": ", StatusOf(server.pid, "VmRSS") / 1024,
          ", \"own_mib\": ", StatusOf(server.pid, "RssAnon") / 1024,
          ", \"arena_mib\": ", StatusOf(server.pid, "RssShmem") / 1024, "}"));
    }
  }
  for (const ServerProcess& server : latencies) {
    json.push_back(Latency(server, stream.get(), packed));
  }
  for (const ServerProcess& server : besides) {
    json.push_back(Beside(server, images, stream.get(), packed,
                          std::max(rounds, kMinRounds)));
  }
  std::printf("{%s}\n", absl::StrJoin(json, ", ").c_str());
  return 0;
}

}  // namespace
}  // namespace ballast

int main(int argc, char** argv) { return ballast::Main(argc, argv); }
