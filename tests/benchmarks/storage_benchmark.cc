// Bytes a second out of S3: Arrow's own parallel reads, ours with the check of
// the version, and the cache against local files; all from one server (rclone)
// in one run. Needs rclone (deploy/setup.sh --tests).
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <arrow/buffer.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>
#include <arrow/util/future.h>
#include <arrow/util/thread_pool.h>
#include <benchmark/benchmark.h>

#include "absl/strings/str_cat.h"
#include "server/files/storage.h"
#include "tests/integration/storage/s3_process.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr int kObjects = 4;
constexpr uint64_t kObjectBytes = uint64_t{16} << 20;
constexpr int kThreads = 16;

// An S3 server over a folder with kObjects objects; ends with the process.
class Server {
 public:
  static Server& Get() {
    static Server& server = *new Server;
    return server;
  }
  bool ok() const { return server_ != nullptr; }
  const std::string& address() const { return server_->address(); }
  const std::string& folder() const { return folder_; }
  std::string Path(int i) const {
    return absl::StrCat(folder_, "/root/bucket/", i, ".tar");
  }

  void Stop() {
    server_ = nullptr;
    if (!folder_.empty()) fs::remove_all(folder_);
  }

 private:
  Server() {
    if (S3Process::Program().empty()) return;
    std::string name = (fs::temp_directory_path() / "storageXXXXXX").string();
    folder_ = mkdtemp(name.data());
    fs::create_directories(folder_ + "/root/bucket");
    std::string bytes(kObjectBytes, '\0');
    for (int i = 0; i < kObjects; ++i) {
      uint64_t state = i + 1;
      for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes.replace(at, 8, reinterpret_cast<const char*>(&state), 8);
      }
      std::ofstream(Path(i), std::ios::binary) << bytes;
    }
    setenv("AWS_ACCESS_KEY_ID", S3Process::kId, 1);
    setenv("AWS_SECRET_ACCESS_KEY", S3Process::kSecret, 1);
    // A store knows its ETags. rclone hashes an object for each request unless
    // it may remember that nothing has changed.
    server_ = std::make_unique<S3Process>(
        folder_ + "/root", std::vector<std::string>{"--dir-cache-time", "1h"});
    if (!server_->Start()) server_ = nullptr;
  }

  std::string folder_;
  std::unique_ptr<S3Process> server_;
};

bool Skip(benchmark::State& state) {
  if (Server::Get().ok()) return false;
  state.SkipWithError("SKIPPED: no rclone; deploy/setup.sh --tests unpacks it");
  return true;
}

// Calls `read(object, offset)` for every range of `bytes`, by kThreads threads,
// in an order like a shuffled data set's.
void ReadAll(uint64_t bytes,
             const std::function<bool(int object, uint64_t offset)>& read,
             benchmark::State& state) {
  const uint64_t a_object = kObjectBytes / bytes;
  const uint64_t all = a_object * kObjects;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> failed{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (uint64_t i = next++; i < all; i = next++) {
        const uint64_t at = i * 7919 % all;  // a prime beyond all counts
        if (!read(static_cast<int>(at % kObjects), at / kObjects * bytes)) {
          failed = true;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failed) state.SkipWithError("a read failed");
}

void SetBytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * kObjectBytes * kObjects);
}

v1::Storage Settings() {
  v1::Storage settings;
  settings.mutable_s3()->set_endpoint("http://" + Server::Get().address());
  settings.mutable_s3()->set_region("us-east-1");
  settings.mutable_s3()->set_credentials("environment");
  settings.set_memory(1 << 20);
  settings.set_connections(kThreads);
  return settings;
}

