#include "server/data/index/file_scan.h"

#include <algorithm>
#include <iterator>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/data/jsonl/pair_json.h"
#include "server/data/jsonl/unread_keys.h"
#include "server/sample/data_fault.h"
#include "server/sample/source_index.h"

namespace ballast {
namespace {

using Bytes = absl::string_view;

struct Compression {
  const char* name;
  Bytes first;         // bytes of a file
  const char* unpack;  // the command that prints it, whatever its name
};

constexpr Compression kBzip2 = {"bzip2", "", "bzip2 -dc <"};

constexpr Compression kCompressions[] = {
    {"gzip", Bytes("\x1f\x8b\x08", 3), "gzip -dc <"},
    {"zstd", Bytes("\x28\xb5\x2f\xfd", 4), "zstd -dc <"},
    {"zstd", Bytes("\x50\x2a\x4d\x18", 4), "zstd -dc <"},  // pzstd
    {"xz", Bytes("\xfd\x37zXZ\0", 6), "xz -dc <"},
    {"lz4", Bytes("\x04\x22\x4d\x18", 4), "lz4 -dc <"},
    {"zip", Bytes("PK\x03\x04", 4), "unzip -p"},
};

// "BZh", the size of a block, and the mark of a block or of the end.
bool IsBzip2(Bytes head) {
  return head.size() == 10 && absl::StartsWith(head, "BZh") &&
         (absl::EndsWith(head, "\x31\x41\x59\x26\x53\x59") ||
          absl::EndsWith(head, "\x17\x72\x45\x38\x50\x90"));
}

// Appends `record` and the facts of its media.
void Keep(IndexSampleRecord record, const MediaFactsView& facts,
          std::vector<IndexSampleRecord>* records, MediaFacts* all_facts) {
  record.file = 0;
  record.first_image = all_facts->sizes.size();
  record.num_images = static_cast<uint32_t>(facts.sizes.size()) & 0x7FFFFFFF;
  all_facts->Append(facts, records->size());
  records->push_back(record);
}

// Whether `status` is of the machine and not of the sample: the scan then ends,
// since the index would lack a good sample. A missing file and the like make a
// sample bad; a file that this user may not read does not, as another may.
bool EndsScan(const absl::Status& status) {
  if (IsDataFault(status)) return false;
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kPermissionDenied:
      return true;
    default:
      return false;
  }
}

// Makes the record a preference pair's, if it is one.
absl::Status TakePair(bool takes_pairs, Record* record) {
  bool is_pair = false;
  if (record->text_format == RawSample::TextFormat::kConversation) {
    BALLAST_ASSIGN_OR_RETURN(
        is_pair, SplitPair(record->count(MediumKind::kImage), &record->text));
  }
  if (is_pair && !takes_pairs) return PairFault("key", "rejected");
  if (takes_pairs && !is_pair) return NoPairFault();
  if (!is_pair) return absl::OkStatus();
  record->text_format = RawSample::TextFormat::kPair;
  if (record->count(MediumKind::kImage) == record->media.size()) {
    return absl::OkStatus();
  }
  return DataFaultError(
      "a video or audio in a preference pair, which takes images alone");
}

}  // namespace

FileScanner::FileScanner(std::string name, const File& file,
                         const IndexOptions* options, ProgressMeter* progress)
    : options_(options), progress_(progress) {
  scan_.name = std::move(name);
  scan_.stamp = file.stamp();
}

