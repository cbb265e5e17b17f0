#include "server/corpus/index/index_builder.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/config/path_pattern.h"
#include "server/corpus/index/file_scan.h"
#include "server/corpus/index/index_reuse.h"
#include "server/corpus/index/index_writer.h"
#include "server/corpus/index/progress_meter.h"
#include "server/corpus/jsonl/media_root.h"
#include "server/corpus/parquet/parquet_columns.h"
#include "server/corpus/source_files.h"
#include "server/storage/storage.h"

namespace ballast {
namespace {

// Files of a store that are scanned at the same time.
constexpr uint32_t kStoreThreads = 32;

// Scans the files of one source, several at a time.
class Scan {
 public:
  // Reads a file that is not reused.
  using ReadFile = std::function<absl::Status(const File&, FileScanner&)>;

  Scan(const std::vector<SourceFile>* files, ReadFile read_file,
       const IndexReuse* reuse, const IndexOptions* options,
       ProgressMeter* progress)
      : files_(*files),
        read_file_(std::move(read_file)),
        reuse_(*reuse),
        options_(options),
        progress_(progress),
        results_(files->size(), absl::CancelledError()) {}

  // The scans in the order of the files, or the error of the first file that
  // has one.
  absl::StatusOr<std::vector<FileScan>> Run() {
    // Threads that read from a store wait most of the time.
    const uint32_t least = IsStoreUrl(files_[0].path) ? kStoreThreads : 1;
    const size_t count = std::min<size_t>(
        std::max<uint32_t>(options_->threads, least), files_.size());
    std::vector<std::thread> threads;
    for (size_t i = 1; i < count; ++i) threads.emplace_back([this] { Work(); });
    Work();
    for (std::thread& thread : threads) thread.join();
    std::vector<FileScan> scans;
    for (auto& result : results_) {
      BALLAST_RETURN_IF_ERROR(result.status());
      scans.push_back(*std::move(result));
    }
    return scans;
  }

 private:
  // Takes files in order, so every file before one that failed was taken.
  void Work() {
    while (!failed_) {
      const size_t number = next_++;
      if (number >= files_.size()) return;
      results_[number] = ScanFile(files_[number]);
      if (!results_[number].ok()) failed_ = true;
    }
  }