// Arrow's own: ReadAsync on its pool of I/O threads.
void BM_ArrowReads(benchmark::State& state) {
  if (Skip(state)) return;
  const uint64_t bytes = state.range(0);
  Storage starts_s3;
  (void)starts_s3.Configure(Settings());
  (void)starts_s3.Stamp("s3://bucket/0.tar");
  (void)arrow::io::SetIOThreadPoolCapacity(kThreads);
  auto options =
      arrow::fs::S3Options::FromAccessKey(S3Process::kId, S3Process::kSecret);
  options.endpoint_override = Server::Get().address();
  options.scheme = "http";
  options.region = "us-east-1";
  const auto files = arrow::fs::S3FileSystem::Make(options).ValueOrDie();
  for (auto _ : state) {
    std::vector<std::shared_ptr<arrow::io::RandomAccessFile>> opened;
    for (int i = 0; i < kObjects; ++i) {
      opened.push_back(files->OpenInputFile(absl::StrCat("bucket/", i, ".tar"))
                           .ValueOrDie());
    }
    const uint64_t all = kObjectBytes / bytes * kObjects;
    std::vector<arrow::Future<std::shared_ptr<arrow::Buffer>>> reads;
    for (uint64_t i = 0; i < all; ++i) {
      const uint64_t at = i * 7919 % all;
      reads.push_back(
          opened[at % kObjects]->ReadAsync(at / kObjects * bytes, bytes));
      if (reads.size() < 4 * kThreads) continue;
      // Bounded memory, as any reader has.
      for (auto& read : reads) benchmark::DoNotOptimize(read.result());
      reads.clear();
    }
    for (auto& read : reads) benchmark::DoNotOptimize(read.result());
  }
  SetBytes(state);
}

void ReadSpans(Storage& storage, uint64_t bytes, benchmark::State& state) {
  std::vector<File> files;
  for (int i = 0; i < kObjects; ++i) {
    auto file = storage.Open(absl::StrCat("s3://bucket/", i, ".tar"));
    if (!file.ok()) {
      return state.SkipWithError(std::string(file.status().message()).c_str());
    }
    files.push_back(*std::move(file));
  }
  ReadAll(
      bytes,
      [&](int object, uint64_t offset) {
        FileView view(&files[object], ReadFrom::kDisk, offset);
        return view.Load({{offset, bytes}}).ok();
      },
      state);
}

void BM_StoreReads(benchmark::State& state) {
  if (Skip(state)) return;
  Storage storage;
  (void)storage.Configure(Settings());
  const uint64_t before = storage.counters().requests.value();
  for (auto _ : state) {
    // Opening an object is a request of Arrow's, too.
    for (int i = 0; i < kObjects; ++i) {
      (void)storage.Stamp(absl::StrCat("s3://bucket/", i, ".tar"));
    }
    ReadSpans(storage, state.range(0), state);
  }
  SetBytes(state);
  state.counters["requests"] = benchmark::Counter(
      static_cast<double>(storage.counters().requests.value() - before),
      benchmark::Counter::kAvgIterations);
}

// All from the cache: the first epoch filled it.
void BM_CachedReads(benchmark::State& state) {
  if (Skip(state)) return;
  v1::Storage settings = Settings();
  const std::string dir =
      absl::StrCat(Server::Get().folder(), "/cache", state.range(0));
  settings.mutable_cache()->set_dir(dir);
  settings.mutable_cache()->set_size(uint64_t{1} << 30);
  Storage storage;
  const absl::Status configured = storage.Configure(settings);
  if (!configured.ok()) return state.SkipWithError("no cache");
  ReadSpans(storage, state.range(0), state);
  const uint64_t requests = storage.counters().requests.value();
  for (auto _ : state) ReadSpans(storage, state.range(0), state);
  if (storage.counters().requests.value() != requests) {
    state.SkipWithError("a cached read made a request");
  }
  SetBytes(state);
}

void BM_LocalReads(benchmark::State& state) {
  if (Skip(state)) return;
  const uint64_t bytes = state.range(0);
  std::vector<File> files;
  for (int i = 0; i < kObjects; ++i) {
    files.push_back(*File::Open(Server::Get().Path(i)));
  }
  for (auto _ : state) {
    ReadAll(
        bytes,
        [&](int object, uint64_t offset) {
          const auto read = files[object].ReadAt(offset, bytes);
          benchmark::DoNotOptimize(read->data());
          return read.ok();
        },
        state);
  }
  SetBytes(state);
}

// The bytes of a sample of a photograph, and of one part of a row group.
#define BALLAST_SIZES ->Arg(1 << 20)->Arg(8 << 20)->UseRealTime()
BENCHMARK(BM_ArrowReads) BALLAST_SIZES;
BENCHMARK(BM_StoreReads) BALLAST_SIZES;
BENCHMARK(BM_CachedReads) BALLAST_SIZES;
BENCHMARK(BM_LocalReads) BALLAST_SIZES;

}  // namespace
}  // namespace ballast

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  ballast::Server::Get().Stop();
  return 0;
}
