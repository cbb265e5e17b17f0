#include "server/command/draw/dataset.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "common/machine.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "server/data/energon/energon_tar.h"
#include "server/data/parquet/parquet_tables.h"
#include "server/data/tar/tar_reader.h"
#include "server/files/file.h"

namespace ballast {

const char* ShardExtension(DatasetFormat format) {
  switch (format) {
    case DatasetFormat::kParquet:
      return "parquet";
    case DatasetFormat::kJsonl:
      return "jsonl";
    default:
      return "tar";
  }
}

namespace {

// The keys of the source that reads the dataset.
const char* SourceText(DatasetFormat format) {
  switch (format) {
    case DatasetFormat::kParquet:
      return "format: parquet, path: \"docs-*.parquet\"";
    case DatasetFormat::kJsonl:
      return "format: jsonl, path: \"docs-*.jsonl\"";
    case DatasetFormat::kEnergon:
      return "format: energon, path: \".\", energon: {crude: webdataset}";
    default:
      return "format: webdataset, path: \"docs-*.tar\"";
  }
}

}  // namespace

std::string DatasetConfigText(DatasetFormat format, Preset preset) {
  const bool is_audio = preset == Preset::kSpeech;
  // Four images of max_pixels take 4096 tokens, and the words of a generated
  // sample at most 5000, or 3500 with images: max_tokens is never reached.
  return absl::StrCat(
      R"(# A Ballast job on this dataset; written by make-corpus, yours to change.
# Paths are relative to this file.
sources:
  - {name: docs, )",
      SourceText(format), R"(}
order: {seed: 1234, shuffle: true}
model: {profile: )",
      is_audio ? "qwen2_5_omni" : "qwen2_5_vl",
      R"(, tokenizer: bytes, chat_template: chatml, min_pixels: 3136, max_pixels: 802816}
batch: {global: 32, micro: 16, max_tokens: 8192}
topology:
  modules: {)",
      is_audio ? "audio" : "vision", R"(: {dp: 4}, language: {dp: 4}}
balance: {delivery: exchange}
serve: {listen: ["127.0.0.1:7070"]}
)");
}

namespace {

namespace fs = std::filesystem;

// Number of samples generated, and held in memory, before any is written: a row
// group of Parquet.
constexpr uint64_t kChunk = 32;
// The number in a shard's name has six digits.
constexpr uint64_t kMaxShards = 1000000;

std::string ShardName(uint64_t shard, DatasetFormat format) {
  return absl::StrFormat("docs-%06d.%s", shard, ShardExtension(format));
}

// Generates samples [begin, end) on all cores.
std::vector<absl::StatusOr<DrawnSample>> DrawChunk(
    const DatasetOptions& options, uint64_t begin, uint64_t end) {
  std::vector<absl::StatusOr<DrawnSample>> samples(end - begin);
  RunAll(samples.size(), Cores(), [&](size_t i) {
    samples[i] = DrawSample(options.preset, options.seed, begin + i);
    return absl::OkStatus();
  }).IgnoreError();
  return samples;
}

// A shard that is being written.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;
  // Adds consecutive samples, from number `first` on.
  virtual absl::Status Add(absl::Span<const DrawnSample> samples,
                           uint64_t first) = 0;
  virtual absl::Status Finish() = 0;
};

class TarShard final : public ShardWriter {
 public:
  explicit TarShard(std::unique_ptr<TarWriter> tar) : tar_(std::move(tar)) {}

  absl::Status Add(absl::Span<const DrawnSample> samples,
                   uint64_t first) override {
    for (const DrawnSample& sample : samples) {
      BALLAST_RETURN_IF_ERROR(AddSample(sample, first++));
    }
    return absl::OkStatus();
  }
  absl::Status Finish() override { return tar_->Finish(); }

 private:
  absl::Status AddSample(const DrawnSample& sample, uint64_t number) {
    const std::string key = absl::StrFormat("%06d", number);
    const size_t images = sample.images.size();
    for (size_t i = 0; i < images; ++i) {
      const DrawnImage& image = sample.images[i];
      const std::string place = images > 1 ? absl::StrCat(".", i) : "";
      BALLAST_RETURN_IF_ERROR(
          tar_->Add(absl::StrCat(key, place, ".", FileExtension(image.format)),
                    image.bytes));
    }
    for (size_t i = 0; i < sample.clips.size(); ++i) {
      const std::string place =
          sample.clips.size() > 1 ? absl::StrCat(".", i) : "";
      BALLAST_RETURN_IF_ERROR(
          tar_->Add(absl::StrCat(key, place, ".wav"), sample.clips[i]));
    }
    return tar_->Add(absl::StrCat(key, ".json"), sample.conversation);
  }

