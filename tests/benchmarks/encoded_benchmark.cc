// Measures what an image that travels encoded costs a server: reading its file
// from a tar in the system's memory into the block, comparing its content hash,
// and the block's checksum. Counters: processor time an image, and bytes.
// Yardstick: one pread of the same bytes to the same place.

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"
#include "common/blocking_calls.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "server/config/config_loader.h"
#include "server/data/guarded_source.h"
#include "server/data/open_source.h"
#include "server/data/tar/tar_reader.h"
#include "server/delivery/block.h"
#include "server/delivery/file_sample_builder.h"
#include "server/job/index_sources.h"
#include "server/job/job_setup.h"
#include "server/schedule/scheduler.h"
#include "server/text/model_text.h"
#include "server/text/model_tokenizer.h"
#include "tests/fakes/made_jpegs.h"

namespace ballast {
namespace {

constexpr uint32_t kImages = 16;
constexpr char kText[] =
    R"({"conversations": [{"from": "human", "value": "<image>What is it?"}, )"
    R"({"from": "gpt", "value": "A picture."}]})";

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status << "\n";
  std::abort();
}

template <typename T>
T Must(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

double ProcessorSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * time.tv_usec;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Pictures of 5 megapixels in files of some 0.5 MB, one a sample; a tar, its
// checked index and the builder of one block of all of them.
class EncodedJob {
 public:
  EncodedJob() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "encodedXXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    directory_ = pattern;
    WriteTar();
    config_ = std::make_unique<LoadedConfig>(Must(ParseConfig(
        absl::StrCat(
            "sources: [{name: docs, format: webdataset, path: docs.tar}]\n"
            "model: {profile: qwen2_5_vl, decode: device, max_pixels: 60000}\n"
            "batch: {global: ",
            kImages, ", micro: ", kImages,
            "}\ntopology: {modules: {vision: {dp: 1}, language: {dp: 1}}}\n"
            "serve: {threads: 2, memory: 64MiB, listen: ['unix:/unused']}\n"),
        "benchmark.yaml", directory_)));
    Must(IndexSources(*config_, {}));
    Must(CheckSources(*config_, {}));
    tokenizer_ = Must(MakeTokenizer("bytes"));
    v1::Config config = config_->config;
    text_ = Must(ModelText::Create(config.model(), tokenizer_.get()));
    source_ = GuardSource(
        Must(OpenAnySource(config.sources(0), config, directory_,
                           GetIndexKey(config, *tokenizer_))),
        std::make_shared<LiveValue<ReadPolicy>>(ReadPolicy()),
        std::make_shared<BlockingCalls>(2, Clock::Real()), Clock::Real());
    scheduler_ = Must(Scheduler::Create(config, {&source_->index()}));
    builder_ = std::make_unique<FileSampleBuilder>(
        config, FileSampleBuilder::Job{{source_.get()}, text_.get()});
    role_.set_module(v1::MODULE_VISION);
    memory_ = Must(AlignedBuffer::Create(Plan().plan.bytes()));
    std::fill(memory_.bytes().begin(), memory_.bytes().end(), 1);
  }
  ~EncodedJob() { std::filesystem::remove_all(directory_); }

  std::string tar() const { return directory_ + "/docs.tar"; }
  uint64_t bytes() const { return bytes_; }
  absl::Span<uint8_t> memory() { return memory_.bytes(); }

  // Builds the block, with its checksum if a rank would compare it. Aborts if
  // it fails.
  void Build(bool wants_checksum) {
    PlannedBlock planned = Plan();
    const absl::Span<uint8_t> memory =
        memory_.bytes().first(planned.plan.bytes());
    BlockBuild build(std::move(planned), builder_.get(), memory, wants_checksum,
                     [](absl::StatusOr<std::optional<uint64_t>> checksum) {
                       benchmark::DoNotOptimize(Must(std::move(checksum)));
                     });
    if (!build.Start()) return;
    for (uint32_t i = 0; i < build.items(); ++i) build.Run(i);
    if (!builder_->bad_samples().List().empty()) std::abort();
  }

 private:
  void WriteTar() {
    const auto writer = Must(TarWriter::Create(tar()));
    for (uint32_t i = 0; i < kImages; ++i) {
      MadeJpeg made;
      made.width = 2500 + 16 * i;
      made.height = 1900 + 8 * i;
      made.picture = MadeJpeg::Picture::kNoise;
      made.quality = 8 + static_cast<int>(i % 4);
      made.seed = i;
      const std::string file = MakeJpeg(made);
      bytes_ += file.size();
      Check(writer->Add(absl::StrCat(i, ".json"), kText));
      Check(writer->Add(absl::StrCat(i, ".jpg"), file));
    }
    Check(writer->Finish());
  }

  PlannedBlock Plan() const {
    PlannedBlock planned = Must(PlanForBuilding(
        Must(scheduler_->Schedule(0)), 0, role_, v1::DELIVERY_OFF,
        {config_->config.model().patch(), 3}));
    for (const uint32_t encoded : planned.encoded_bytes) {
      if (encoded == 0) std::abort();
    }
    return planned;
  }

  std::string directory_;
  uint64_t bytes_ = 0;
  std::unique_ptr<LoadedConfig> config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<const ModelText> text_;
  std::unique_ptr<SampleSource> source_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<FileSampleBuilder> builder_;
  v1::Role role_;
  AlignedBuffer memory_;
};

EncodedJob& Job() {
  static EncodedJob job;
  return job;
}

void Report(benchmark::State& state, double seconds) {
  const double images = static_cast<double>(state.iterations()) * kImages;
  state.counters["cpu_ms_image"] = 1e3 * seconds / images;
  state.counters["MB_image"] =
      1e-6 * static_cast<double>(Job().bytes()) / static_cast<double>(kImages);
}

void Build(benchmark::State& state, bool wants_checksum) {
  Job().Build(wants_checksum);
  const double before = ProcessorSeconds();
  for (auto _ : state) Job().Build(wants_checksum);
  Report(state, ProcessorSeconds() - before);
}

// As ranks on the server's node take them, in shared memory.
void Block(benchmark::State& state) { Build(state, false); }
// As others do, over the stream.
void BlockWithChecksum(benchmark::State& state) { Build(state, true); }

void PlainRead(benchmark::State& state) {
  const int file = open(Job().tar().c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) std::abort();
  const uint64_t bytes =
      std::min<uint64_t>(Job().bytes(), Job().memory().size());
  const uint64_t each = bytes / kImages;
  const double before = ProcessorSeconds();
  for (auto _ : state) {
    for (uint64_t at = 0; at + each <= bytes; at += each) {
      if (pread(file, Job().memory().data() + at, each,
                static_cast<off_t>(at)) != static_cast<ssize_t>(each)) {
        std::abort();
      }
    }
  }
  Report(state, ProcessorSeconds() - before);
  close(file);
}

BENCHMARK(PlainRead)->Unit(benchmark::kMillisecond);
BENCHMARK(Block)->Unit(benchmark::kMillisecond);
BENCHMARK(BlockWithChecksum)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ballast

BENCHMARK_MAIN();