  absl::StatusOr<FileScan> ScanFile(const SourceFile& source) {
    BALLAST_ASSIGN_OR_RETURN(const File file,
                             Storage::OfProcess().Open(source.path));
    FileScanner scanner(source.name, file, options_, progress_);
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

  absl::Status Reuse(uint64_t number, FileScanner& scanner) {
    const absl::Status status = reuse_.Scan(number, scanner);
    if (!absl::IsDataLoss(status)) return status;
    return absl::AbortedError(absl::StrCat(
        status.message(), "; `ballast-server index --rebuild` reads all anew"));
  }

  const std::vector<SourceFile>& files_;
  const ReadFile read_file_;
  const IndexReuse& reuse_;
  const IndexOptions* options_;
  ProgressMeter* progress_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  // Each entry is written by one thread and read after all threads have ended.
  std::vector<absl::StatusOr<FileScan>> results_;
};

// Appends a file's scan to the contents of the index. Images are collected
// separately, as are those of samples that are left out.
void Append(FileScan scan, IndexContents& contents, ImageFacts& images,
            ImageFacts& left_out_images, IndexReport& report) {
  const auto file = static_cast<uint32_t>(contents.files.size());
  contents.files.push_back({std::move(scan.name), scan.stamp, scan.unreadable});
  const auto append = [file](const std::vector<IndexSampleRecord>& from,
                             const ImageFacts& from_images,
                             std::vector<IndexSampleRecord>& to,
                             ImageFacts& to_images) {
    for (IndexSampleRecord sample : from) {
      sample.file = file;
      sample.first_image += to_images.sizes.size();
      to.push_back(sample);
    }
    to_images.Append(from_images.view());
  };
  append(scan.samples, scan.images, contents.samples, images);
  append(scan.left_out, scan.left_out_images, contents.left_out,
         left_out_images);
  report.reused_files += scan.report.reused_files;
  report.reused_samples += scan.report.reused_samples;
  report.reused_lengths += scan.report.reused_lengths;
  report.known_bad += scan.report.known_bad;
  report.skipped += scan.report.skipped;
  report.filtered += scan.report.filtered;
  for (const auto& [extension, count] : scan.report.ignored) {
    report.ignored[extension] += count;
  }
  std::move(scan.report.bad.begin(), scan.report.bad.end(),
            std::back_inserter(report.bad));
}

// The first samples of the row groups, each at an offset of its own.
std::vector<uint64_t> GroupStarts(
    const std::vector<IndexSampleRecord>& samples) {
  std::vector<uint64_t> starts;
  for (uint64_t i = 0; i < samples.size(); ++i) {
    if (i > 0 && samples[i].file == samples[i - 1].file &&
        samples[i].offset == samples[i - 1].offset) {
      continue;
    }
    starts.push_back(i);
  }
  return starts;
}

}  // namespace

absl::StatusOr<IndexReport> BuildIndex(const v1::Source& source,
                                       absl::string_view directory,
                                       const IndexOptions& options) {
  const bool jsonl = source.format() == v1::Source::FORMAT_JSONL;
  const bool parquet = source.format() == v1::Source::FORMAT_PARQUET;
  if (!jsonl && !parquet && source.format() != v1::Source::FORMAT_WEBDATASET) {
    return absl::UnimplementedError(absl::StrCat(
        "source ", source.name(),
        ": only webdataset, jsonl and parquet sources have an index"));
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<SourceFile> files,
                           ListSourceFiles(source, directory));
  std::optional<MediaRoot> media;
  if (jsonl) {
    BALLAST_ASSIGN_OR_RETURN(
        media, MediaRoot::Create(ResolvePath(directory, source.media_root())));
  }
  std::vector<std::string> paths;
  for (const SourceFile& file : files) paths.push_back(file.path);
  BALLAST_ASSIGN_OR_RETURN(const std::vector<FileStamp> stamps,
                           Storage::OfProcess().StampAll(paths));
  uint64_t bytes = 0;
  for (const FileStamp& stamp : stamps) bytes += stamp.size;
  const IndexReuse reuse(source, directory, files, media ? &*media : nullptr,
                         &options);
  Scan::ReadFile read_file = ScanWebDataset;
  if (jsonl) {
    read_file = [&media](const File& file, FileScanner& scanner) {
      return ScanJsonl(file, *media, scanner);
    };
  } else if (parquet) {
    read_file = [columns = ParquetColumnsOf(source)](const File& file,
                                                     FileScanner& scanner) {
      return ScanParquet(file, columns, scanner);
    };
  }
  ProgressMeter progress(bytes, options.progress);
  BALLAST_ASSIGN_OR_RETURN(
      std::vector<FileScan> scans,
      Scan(&files, std::move(read_file), &reuse, &options, &progress).Run());

  IndexContents contents;
  contents.format = static_cast<uint32_t>(source.format());
  contents.digests = DigestsOf(source, directory, options.key);
  IndexReport report;
  ImageFacts images;
  ImageFacts left_out_images;
  for (FileScan& scan : scans) {
    Append(std::move(scan), contents, images, left_out_images, report);
  }
  if (parquet) contents.group_starts = GroupStarts(contents.samples);
  report.samples = contents.samples.size();
  report.images = images.sizes.size();
  for (const ImageMark mark : images.marks) report.marks.Add(mark);
  for (IndexSampleRecord& sample : contents.left_out) {
    sample.first_image += images.sizes.size();
  }
  images.Append(left_out_images.view());
  contents.images = std::move(images.sizes);
  contents.marks = std::move(images.marks);
  contents.content_hashes = std::move(images.content_hashes);
  if (options.accept && !options.accept(report)) return report;
  BALLAST_RETURN_IF_ERROR(WriteIndex(IndexPath(source, directory), contents));
  return report;
}

}  // namespace ballast
