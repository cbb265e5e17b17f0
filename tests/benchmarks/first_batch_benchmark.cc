// Measures how soon a rank that connects to a running server has its first
// block, relative to the time to decode its images.
// docs/measurements/delivery.md says how.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "client/loader_client.h"
#include "proto/block/block_view.h"
#include "server/command/draw/dataset.h"
#include "server/config/config_loader.h"
#include "server/job/index_sources.h"
#include "server/job/job_setup.h"
#include "server/media/image/image.h"
#include "server/serve/service/server.h"

namespace ballast {
namespace {

using SteadyClock = std::chrono::steady_clock;

double Since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << "\n";
    std::abort();
  }
  return *std::move(value);
}

// A server over drawn receipts, and the same job opened a second time for
// reading.
class Job {
 public:
  explicit Job(uint32_t threads) : threads_(threads) {
    char path[] = "/tmp/ballast-bench-XXXXXX";
    if (mkdtemp(path) == nullptr) std::abort();
    directory_ = path;
    DatasetOptions options;
    options.directory = directory_;
    options.samples = 64;
    options.preset = Preset::kReceipts;
    Must(WriteDataset(options));
    LoadedConfig config = Must(LoadConfig(directory_ + "/ballast.yaml"));
    const std::string address = "unix:" + directory_ + "/s";
    v1::Serve& serve = *config.config.mutable_serve();
    serve.clear_listen();
    serve.add_listen(address);
    serve.set_threads(threads);
    serve.set_memory(uint64_t{256} << 20);
    serve.set_prefetch_steps(1);
    config.config.mutable_topology()->mutable_servers(0)->set_address(address);
    Must(IndexSources(config, {}));
    job_ = Must(OpenJob(config));
    server_ = Must(LoaderServer::Start(config));
    client_ = LoaderClient::Create(address);
    fingerprint_ = Must(client_->Attach({}, {})).fingerprint().hash();
  }
  ~Job() {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  // Fetches the block of rank 0 that step `step` begins with.
  std::unique_ptr<FetchedBlock> First(uint64_t step) {
    FetchRequest request;
    request.role.set_module(v1::MODULE_VISION);
    request.step = step;
    request.steps = 1;
    request.fingerprint = fingerprint_;
    const auto fetcher = Must(client_->OpenPull(request));
    return Must(fetcher->Fetch());
  }

  // Seconds to decode the images of `block`, whose files are in memory, on as
  // many threads as the server has.
  double Decode(const FetchedBlock& block) {
    struct Work {
      std::string file;
      ImageHeader header;
      ImageRecord image;
    };
    std::vector<Work> works;
    const BlockView view = Must(BlockView::Parse(block.bytes()));
    for (const SampleRecord& sample : view.samples()) {
      const SampleSource& source = *job_.sources[sample.source];
      const RawSample raw =
          *Must(source.Read(sample.ordinal, {.text = false, .images = true}));
      const auto sizes = source.index().sample(sample.ordinal)->media.images();
      const std::vector<const RawMedium*> files = raw.of(MediumKind::kImage);
      for (size_t i = 0; i < sizes.size(); ++i) {
        ImageHeader header = {};
        header.width = sizes[i].width;
        header.height = sizes[i].height;
        works.push_back(
            {std::string(files[i]->file()), header, view.images(sample)[i]});
      }
    }
    std::atomic<size_t> next = 0;
    const auto start = SteadyClock::now();
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < threads_; ++t) {
      threads.emplace_back([&] {
        ImageDecoder decoder;
        std::vector<uint8_t> pixels;
        for (size_t i = next++; i < works.size(); i = next++) {
          const Work& work = works[i];
          pixels.resize(uint64_t{3} * work.image.width * work.image.height);
          if (!decoder
                   .DecodeResized(work.file, work.header, work.image.width,
                                  work.image.height, absl::MakeSpan(pixels))
                   .ok()) {
            std::abort();
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return Since(start);
  }

 private:
  const uint32_t threads_;
  std::string directory_;
  OpenedJob job_;
  std::unique_ptr<LoaderServer> server_;
  std::unique_ptr<LoaderClient> client_;
  std::string fingerprint_;
};

void FirstBatch(benchmark::State& state) {
  Job job(state.range(0));
  job.First(0);
  std::vector<double> ratios;
  double seconds = 0, decode = 0;
  uint64_t step = 0;
  for (auto _ : state) {
    step += 1000;  // beyond what has been prepared
    const auto start = SteadyClock::now();
    const auto block = job.First(step);
    const double first = Since(start);
    const double decoding = job.Decode(*block);
    seconds += first;
    decode += decoding;
    ratios.push_back(first / decoding);
    state.SetIterationTime(first);
  }
  std::sort(ratios.begin(), ratios.end());
  state.counters["first_ms"] = seconds / ratios.size() * 1e3;
  state.counters["decode_ms"] = decode / ratios.size() * 1e3;
  state.counters["ratio"] = ratios[ratios.size() / 2];
}

BENCHMARK(FirstBatch)
    ->Arg(1)
    ->Arg(2)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ballast