  const std::unique_ptr<TarWriter> tar_;
};

class ParquetShard final : public ShardWriter {
 public:
  explicit ParquetShard(std::unique_ptr<ParquetWriter> parquet)
      : parquet_(std::move(parquet)) {}

  absl::Status Add(absl::Span<const DrawnSample> samples,
                   uint64_t first) override {
    std::vector<ParquetWriter::Row> rows;
    for (const DrawnSample& sample : samples) {
      ParquetWriter::Row& row = rows.emplace_back();
      row.turns = sample.turns;
      for (size_t i = 0; i < sample.images.size(); ++i) {
        const DrawnImage& image = sample.images[i];
        row.images.push_back(
            {absl::StrFormat("%06d.%d.%s", first, i,
                             std::string(FileExtension(image.format))),
             image.bytes});
      }
      ++first;
    }
    return parquet_->WriteGroup(rows);
  }
  absl::Status Finish() override { return parquet_->Finish(); }

 private:
  const std::unique_ptr<ParquetWriter> parquet_;
};

// Lines, and a file for each image in the folder `images`.
class LineShard final : public ShardWriter {
 public:
  LineShard(std::string directory, File lines)
      : directory_(std::move(directory)), lines_(std::move(lines)) {}

  absl::Status Add(absl::Span<const DrawnSample> samples,
                   uint64_t first) override {
    for (const DrawnSample& sample : samples) {
      BALLAST_RETURN_IF_ERROR(AddSample(sample, first++));
    }
    return absl::OkStatus();
  }
  absl::Status Finish() override { return absl::OkStatus(); }

 private:
  absl::Status AddSample(const DrawnSample& sample, uint64_t number) {
    std::vector<std::string> paths;
    for (const DrawnImage& image : sample.images) {
      paths.push_back(
          absl::StrFormat("images/%06d.%d.%s", number, paths.size(),
                          std::string(FileExtension(image.format))));
      BALLAST_ASSIGN_OR_RETURN(
          File file, File::Create(absl::StrCat(directory_, "/", paths.back())));
      BALLAST_RETURN_IF_ERROR(file.Write(image.bytes));
    }
    absl::string_view rest = sample.conversation;
    if (!absl::ConsumePrefix(&rest, "{")) {
      return absl::InternalError("a drawn conversation is no JSON object");
    }
    std::vector<std::string> clips;
    if (!sample.clips.empty()) {
      std::error_code error;
      const std::string folder = absl::StrCat(directory_, "/audio");
      fs::create_directories(folder, error);
      if (error) return FileError(error.value(), "make the directory", folder);
    }
    for (const std::string& wav : sample.clips) {
      clips.push_back(
          absl::StrFormat("audio/%06d.%d.wav", number, clips.size()));
      BALLAST_ASSIGN_OR_RETURN(
          File file, File::Create(absl::StrCat(directory_, "/", clips.back())));
      BALLAST_RETURN_IF_ERROR(file.Write(wav));
    }
    const auto list = [](const char* key,
                         const std::vector<std::string>& files) {
      return files.empty()
                 ? ""
                 : absl::StrCat("\"", key, "\": [\"",
                                absl::StrJoin(files, "\", \""), "\"], ");
    };
    return lines_.Write(absl::StrCat("{", list("image", paths),
                                     list("audio", clips), rest, "\n"));
  }