absl::Status FileScanner::AddRecord(Record record, const File& file,
                                    const MediaRoot* media,
                                    const CheckImageSize& check_size) {
  BALLAST_RETURN_IF_ERROR(TakePair(options_->pairs, &record));
  if (record.text_format == RawSample::TextFormat::kConversation) {
    BALLAST_RETURN_IF_ERROR(
        CheckUnreadKeys(record.text, /*has_media=*/!record.media.empty()));
  }
  RawSample sample;
  sample.name = std::move(record.name);
  sample.text_format = record.text_format;
  sample.text = std::move(record.text);
  sample.fields = std::move(record.fields);
  sample.known_tokens = record.known_tokens;
  if (options_->read_audio_in_video) {
    MediaCounts counts;
    for (const RecordMedium& medium : record.media) ++counts[medium.kind];
    MediaOrder order;
    if (options_->find_order && counts[MediumKind::kVideo] > 0 &&
        counts[MediumKind::kAudio] > 0) {
      order = options_->find_order(sample, counts);
    }
    BALLAST_RETURN_IF_ERROR(AddAudioOfVideos(order, &record.media));
  }
  MediaProbe probe(
      options_, &file, media,
      kMaxSampleBytes - std::min<uint64_t>(sample.text.size(), kMaxSampleBytes),
      check_size);
  for (const RecordMedium& medium : record.media) {
    BALLAST_RETURN_IF_ERROR(probe.Add(medium));
  }
  scan_.media_time_ns = std::max(scan_.media_time_ns, probe.media_time_ns());
  IndexSampleRecord entry = record.entry;
  entry.image_check = probe.image_check();
  MediaFacts facts = probe.facts();
  sample.facts = GetMedia(facts.view());
  PlaceVideos(sample, facts.sizes.size(), &facts.streams);
  if (known_) {
    if (const std::optional<TextLengths> lengths = known_(entry, &facts)) {
      ++scan_.report.reused_lengths;
      AddMeasured(entry, *lengths, facts.view());
      return absl::OkStatus();
    }
  }
  return Measure(entry, record.key, sample, facts.view());
}

absl::Status FileScanner::Add(IndexSampleRecord record, absl::string_view key,
                              const RawSample& sample,
                              const MediaFactsView& facts) {
  // Facts from an old index may have the order of another model.
  std::vector<StreamFacts> streams(facts.streams.begin(), facts.streams.end());
  PlaceVideos(sample, facts.sizes.size(), &streams);
  MediaFactsView placed = facts;
  placed.streams = streams;
  return Measure(record, key, sample, placed);
}

void FileScanner::PlaceVideos(const RawSample& sample, size_t images,
                              std::vector<StreamFacts>* streams) const {
  const MediaList list({}, {}, *streams);
  MediaCounts counts;
  counts[MediumKind::kImage] = images;
  for (const IndexedMedium& stream : list) ++counts[stream.kind];
  const size_t videos = counts[MediumKind::kVideo];
  if (videos == 0) return;
  MediaOrder order;
  if (options_->mixes_images_and_videos) {
    order = options_->find_order(sample, counts);
  }
  std::vector<uint32_t> before =
      CountsBefore(order, MediumKind::kVideo, MediumKind::kImage);
  before.resize(videos, static_cast<uint32_t>(images));
  for (size_t i = 0; i < videos; ++i) {
    SetImagesBehind(static_cast<uint32_t>(images) - before[i], &(*streams)[i]);
  }
}

absl::Status FileScanner::Measure(IndexSampleRecord record,
                                  absl::string_view key,
                                  const RawSample& sample,
                                  const MediaFactsView& facts) {
  const absl::StatusOr<TextLengths> lengths =
      options_->measure(sample, facts.sizes);
  if (lengths.ok() && !lengths->skip) {
    AddMeasured(record, *lengths, facts);
    return absl::OkStatus();
  }
  if (!lengths.ok() && EndsScan(lengths.status())) return lengths.status();
  if (lengths.ok()) {
    ++scan_.report.skipped;
  } else {
    scan_.report.bad.push_back({scan_.name, record.offset, std::string(key),
                                std::string(lengths.status().message()),
                                GetBadKind(lengths.status()),
                                /*has_record=*/true});
  }
  record.text_tokens = 0;
  record.label_tokens = 0;
  record.first_text_tokens = 0;
  record.limited = 0;
  Keep(record, facts, &scan_.left_out, &scan_.left_out_facts);
  return absl::OkStatus();
}

void AddUnlearnt(const std::string& cause, const IndexReport::Unlearnt& samples,
                 IndexReport* report) {
  IndexReport::Unlearnt& all = report->unlearnt[cause];
  if (all.count == 0) all.first = samples.first;
  all.count += samples.count;
}

