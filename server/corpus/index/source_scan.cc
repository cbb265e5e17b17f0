#include "server/corpus/index/source_scan.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "server/config/path_pattern.h"
#include "server/corpus/energon/energon_folder.h"
#include "server/corpus/index/progress_meter.h"
#include "server/corpus/jsonl/media_root.h"
#include "server/corpus/make_source.h"
#include "server/corpus/parquet/parquet_columns.h"
#include "server/storage/storage.h"

namespace ballast {
namespace {

// Files of a store that are scanned at the same time.
constexpr uint32_t kStoreThreads = 32;

absl::StatusOr<ReadFile> MakeReadFile(const v1::Source& source,
                                      absl::string_view directory) {
  BALLAST_RETURN_IF_ERROR(CheckFormatIsRead(source));
  if (source.format() == v1::Source::FORMAT_JSONL) {
    BALLAST_ASSIGN_OR_RETURN(
        MediaRoot media,
        MediaRoot::Create(ResolvePath(directory, source.media_root())));
    return [media = std::move(media)](const File& file, FileScanner& scanner) {
      return ScanJsonl(file, media, scanner);
    };
  }
  if (source.format() == v1::Source::FORMAT_PARQUET) {
    BALLAST_ASSIGN_OR_RETURN(
        MediaRoot media,
        MediaRoot::Create(ResolvePath(directory, source.media_root())));
    return [columns = ParquetColumnsOf(source), media = std::move(media)](
               const File& file, FileScanner& scanner) {
      return ScanParquet(file, columns, media, scanner);
    };
  }
  if (source.format() == v1::Source::FORMAT_ENERGON) {
    BALLAST_ASSIGN_OR_RETURN(EnergonFolder folder,
                             OpenEnergonFolder(source, directory));
    absl::flat_hash_map<std::string, EnergonShard> shards;
    for (const EnergonShard& shard : folder.shards) {
      shards.emplace(folder.ShardPath(shard), shard);
    }
    return [folder = std::move(folder), shards = std::move(shards)](
               const File& file, FileScanner& scanner) {
      const auto shard = shards.find(file.path());
      if (shard == shards.end()) {
        return absl::AbortedError(
            absl::StrCat(file.path(),
                         ": the folder's split changed while it was indexed; "
                         "index it again"));
      }
      return ScanEnergon(file, folder, shard->second, scanner);
    };
  }
  return ScanWebDataset;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SourceScan>> SourceScan::Create(
    const v1::Source& source, absl::string_view directory,
    const IndexOptions* options) {
  BALLAST_RETURN_IF_ERROR(CheckFormatIsRead(source));
  BALLAST_ASSIGN_OR_RETURN(std::vector<SourceFile> files,
                           ListSourceFiles(source, directory));
  BALLAST_ASSIGN_OR_RETURN(ReadFile read_file, MakeReadFile(source, directory));
  return std::unique_ptr<SourceScan>(new SourceScan(
      std::move(files), std::move(read_file), source, directory, options));
}

absl::Status SourceScan::Run(absl::Span<const size_t> wanted,
                             const OnScan& on_scan) {
  std::vector<std::string> paths;
  for (const size_t number : wanted) paths.push_back(files_[number].path);
  BALLAST_ASSIGN_OR_RETURN(const std::vector<FileStamp> stamps,
                           Storage::OfProcess().StampAll(paths));
  uint64_t bytes = 0;
  for (const FileStamp& stamp : stamps) bytes += stamp.size;
  ProgressMeter progress(bytes, options_->progress);
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  Mutex mutex;  // of on_scan
  // Each entry is written by one thread and read after all threads have ended.
  std::vector<absl::Status> results(wanted.size());
  // Takes files in order, so every file before one that failed was taken.
  const auto work = [&] {
    while (!failed) {
      const size_t i = next++;
      if (i >= wanted.size()) return;
      absl::StatusOr<FileScan> scan = ScanFile(files_[wanted[i]], &progress);
      if (scan.ok()) {
        MutexLock lock(&mutex);
        results[i] = on_scan(wanted[i], *std::move(scan));
      } else {
        results[i] = scan.status();
      }
      if (!results[i].ok()) failed = true;
    }
  };
  // Threads that read from a store wait most of the time.
  const uint32_t least =
      !paths.empty() && IsStoreUrl(paths[0]) ? kStoreThreads : 1;
  const size_t count = std::min<size_t>(
      std::max<uint32_t>(options_->threads, least), wanted.size());
  std::vector<std::thread> threads;
  for (size_t i = 1; i < count; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) BALLAST_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

absl::StatusOr<FileScan> SourceScan::ScanFile(const SourceFile& source,
                                              ProgressMeter* progress) const {
  BALLAST_ASSIGN_OR_RETURN(const File file,
                           Storage::OfProcess().Open(source.path));
  FileScanner scanner(source.name, file, options_, progress);
  const std::optional<uint64_t> known = reuse_.Find(source, file.stamp());
  if (known && !reuse_.HasMarks()) {
    scanner.SetKnownLengths([this, &known](const IndexSampleRecord& record) {
      return reuse_.FindLengths(*known, record);
    });
  }
  BALLAST_RETURN_IF_ERROR(known && reuse_.HasMarks()
                              ? Reuse(*known, scanner)
                              : read_file_(file, scanner));
  BALLAST_ASSIGN_OR_RETURN(const FileStamp now,
                           Storage::OfProcess().Stamp(source.path));
  if (!(now == file.stamp())) {
    return absl::AbortedError(absl::StrCat(
        source.path, ": changed while it was indexed; index it again"));
  }
  return std::move(scanner).Finish();
}

absl::Status SourceScan::Reuse(uint64_t number, FileScanner& scanner) const {
  const absl::Status status = reuse_.Scan(number, scanner);
  if (!absl::IsDataLoss(status)) return status;
  return absl::AbortedError(absl::StrCat(
      status.message(), "; `ballast-server index --rebuild` reads all anew"));
}

}  // namespace ballast