  const std::string directory_;
  File lines_;
};

absl::StatusOr<std::unique_ptr<ShardWriter>> OpenShard(
    const std::string& directory, const std::string& path,
    DatasetFormat format) {
  if (format == DatasetFormat::kJsonl) {
    std::error_code error;
    const std::string images = absl::StrCat(directory, "/images");
    fs::create_directories(images, error);
    if (error) return FileError(error.value(), "make the directory", images);
    BALLAST_ASSIGN_OR_RETURN(File lines, File::Create(path));
    return std::make_unique<LineShard>(directory, std::move(lines));
  }
  if (format == DatasetFormat::kParquet) {
    BALLAST_ASSIGN_OR_RETURN(auto parquet, ParquetWriter::Create(path));
    return std::make_unique<ParquetShard>(std::move(parquet));
  }
  BALLAST_ASSIGN_OR_RETURN(auto tar, TarWriter::Create(path));
  return std::make_unique<TarShard>(std::move(tar));
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
      absl::StrCat(options.directory, "/", ShardName(shard, options.format));
  const std::string part = absl::StrCat(path, ".part");
  BALLAST_ASSIGN_OR_RETURN(const auto writer,
                           OpenShard(options.directory, part, options.format));
  const uint64_t first = shard * options.shard_samples;
  const uint64_t last =
      std::min<uint64_t>(options.samples, first + options.shard_samples);
  for (uint64_t begin = first; begin < last; begin += kChunk) {
    std::vector<DrawnSample> samples;
    for (auto& drawn :
         DrawChunk(options, begin, std::min(begin + kChunk, last))) {
      BALLAST_RETURN_IF_ERROR(drawn.status());
      report->media[MediumKind::kImage] += drawn->images.size();
      report->bytes += drawn->conversation.size();
      for (const DrawnImage& image : drawn->images) {
        report->bytes += image.bytes.size();
      }
      report->media[MediumKind::kAudio] += drawn->clips.size();
      for (const std::string& wav : drawn->clips) report->bytes += wav.size();
      samples.push_back(*std::move(drawn));
    }
    BALLAST_RETURN_IF_ERROR(writer->Add(samples, begin));
  }
  BALLAST_RETURN_IF_ERROR(writer->Finish());
  return Rename(part, path);
}

// Refuses a directory that contains shards beyond the `shards` new ones.
absl::Status CheckNoOthers(const std::string& directory, uint64_t shards,
                           DatasetFormat format) {
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!absl::StartsWith(name, "docs-") ||
        (!absl::EndsWith(name, ".tar") && !absl::EndsWith(name, ".parquet") &&
         !absl::EndsWith(name, ".jsonl"))) {
      continue;
    }
    // Names of equal length compare as their numbers do; names of another
    // length are not ours.
    if (name.size() == ShardName(0, format).size() &&
        absl::EndsWith(name, ShardExtension(format)) &&
        name < ShardName(shards, format)) {
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

// Makes a folder of Energon of the shards: the last one is for `val` if there
// are several.
absl::Status WriteMeta(const std::string& directory, uint64_t shards) {
  EnergonMeta meta;
  meta.folder = directory;
  meta.dataset = kCrudeDataset;
  for (uint64_t shard = 0; shard < shards; ++shard) {
    meta.shards.push_back(ShardName(shard, DatasetFormat::kEnergon));
  }
  const uint64_t train = std::max<uint64_t>(shards - 1, 1);
  meta.split = {{"train", {meta.shards.begin(), meta.shards.begin() + train}},
                {"val", {meta.shards.begin() + train, meta.shards.end()}},
                {"test", {}}};
  return WriteEnergonMeta(meta);
}

absl::Status WriteConfig(const DatasetOptions& options, bool* wrote) {
  const std::string& directory = options.directory;
  const std::string path = absl::StrCat(directory, "/ballast.yaml");
  std::error_code error;
  *wrote = !fs::exists(path, error) && !error;
  if (error) return FileError(error.value(), "look for", path);
  if (!*wrote) return absl::OkStatus();
  BALLAST_ASSIGN_OR_RETURN(File file, File::Create(path));
  return file.Write(DatasetConfigText(options.format, options.preset));
}

}  // namespace

absl::StatusOr<DatasetReport> WriteDataset(const DatasetOptions& options) {
  if (options.samples == 0 || options.shard_samples == 0) {
    return absl::InvalidArgumentError(
        "a dataset has at least one sample, and a shard too");
  }
  if (options.preset == Preset::kSpeech &&
      options.format == DatasetFormat::kParquet) {
    return absl::UnimplementedError(
        "audio is drawn as tars, JSON lines or Energon, not as Parquet");
  }
  DatasetReport report;
  report.shards = (options.samples - 1) / options.shard_samples + 1;
  if (report.shards > kMaxShards) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.samples, " samples make ", report.shards, " shards of ",
        options.shard_samples, "; at most ", kMaxShards, " are possible"));
  }
  std::error_code error;
  fs::create_directories(options.directory, error);
  if (error) {
    return FileError(error.value(), "make the directory", options.directory);
  }
  BALLAST_RETURN_IF_ERROR(
      CheckNoOthers(options.directory, report.shards, options.format));
  for (uint64_t shard = 0; shard < report.shards; ++shard) {
    BALLAST_RETURN_IF_ERROR(WriteShard(options, shard, &report));
    if (options.progress) {
      options.progress(
          std::min((shard + 1) * options.shard_samples, options.samples));
    }
  }
  if (options.format == DatasetFormat::kEnergon) {
    BALLAST_RETURN_IF_ERROR(WriteMeta(options.directory, report.shards));
  }
  BALLAST_RETURN_IF_ERROR(WriteConfig(options, &report.wrote_config));
  return report;
}

}  // namespace ballast
