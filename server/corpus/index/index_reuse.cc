#include "server/corpus/index/index_reuse.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "server/corpus/make_source.h"

namespace ballast {
namespace {

// Where a record stands in its file.
std::pair<uint64_t, uint32_t> PlaceOf(const IndexSampleRecord& record) {
  return {record.offset, record.line};
}

}  // namespace

IndexReuse::IndexReuse(const v1::Source& source, absl::string_view directory,
                       const std::vector<SourceFile>& files,
                       const IndexOptions* options)
    : options_(options) {
  if (!options->reuse) return;
  auto index = IndexFile::OpenToReuse(IndexPath(source, directory));
  if (!index.ok()) return;
  digests_ = DigestsOf(source, directory, options->key, (*index)->has_videos());
  if ((*index)->digests().sizes != digests_.sizes) return;
  if (!(*index)->Verify(nullptr).ok()) return;
  index_ = *std::move(index);
  absl::flat_hash_map<absl::string_view, const SourceFile*> by_name;
  for (const SourceFile& file : files) by_name.emplace(file.name, &file);
  // Indexed by the file numbers of the old index. Files that are gone are never
  // read.
  std::vector<SourceFile> known(index_->num_files());
  for (uint64_t i = 0; i < known.size(); ++i) {
    const auto found = by_name.find(index_->file_name(i));
    if (found == by_name.end()) continue;
    known[i] = *found->second;
    numbers_.emplace(index_->file_name(i), i);
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
  const auto found = numbers_.find(file.name);
  if (found == numbers_.end() ||
      !(index_->file_stamp(found->second) == stamp)) {
    return std::nullopt;
  }
  return found->second;
}

absl::Status IndexReuse::Scan(uint64_t number, FileScanner& scanner) const {
  Range kept = RecordsOf(number, 0, index_->size());
  Range left_out = RecordsOf(number, index_->size(), index_->num_records());
  uint64_t samples = 0;
  uint64_t lengths = 0;
  // Passes both kinds in the order of the file.
  while (kept.begin < kept.end || left_out.begin < left_out.end) {
    const bool is_kept =
        left_out.begin == left_out.end ||
        (kept.begin < kept.end && PlaceOf(index_->record(kept.begin)) <
                                      PlaceOf(index_->record(left_out.begin)));
    const uint64_t next = is_kept ? kept.begin++ : left_out.begin++;
    const std::optional<TextLengths> known =
        is_kept ? KnownLengths(next) : std::nullopt;
    if (known) {
      BALLAST_ASSIGN_OR_RETURN(const ImageFactsView facts, FactsOf(next));
      scanner.AddMeasured(index_->record(next), *known, facts);
      ++lengths;
    } else {
      BALLAST_RETURN_IF_ERROR(Measure(next, scanner));
    }
    ++samples;
    scanner.Advance(index_->record(next).offset + index_->record(next).length);
  }
  scanner.AddReused(samples, lengths, index_->file_unreadable(number));
  return absl::OkStatus();
}

IndexReuse::Range IndexReuse::RecordsOf(uint64_t file, uint64_t begin,
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
  lengths.limited = record.limited != 0;
  if (index_->digests().limits == digests_.limits) return lengths;
  if (lengths.limited || !options_->lengths_hold ||
      !options_->lengths_hold(lengths, index_->images(number))) {
    return std::nullopt;
  }
  return lengths;
}

std::optional<TextLengths> IndexReuse::FindLengths(
    uint64_t number, const IndexSampleRecord& record) const {
  Range range = RecordsOf(number, 0, index_->size());
  // Narrows the range to the first record at or behind the wanted place.
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
  return KnownLengths(range.begin);
}

absl::Status IndexReuse::Measure(uint64_t number, FileScanner& scanner) const {
  const IndexSampleRecord& record = index_->record(number);
  BALLAST_ASSIGN_OR_RETURN(const ImageFactsView facts, FactsOf(number));
  BALLAST_ASSIGN_OR_RETURN(
      FaultOr<RawSample> sample,
      texts_->ReadNumber(number, {.text = true, .images = false}));
  if (!sample.ok()) return absl::DataLossError(sample.fault().reason());
  absl::string_view key = sample->name;
  const std::string line = absl::StrCat(record.line);
  if (record.line != 0) {
    key = line;
  } else {
    absl::ConsumePrefix(&key, WebDatasetSampleName(scanner.name(), ""));
  }
  sample->video_facts.assign(facts.videos.begin(), facts.videos.end());
  return scanner.Add(record, key, *sample, facts);
}

absl::StatusOr<ImageFactsView> IndexReuse::FactsOf(uint64_t number) const {
  BALLAST_ASSIGN_OR_RETURN(const absl::Span<const IndexedVideo> videos,
                           index_->videos(number));
  return ImageFactsView{index_->images(number), index_->marks(number),
                        index_->hashes(number), videos};
}

}  // namespace ballast
