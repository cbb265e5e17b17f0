#include "server/command/draw/dataset.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/cores.h"
#include "common/status_macros.h"
#include "server/command/draw/dataset_config.h"
#include "server/corpus/file.h"
#include "server/corpus/tar/tar_writer.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

// Number of samples drawn, and held in memory, before any is written.
constexpr uint64_t kChunk = 32;
// The number in a shard's name has six digits.
constexpr uint64_t kMostShards = 1000000;

std::string ShardName(uint64_t shard) {
  return absl::StrFormat("docs-%06d.tar", shard);
}

// Draws samples [begin, end) on all cores.
std::vector<absl::StatusOr<DrawnSample>> DrawChunk(
    const DatasetOptions& options, uint64_t begin, uint64_t end) {
  std::vector<absl::StatusOr<DrawnSample>> samples(end - begin);
  std::atomic<uint64_t> next{begin};
  const auto draw = [&] {
    for (uint64_t number; (number = next.fetch_add(1)) < end;) {
      samples[number - begin] =
          DrawSample(options.preset, options.seed, number);
    }
  };
  std::vector<std::thread> helpers;
  for (uint64_t i = 1; i < std::min<uint64_t>(Cores(), end - begin); ++i) {
    helpers.emplace_back(draw);
  }
  draw();
  for (std::thread& helper : helpers) helper.join();
  return samples;
}

absl::Status AddSample(const DrawnSample& sample, uint64_t number,
                       TarWriter* tar, DatasetReport* report) {
  const std::string key = absl::StrFormat("%06d", number);
  const size_t images = sample.images.size();
  for (size_t i = 0; i < images; ++i) {
    const DrawnImage& image = sample.images[i];
    const std::string place = images > 1 ? absl::StrCat(".", i) : "";
    BALLAST_RETURN_IF_ERROR(
        tar->Add(absl::StrCat(key, place, ".", FileExtension(image.format)),
                 image.bytes));
    report->bytes += image.bytes.size();
  }
  report->images += images;
  report->bytes += sample.conversation.size();
  return tar->Add(absl::StrCat(key, ".json"), sample.conversation);
}

absl::Status Rename(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  return error ? FileError(error.value(), "rename a file to", to)
               : absl::OkStatus();
}

absl::Status WriteShard(const DatasetOptions& options, uint64_t shard,
                        DatasetReport* report) {
  const std::string path =
      absl::StrCat(options.directory, "/", ShardName(shard));
  const std::string part = absl::StrCat(path, ".part");
  BALLAST_ASSIGN_OR_RETURN(const auto tar, TarWriter::Create(part));
  const uint64_t first = shard * options.shard_samples;
  const uint64_t last =
      std::min<uint64_t>(options.samples, first + options.shard_samples);
  for (uint64_t begin = first; begin < last; begin += kChunk) {
    const auto samples =
        DrawChunk(options, begin, std::min(begin + kChunk, last));
    for (size_t i = 0; i < samples.size(); ++i) {
      BALLAST_RETURN_IF_ERROR(samples[i].status());
      BALLAST_RETURN_IF_ERROR(
          AddSample(*samples[i], begin + i, tar.get(), report));
    }
  }
  BALLAST_RETURN_IF_ERROR(tar->Finish());
  return Rename(part, path);
}

// Refuses a directory that contains shards beyond the `shards` new ones.
absl::Status CheckNoOthers(const std::string& directory, uint64_t shards) {
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!absl::StartsWith(name, "docs-") || !absl::EndsWith(name, ".tar")) {
      continue;
    }
    // Names of equal length compare as their numbers do; names of another
    // length are not ours.
    if (name.size() == ShardName(0).size() && name < ShardName(shards)) {
      continue;
    }
    return absl::FailedPreconditionError(
        absl::StrCat(directory, " already holds ", name,
                     ", which would be read as a part of the new dataset of ",
                     shards, " shards; remove it or choose another directory"));
  }
  if (error) return FileError(error.value(), "list", directory);
  return absl::OkStatus();
}

absl::Status WriteConfig(const std::string& directory, bool* wrote) {
  const std::string path = absl::StrCat(directory, "/ballast.yaml");
  std::error_code error;
  *wrote = !fs::exists(path, error) && !error;
  if (error) return FileError(error.value(), "look for", path);
  if (!*wrote) return absl::OkStatus();
  BALLAST_ASSIGN_OR_RETURN(File file, File::Create(path));
  return file.Write(DatasetConfigText());
}

}  // namespace

absl::StatusOr<DatasetReport> WriteDataset(const DatasetOptions& options) {
  if (options.samples == 0 || options.shard_samples == 0) {
    return absl::InvalidArgumentError(
        "a dataset has at least one sample, and a shard too");
  }
  DatasetReport report;
  report.shards = (options.samples - 1) / options.shard_samples + 1;
  if (report.shards > kMostShards) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.samples, " samples make ", report.shards, " shards of ",
        options.shard_samples, "; at most ", kMostShards, " are possible"));
  }
  std::error_code error;
  fs::create_directories(options.directory, error);
  if (error) {
    return FileError(error.value(), "make the directory", options.directory);
  }
  BALLAST_RETURN_IF_ERROR(CheckNoOthers(options.directory, report.shards));
  for (uint64_t shard = 0; shard < report.shards; ++shard) {
    BALLAST_RETURN_IF_ERROR(WriteShard(options, shard, &report));
    if (options.progress) {
      options.progress(
          std::min((shard + 1) * options.shard_samples, options.samples));
    }
  }
  BALLAST_RETURN_IF_ERROR(WriteConfig(options.directory, &report.wrote_config));
  return report;
}

}  // namespace ballast
