#include "server/corpus/index/index_builder.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "server/corpus/index/image_facts.h"
#include "server/corpus/index/index_format.h"
#include "server/corpus/index/index_writer.h"
#include "server/corpus/index/source_scan.h"
#include "server/corpus/record_parser.h"
#include "server/corpus/source_files.h"

namespace ballast {
namespace {

struct AssembledIndex {
  IndexContents contents;
  IndexReport report;
};

// Appends a file's scan to the contents of the index. Images are collected
// separately, as are those of samples that are left out.
void Append(FileScan scan, IndexContents& contents, ImageFacts& images,
            ImageFacts& left_out_images, IndexReport& report) {
  const auto file = static_cast<uint32_t>(contents.files.size());
  contents.files.push_back(
      {std::move(scan.name), scan.stamp, scan.unreadable, scan.media_time_ns});
  const auto append = [file](const std::vector<IndexSampleRecord>& from,
                             const ImageFacts& from_images,
                             std::vector<IndexSampleRecord>& to,
                             ImageFacts& to_images) {
    const uint64_t first = to.size();
    for (IndexSampleRecord sample : from) {
      sample.file = file;
      sample.first_image += to_images.sizes.size();
      to.push_back(sample);
    }
    to_images.Append(from_images.view(), first);
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

// Puts the scans of a source's files, in their order, together. Equal scans
// give equal contents, wherever and in whatever order they were made. `format`
// is the source's v1::Source::Format; with `in_groups` rows at one offset are a
// group (Parquet). The contents' digests are left to the caller. Pure.
AssembledIndex AssembleIndex(uint32_t format, bool in_groups,
                             std::vector<FileScan> scans) {
  AssembledIndex result;
  IndexContents& contents = result.contents;
  IndexReport& report = result.report;
  contents.format = format;
  ImageFacts images;
  ImageFacts left_out_images;
  for (FileScan& scan : scans) {
    Append(std::move(scan), contents, images, left_out_images, report);
  }
  if (in_groups) contents.group_starts = GroupStarts(contents.samples);
  report.samples = contents.samples.size();
  report.images = images.sizes.size();
  for (const ImageMark mark : images.marks) report.marks.Add(mark);
  for (IndexSampleRecord& sample : contents.left_out) {
    sample.first_image += images.sizes.size();
  }
  report.videos = images.videos.size();
  images.Append(left_out_images.view(), contents.samples.size());
  contents.images = std::move(images.sizes);
  contents.marks = std::move(images.marks);
  contents.content_hashes = std::move(images.content_hashes);
  contents.videos = std::move(images.videos);
  contents.video_records = std::move(images.video_samples);
  contents.video_hashes = std::move(images.video_hashes);
  return result;
}

}  // namespace

absl::StatusOr<IndexReport> BuildIndex(const v1::Source& source,
                                       absl::string_view directory,
                                       const IndexOptions& options) {
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<SourceScan> scan,
                           SourceScan::Create(source, directory, &options));
  std::vector<size_t> all(scan->files().size());
  std::iota(all.begin(), all.end(), size_t{0});
  std::vector<FileScan> scans(all.size());
  BALLAST_RETURN_IF_ERROR(scan->Run(all, [&](size_t file, FileScan found) {
    scans[file] = std::move(found);
    return absl::OkStatus();
  }));
  return WriteAssembled(source, directory, options, std::move(scans));
}

absl::StatusOr<IndexReport> WriteAssembled(const v1::Source& source,
                                           absl::string_view directory,
                                           const IndexOptions& options,
                                           std::vector<FileScan> scans) {
  BALLAST_ASSIGN_OR_RETURN(const RecordFormat* format, FindFormat(source));
  AssembledIndex index = AssembleIndex(static_cast<uint32_t>(source.format()),
                                       format->in_groups, std::move(scans));
  index.contents.is_hashed = options.hash;
  index.contents.digests =
      DigestsOf(source, directory, options.key, !index.contents.videos.empty());
  if (!options.accept || options.accept(index.report)) {
    BALLAST_RETURN_IF_ERROR(
        WriteIndex(IndexPath(source, directory), index.contents));
  }
  return std::move(index.report);
}

}  // namespace ballast