void FileScanner::AddMeasured(IndexSampleRecord record,
                              const TextLengths& lengths,
                              const MediaFactsView& facts) {
  record.text_tokens = lengths.text_tokens;
  record.label_tokens = lengths.label_tokens;
  record.first_text_tokens = lengths.first_text_tokens;
  record.limited = lengths.limited ? 1 : 0;
  if (lengths.label_tokens == 0 || !lengths.unlearnt.empty()) {
    AddUnlearnt(
        lengths.unlearnt,
        {1, absl::StrCat(scan_.name, " at byte ", uint64_t{record.offset})},
        &scan_.report);
  }
  Keep(record, facts, &scan_.samples, &scan_.facts);
}

void FileScanner::AddReused(uint64_t samples, uint64_t lengths,
                            uint64_t unreadable, std::vector<BadSample> known,
                            int64_t media_time_ns) {
  scan_.media_time_ns = std::max(scan_.media_time_ns, media_time_ns);
  ++scan_.report.reused_files;
  scan_.report.reused_samples += samples;
  scan_.report.reused_lengths += lengths;
  scan_.unreadable += unreadable;
  std::vector<BadSample>& bad = scan_.report.bad;
  if (known.size() == unreadable) {
    std::move(known.begin(), known.end(), std::back_inserter(bad));
    std::stable_sort(bad.begin(), bad.end(),
                     [](const BadSample& a, const BadSample& b) {
                       return a.offset < b.offset;
                     });
  } else {
    scan_.report.known_bad += unreadable;
  }
}

absl::Status FileScanner::AddBad(uint64_t offset, absl::string_view key,
                                 const absl::Status& reason) {
  if (EndsScan(reason)) return reason;
  ++scan_.unreadable;
  scan_.report.bad.push_back({scan_.name, offset, std::string(key),
                              std::string(reason.message()),
                              GetBadKind(reason)});
  return absl::OkStatus();
}

absl::Status FileScanner::AddDamage(uint64_t offset, absl::string_view lost_key,
                                    const absl::Status& reason) {
  const uint64_t size = scan_.stamp.size;
  std::string text = absl::StrCat(reason.message(),
                                  "; not read: ", size - std::min(offset, size),
                                  " of the file's ", size, " bytes");
  if (!lost_key.empty()) {
    absl::StrAppend(&text, ", and the sample before, which may lack members");
  }
  return AddBad(offset, lost_key, absl::Status(reason.code(), text));
}

void FileScanner::AddIgnored(absl::string_view extension, uint64_t count) {
  scan_.report.ignored[std::string(extension)] += count;
}

void FileScanner::Advance(uint64_t offset) {
  constexpr uint64_t kStep = uint64_t{1} << 20;
  if (offset < reported_offset_ + kStep && offset != scan_.stamp.size) return;
  progress_->Add(offset - reported_offset_,
                 scan_.samples.size() - reported_samples_,
                 scan_.report.bad.size() - reported_bad_);
  reported_offset_ = offset;
  reported_samples_ = scan_.samples.size();
  reported_bad_ = scan_.report.bad.size();
}

FileScan FileScanner::Finish() && {
  Advance(scan_.stamp.size);
  return std::move(scan_);
}

absl::Status CheckNotCompressed(const File& file, absl::string_view name) {
  constexpr uint64_t kHead = 10;
  BALLAST_ASSIGN_OR_RETURN(
      const std::string head,
      file.ReadAt(0, std::min<uint64_t>(kHead, file.stamp().size)));
  const Compression* found = IsBzip2(head) ? &kBzip2 : nullptr;
  for (const Compression& each : kCompressions) {
    if (absl::StartsWith(head, each.first)) found = &each;
  }
  if (found == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      Printable(name), ": compressed by ", found->name,
      "; there are no offsets to read samples at: unpack it, `", found->unpack,
      " ", Printable(name), " > PLAIN`, and name PLAIN in `path`"));
}

}  // namespace ballast
