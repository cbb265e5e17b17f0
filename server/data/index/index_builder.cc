#include "server/data/index/index_builder.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "server/data/index/bad_records.h"
#include "server/data/index/index_writer.h"
#include "server/data/index/probe_media.h"
#include "server/files/path_pattern.h"
#include "server/files/storage.h"
#include "server/sample/index_format.h"

namespace ballast {
namespace {

// Files of a store that are scanned at the same time.
constexpr uint32_t kStoreThreads = 32;

// The place of a record in its file.
std::pair<uint64_t, uint32_t> GetPlace(const IndexSampleRecord& record) {
  return {record.offset, record.line};
}

}  // namespace

IndexReuse::IndexReuse(const v1::Source& source, absl::string_view directory,
                       const std::vector<SourceFile>& files,
                       const IndexOptions* options)
    : options_(options) {
  if (!options->reuse) return;
  auto index =
      IndexFile::OpenToReuse(OldIndexPath(source, directory, options->key));
  if (!index.ok()) return;
  digests_ =
      GetDigests(source, directory, options->key, (*index)->has_streams());
  if ((*index)->digests().sizes != digests_.sizes) return;
  if (!(*index)->HasMediaFacts() || !(*index)->Verify(nullptr).ok()) return;
  index_ = *std::move(index);
  absl::flat_hash_map<absl::string_view, const SourceFile*> by_place;
  for (const SourceFile& file : files) by_place.emplace(file.below, &file);
  // Indexed by the file numbers of the old index. Files that are gone are never
  // read.
  std::vector<SourceFile> known(index_->num_files());
  for (uint64_t i = 0; i < known.size(); ++i) {
    // The place is the name, or its end (IsNamed).
    absl::string_view name = index_->file_name(i);
    auto found = by_place.find(name);
    for (size_t slash = name.find('/');
         found == by_place.end() && slash != name.npos;
         slash = name.find('/')) {
      name.remove_prefix(slash + 1);
      found = by_place.find(name);
    }
    if (found == by_place.end()) continue;
    known[i] = *found->second;
    numbers_.emplace(known[i].below, i);
  }
  if (absl::StatusOr<std::vector<BadSample>> bad = ReadBadRecords(*index_);
      bad.ok()) {
    for (BadSample& one : *bad) {
      if (one.has_record) continue;
      std::vector<BadSample>& of_file = bad_[one.file];
      of_file.push_back(std::move(one));
    }
  }
  auto texts = MakeFileSource(source, directory, index_, std::move(known),
                              OpenFileCache::OfProcess());
  if (texts.ok()) {
    texts_ = *std::move(texts);
  } else {
    index_ = nullptr;
    numbers_.clear();
  }
}

std::optional<uint64_t> IndexReuse::Find(const SourceFile& file,
                                         const FileStamp& stamp) const {
  const auto found = numbers_.find(file.below);
  if (found == numbers_.end() ||
      !(index_->file_stamp(found->second) == stamp)) {
    return std::nullopt;
  }
  return found->second;
}

absl::Status IndexReuse::Scan(uint64_t number, FileScanner& scanner) const {
  Range kept = GetRecords(number, 0, index_->size());
  Range left_out = GetRecords(number, index_->size(), index_->num_records());
  uint64_t samples = 0;
  uint64_t lengths = 0;
  // Passes both kinds in the order of the file.
  while (kept.begin < kept.end || left_out.begin < left_out.end) {
    const bool is_kept =
        left_out.begin == left_out.end ||
        (kept.begin < kept.end && GetPlace(index_->record(kept.begin)) <
                                      GetPlace(index_->record(left_out.begin)));
    const uint64_t next = is_kept ? kept.begin++ : left_out.begin++;
    const std::optional<TextLengths> known =
        is_kept ? KnownLengths(next) : std::nullopt;
    if (known) {
      BALLAST_ASSIGN_OR_RETURN(const MediaFactsView facts, GetFacts(next));
      scanner.AddMeasured(index_->record(next), *known, facts);
      ++lengths;
    } else {
      BALLAST_RETURN_IF_ERROR(Measure(next, scanner));
    }
    ++samples;
    scanner.Advance(index_->record(next).offset + index_->record(next).length);
  }
  std::vector<BadSample> known;
  if (const auto bad = bad_.find(index_->file_name(number));
      bad != bad_.end()) {
    known = bad->second;
    for (BadSample& one : known) one.file = scanner.name();
  }
  scanner.AddReused(samples, lengths, index_->file_unreadable(number),
                    std::move(known), index_->media_time_ns(number));
  return absl::OkStatus();
}

IndexReuse::Range IndexReuse::GetRecords(uint64_t file, uint64_t begin,
                                         uint64_t end) const {
  // The first record in [low, end) whose file is not before `wanted`.
  const auto first = [&](uint64_t low, uint64_t wanted) {
    uint64_t high = end;
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      if (index_->record(middle).file < wanted) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  const uint64_t from = first(begin, file);
  return {from, first(from, file + 1)};
}

std::optional<TextLengths> IndexReuse::KnownLengths(uint64_t number) const {
  if (index_->digests().lengths != digests_.lengths) return std::nullopt;
  const IndexSampleRecord& record = index_->record(number);
  TextLengths lengths;
  lengths.text_tokens = record.text_tokens;
  lengths.label_tokens = record.label_tokens;
  lengths.first_text_tokens = record.first_text_tokens;
  lengths.limited = record.limited != 0;
  if (index_->digests().limits == digests_.limits) return lengths;
  if (lengths.limited || !options_->lengths_hold ||
      !options_->lengths_hold(lengths, index_->images(number))) {
    return std::nullopt;
  }
  return lengths;
}

std::optional<TextLengths> IndexReuse::FindSample(
    uint64_t number, const IndexSampleRecord& record, MediaFacts* facts) const {
  Range range = GetRecords(number, 0, index_->size());
  // Narrows the range to the first record at or after the wanted place.
  const uint64_t end = range.end;
  const auto place = [](const IndexSampleRecord& each) {
    return std::pair(each.offset, each.line);
  };
  while (range.begin < range.end) {
    const uint64_t middle = range.begin + (range.end - range.begin) / 2;
    if (place(index_->record(middle)) < place(record)) {
      range.begin = middle + 1;
    } else {
      range.end = middle;
    }
  }
  if (range.begin == end) return std::nullopt;
  const IndexSampleRecord& found = index_->record(range.begin);
  if (place(found) != place(record) || found.length != record.length ||
      found.text_check != record.text_check ||
      found.image_check != record.image_check) {
    return std::nullopt;
  }
  KeepChecks(range.begin, facts);
  return KnownLengths(range.begin);
}

void IndexReuse::KeepChecks(uint64_t number, MediaFacts* facts) const {
  // Of other rules, or without hashes of all images in this build, there is
  // nothing to compare.
  const absl::Span<const ImageMark> marks = index_->marks(number);
  const absl::Span<const uint64_t> hashes = index_->hashes(number);
  if (!HasMarks() || hashes.size() != facts->marks.size() ||
      facts->content_hashes.size() != facts->marks.size()) {
    return;
  }
  for (size_t i = 0; i < marks.size(); ++i) {
    if (marks[i].check() == ImageCheckResult::kClean &&
        hashes[i] == facts->content_hashes[i]) {
      facts->marks[i] = marks[i];
    }
  }
}

absl::Status IndexReuse::Measure(uint64_t number, FileScanner& scanner) const {
  const IndexSampleRecord& record = index_->record(number);
  BALLAST_ASSIGN_OR_RETURN(const MediaFactsView facts, GetFacts(number));
  BALLAST_ASSIGN_OR_RETURN(
      FaultOr<RawSample> sample,
      texts_->ReadNumber(number, {.text = true, .images = false}));
  if (!sample.ok()) return absl::DataLossError(sample.fault().reason());
  // A line's or row's number, or what follows the file in the name.
  absl::string_view key = sample->name;
  const std::string line = absl::StrCat(record.line);
  if (record.line != 0) {
    key = line;
  } else {
    absl::ConsumePrefix(&key, absl::StrCat(scanner.name(), ": "));
  }
  sample->facts = GetMedia(facts);
  return scanner.Add(record, key, *sample, facts);
}

absl::StatusOr<MediaFactsView> IndexReuse::GetFacts(uint64_t number) const {
  BALLAST_ASSIGN_OR_RETURN(const absl::Span<const StreamFacts> streams,
                           index_->streams(number));
  MediaFactsView facts = {index_->images(number), index_->marks(number),
                          index_->hashes(number), streams};
  BALLAST_ASSIGN_OR_RETURN(facts.times, index_->times(number));
  if (index_->is_hashed()) {
    BALLAST_ASSIGN_OR_RETURN(facts.stream_hashes,
                             index_->stream_hashes(number));
  }
  return facts;
}

absl::StatusOr<std::unique_ptr<SourceScan>> SourceScan::Create(
    const v1::Source& source, absl::string_view directory,
    const IndexOptions* options) {
  BALLAST_ASSIGN_OR_RETURN(std::vector<SourceFile> files,
                           ListSourceFiles(source, directory));
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<RecordParser> parser,
                           MakeParser(source, directory));
  return std::unique_ptr<SourceScan>(new SourceScan(
      std::move(files), std::move(parser), source, directory, options));
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
  Mutex mutex;  // of on_scan
  // Threads that read from a store wait most of the time.
  const uint32_t least =
      !paths.empty() && IsStoreUrl(paths[0]) ? kStoreThreads : 1;
  return RunAll(wanted.size(), std::max<uint32_t>(options_->threads, least),
                [&](size_t i) -> absl::Status {
                  BALLAST_ASSIGN_OR_RETURN(
                      FileScan scan, ScanFile(files_[wanted[i]], &progress));
                  MutexLock lock(&mutex);
                  return on_scan(wanted[i], std::move(scan));
                });
}

absl::StatusOr<FileScan> SourceScan::ScanFile(const SourceFile& source,
                                              ProgressMeter* progress) const {
  BALLAST_ASSIGN_OR_RETURN(const File file,
                           Storage::OfProcess().Open(source.path));
  BALLAST_RETURN_IF_ERROR(CheckNotLfsPointer(file));
  FileScanner scanner(source.name, file, options_, progress);
  const std::optional<uint64_t> known = reuse_.Find(source, file.stamp());
  const bool is_whole =
      reuse_.HasMarks() && (!options_->hash || reuse_.is_hashed());
  if (known && !is_whole) {
    scanner.SetKnown(
        [this, &known](const IndexSampleRecord& record, MediaFacts* facts) {
          return reuse_.FindSample(*known, record, facts);
        });
  }
  BALLAST_RETURN_IF_ERROR(known && is_whole ? Reuse(*known, scanner)
                                            : parser_->Scan(file, scanner));
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

namespace {

struct AssembledIndex {
  IndexContents contents;
  IndexReport report;
};

// Appends a file's scan to the contents of the index. Collects the facts of
// media separately, and apart from them those of samples that are left out.
void Append(FileScan scan, IndexContents& contents, MediaFacts& facts,
            MediaFacts& left_out_facts, IndexReport& report) {
  const auto file = static_cast<uint32_t>(contents.files.size());
  contents.files.push_back(
      {std::move(scan.name), scan.stamp, scan.unreadable, scan.media_time_ns});
  const auto append = [file](const std::vector<IndexSampleRecord>& from,
                             const MediaFacts& from_facts,
                             std::vector<IndexSampleRecord>& to,
                             MediaFacts& to_facts) {
    const uint64_t first = to.size();
    for (IndexSampleRecord sample : from) {
      sample.file = file;
      sample.first_image += to_facts.sizes.size();
      to.push_back(sample);
    }
    to_facts.Append(from_facts.view(), first);
  };
  append(scan.samples, scan.facts, contents.samples, facts);
  append(scan.left_out, scan.left_out_facts, contents.left_out, left_out_facts);
  report.reused_files += scan.report.reused_files;
  report.reused_samples += scan.report.reused_samples;
  report.reused_lengths += scan.report.reused_lengths;
  report.known_bad += scan.report.known_bad;
  report.skipped += scan.report.skipped;
  report.filtered += scan.report.filtered;
  for (const auto& [extension, count] : scan.report.ignored) {
    report.ignored[extension] += count;
  }
  for (const auto& [cause, samples] : scan.report.unlearnt) {
    AddUnlearnt(cause, samples, &report);
  }
  std::move(scan.report.bad.begin(), scan.report.bad.end(),
            std::back_inserter(report.bad));
}

// The first samples of the row groups, each at its own offset.
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
  MediaFacts facts;
  MediaFacts left_out_facts;
  for (FileScan& scan : scans) {
    Append(std::move(scan), contents, facts, left_out_facts, report);
  }
  if (in_groups) contents.group_starts = GroupStarts(contents.samples);
  report.samples = contents.samples.size();
  report.media[MediumKind::kImage] = facts.sizes.size();
  for (const StreamFacts& stream : facts.streams) ++report.media[stream.kind()];
  for (const ImageMark mark : facts.marks) report.marks.Add(mark);
  for (IndexSampleRecord& sample : contents.left_out) {
    sample.first_image += facts.sizes.size();
  }
  facts.Append(left_out_facts.view(), contents.samples.size());
  contents.images = std::move(facts.sizes);
  contents.marks = std::move(facts.marks);
  contents.content_hashes = std::move(facts.content_hashes);
  contents.streams = std::move(facts.streams);
  contents.stream_records = std::move(facts.stream_samples);
  contents.stream_hashes = std::move(facts.stream_hashes);
  contents.times = std::move(facts.times);
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
  index.contents.digests = GetDigests(source, directory, options.key,
                                      !index.contents.streams.empty());
  if (!options.accept || options.accept(index.report)) {
    const std::string path = IndexPath(source, directory, options.key);
    BALLAST_RETURN_IF_ERROR(WriteIndex(path, index.contents));
    BALLAST_ASSIGN_OR_RETURN(const auto written, IndexFile::Open(path));
    BALLAST_RETURN_IF_ERROR(
        WriteBadRecords(path, written->digest(), index.report.bad));
  }
  return std::move(index.report);
}

}  // namespace ballast
