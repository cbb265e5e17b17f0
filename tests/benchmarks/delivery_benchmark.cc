// Compares delivery with an upper bound: on the same node, one memcpy of the
// same bytes; over a stream, gRPC alone. docs/measurements/delivery.md says
// what each measures.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "proto/transport.h"
#include "tests/benchmarks/delivery_rig.h"

namespace ballast {
namespace {

constexpr double kMiB = 1 << 20;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// `ours` and `yardstick` in seconds, for the same `bytes`.
void Report(benchmark::State& state, std::vector<double> ours,
            std::vector<double> yardstick, double bytes) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) {
    ratios.push_back(yardstick[i] / ours[i]);
  }
  state.counters["MiB/s"] = bytes / kMiB / Median(ours);
  state.counters["yardstick_MiB/s"] = bytes / kMiB / Median(yardstick);
  state.counters["ratio"] = Median(ratios);
}

// Every client copies each of its blocks from shared memory to its own staging
// buffer and releases it. Yardstick: the same number of threads only copy the
// same bytes between the same places.
void SharedMemory(benchmark::State& state) {
  DeliveryRig rig(state.range(0));
  std::vector<std::vector<uint8_t>> staging(rig.clients());
  std::vector<std::vector<absl::Span<const uint8_t>>> places(rig.clients());
  std::vector<std::shared_ptr<const MemoryRegion>> regions(rig.clients());
  const auto copy = [&](uint32_t client, absl::Span<const uint8_t> bytes) {
    std::memcpy(staging[client].data(), bytes.data(), bytes.size());
    benchmark::DoNotOptimize(staging[client].data());
  };
  rig.Pull(true, [&](uint32_t client, const FetchedBlock& block) {
    places[client].push_back(block.bytes());
    regions[client] = block.region();
    staging[client].resize(
        std::max(staging[client].size(), block.bytes().size()));
  });
  const auto deliver = [&] {
    return rig.Pull(true, [&](uint32_t client, const FetchedBlock& block) {
      copy(client, block.bytes());
    });
  };
  const auto plain = [&] {
    return TimeTogether(
        rig.clients(),
        [&](uint32_t client,
            const std::function<void()>& ready) -> std::shared_ptr<void> {
          ready();
          for (const auto& place : places[client]) copy(client, place);
          return nullptr;
        });
  };
  std::vector<double> ours, yardstick;
  for (auto _ : state) {
    yardstick.push_back(plain());
    ours.push_back(deliver());
    state.SetIterationTime(ours.back());
  }
  Report(state, ours, yardstick,
         static_cast<double>(rig.bytes_a_client()) * rig.clients());
}

// Every client fetches each of its blocks over a stream, which assembles it in
// the client's memory and verifies its checksum, and releases it. Yardstick:
// the same number of raw streams of the same bytes, dropped on arrival.
void Stream(benchmark::State& state) {
  DeliveryRig rig(state.range(0));
  RawStreams raw(state.range(0));
  const uint64_t messages =
      (rig.bytes_a_client() + kMaxChunkBytes - 1) / kMaxChunkBytes;
  std::vector<double> ours, yardstick;
  for (auto _ : state) {
    // Compares seconds a byte, since neither counts the time before all were
    // ready.
    const uint64_t raw_bytes = (messages - 1) * kMaxChunkBytes;
    yardstick.push_back(raw.Pull(messages) / raw_bytes);
    const double seconds =
        rig.Pull(false, [](uint32_t, const FetchedBlock&) {});
    ours.push_back(seconds * DeliveryRig::kSteps / (DeliveryRig::kSteps - 1) /
                   rig.bytes_a_client());
    state.SetIterationTime(seconds);
  }
  Report(state, ours, yardstick, state.range(0));
}

// Processor time of this process, which has the server and its clients.
double ProcessorSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

// The same streams over TCP: through the relay, as a server has it, and to
// gRPC itself; and raw gRPC streams of the same bytes.
void Relayed(benchmark::State& state) {
  const auto clients = static_cast<uint32_t>(state.range(0));
  DeliveryRig relay(clients, Way::kRelay);
  DeliveryRig direct(clients, Way::kTcp);
  RawStreams raw(clients, Way::kTcp);
  const double bytes = static_cast<double>(relay.bytes_a_client()) * clients;
  const uint64_t messages =
      (relay.bytes_a_client() + kMaxChunkBytes - 1) / kMaxChunkBytes;
  struct Measured {
    const char* name;
    std::function<double()> pull;
    double share;  // of the bytes that the clock has
    std::vector<double> rates, processor;
  };
  const auto of_rig = [](DeliveryRig& rig) {
    return [&rig] { return rig.Pull(false, [](uint32_t, const auto&) {}); };
  };
  constexpr double kSteps = DeliveryRig::kSteps;
  Measured all[] = {
      {"relay", of_rig(relay), (kSteps - 1) / kSteps, {}, {}},
      {"direct", of_rig(direct), (kSteps - 1) / kSteps, {}, {}},
      {"raw",
       [&] { return raw.Pull(messages); },
       static_cast<double>(messages - 1) / static_cast<double>(messages),
       {},
       {}}};
  for (auto _ : state) {
    for (Measured& one : all) {
      const double processor = ProcessorSeconds();
      const double seconds = one.pull();
      one.processor.push_back((ProcessorSeconds() - processor) / bytes * 1024 *
                              kMiB);
      one.rates.push_back(bytes * one.share / kMiB / seconds);
      if (&one == all) state.SetIterationTime(seconds);
    }
  }
  for (const Measured& one : all) {
    state.counters[absl::StrCat(one.name, "_MiB/s")] = Median(one.rates);
    state.counters[absl::StrCat(one.name, "_cpu_s/GiB")] =
        Median(one.processor);
  }
}

// Measures Next for blocks that are ready in shared memory, with clients that
// take one every two milliseconds, like trainers that compute.
void HandOut(benchmark::State& state) {
  DeliveryRig rig(state.range(0));
  std::vector<double> next_us;
  for (auto _ : state) {
    state.SetIterationTime(rig.Pull(
        true,
        [](uint32_t, const FetchedBlock&) {
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        },
        &next_us));
  }
  std::sort(next_us.begin(), next_us.end());
  state.counters["median_us"] = next_us[next_us.size() / 2];
  state.counters["p99_us"] = next_us[next_us.size() * 99 / 100];
  state.counters["longest_us"] = next_us.back();
}

BENCHMARK(HandOut)->Arg(1)->Arg(8)->UseManualTime()->Unit(
    benchmark::kMillisecond);
BENCHMARK(SharedMemory)
    ->Arg(1)
    ->Arg(4)
    ->Arg(8)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(Relayed)->Arg(1)->Arg(4)->UseManualTime()->Unit(
    benchmark::kMillisecond);
BENCHMARK(Stream)->Arg(1)->Arg(4)->Arg(8)->UseManualTime()->Unit(
    benchmark::kMillisecond);

}  // namespace
}  // namespace ballast

BENCHMARK_MAIN();
