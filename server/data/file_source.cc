#include "server/data/file_source.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/machine.h"
#include "common/status_macros.h"
#include "server/data/index/probe_media.h"
#include "server/data/jsonl/pair_json.h"
#include "server/data/read_media.h"
#include "server/files/storage.h"
#include "server/files/store_reader.h"
#include "server/sample/index_format.h"

namespace ballast {

std::shared_ptr<const File> OpenFileCache::Slot::Get(
    const OpenFileCache& cache) {
  MutexLock lock(&mutex_);
  if (file_ != nullptr) {
    last_used_.store(cache.uses_.fetch_add(1, std::memory_order_relaxed),
                     std::memory_order_relaxed);
  }
  return file_;
}

std::shared_ptr<OpenFileCache> OpenFileCache::OfProcess() {
  static const auto* const cache =
      new std::shared_ptr<OpenFileCache>(std::make_shared<OpenFileCache>(
          std::clamp<uint64_t>(RaiseDescriptorLimit() / 4, 8, 4096)));
  return *cache;
}

void OpenFileCache::Put(Slot* slot, std::shared_ptr<const File> file) {
  std::shared_ptr<const File> before;  // closed outside the locks
  MutexLock lock(&mutex_);
  if (std::find(open_.begin(), open_.end(), slot) == open_.end()) {
    while (open_.size() >= std::max<size_t>(capacity_, 1)) CloseOldest();
    open_.push_back(slot);
  }
  slot->last_used_.store(uses_.fetch_add(1, std::memory_order_relaxed),
                         std::memory_order_relaxed);
  MutexLock slot_lock(&slot->mutex_);
  before = std::exchange(slot->file_, std::move(file));
}

void OpenFileCache::Remove(Slot* slot, const File* file) {
  std::shared_ptr<const File> before;  // closed outside the locks
  MutexLock lock(&mutex_);
  MutexLock slot_lock(&slot->mutex_);
  if (file != nullptr && slot->file_.get() != file) return;
  before = std::move(slot->file_);
  slot->file_ = nullptr;
  open_.erase(std::remove(open_.begin(), open_.end(), slot), open_.end());
}

void OpenFileCache::CloseHalf() {
  MutexLock lock(&mutex_);
  const size_t kept = open_.size() / 2;
  while (open_.size() > kept) CloseOldest();
}

void OpenFileCache::CloseOldest() {
  const auto oldest = std::min_element(
      open_.begin(), open_.end(), [](const Slot* a, const Slot* b) {
        return a->last_used_.load(std::memory_order_relaxed) <
               b->last_used_.load(std::memory_order_relaxed);
      });
  Slot* const slot = *oldest;
  open_.erase(oldest);
  MutexLock slot_lock(&slot->mutex_);
  slot->file_ = nullptr;
}

OpenFiles::OpenFiles(std::vector<SourceFile> files,
                     std::shared_ptr<OpenFileCache> cache)
    : files_(std::move(files)),
      cache_(std::move(cache)),
      slots_(new OpenFileCache::Slot[files_.size()]) {}

OpenFiles::~OpenFiles() {
  for (size_t i = 0; i < files_.size(); ++i) {
    cache_->Remove(&slots_[i], nullptr);
  }
}

absl::StatusOr<std::shared_ptr<const File>> OpenFiles::Get(
    uint32_t number, ReadFrom from) const {
  OpenFileCache::Slot& slot = slots_[number];
  if (std::shared_ptr<const File> file = slot.Get(*cache_)) return file;
  const std::string& path = files_[number].path;
  if (from == ReadFrom::kMemory) {
    return absl::AbortedError(absl::StrCat(path, ": not open"));
  }
  // Opens without a lock: an open that hangs must not block readers from
  // memory. Two threads may open the same file; the later one is kept.
  absl::StatusOr<File> opened = Storage::OfProcess().Open(path);
  if (!opened.ok()) {
    // Frees descriptors for a retry. A file that is missing or unreadable says
    // nothing about its bytes, whatever the code.
    cache_->CloseHalf();
    return absl::UnavailableError(opened.status().message());
  }
  auto file = std::make_shared<const File>(*std::move(opened));
  cache_->Put(&slot, file);
  return file;
}

void OpenFiles::Drop(uint32_t number, const File& file) const {
  cache_->Remove(&slots_[number], &file);
}

namespace {

// OK if the bytes that `view` gave since its Begin are of the version that was
// indexed. Otherwise nothing that they showed says anything of the sample.
// Errors: UNAVAILABLE, whatever has befallen the file; as CheckUnchanged.
absl::Status CheckIsIndexed(const FileView& view, const FileStamp& indexed) {
  const FileStamp& found = view.begin().stamp;
  if (found == indexed) return view.CheckUnchanged();
  return absl::UnavailableError(absl::StrCat(
      "the file has changed since it was indexed: it has ",
      found.size == indexed.size
          ? "another modification time"
          : absl::StrCat(found.size, " bytes, and had ", indexed.size),
      "; restore it, or index the source again and restart the servers"));
}

// Of a source whose videos are heard (model.video.use_audio_in_video): the
// order of its videos and of the audio that is of no video. nullopt: videos are
// not heard.
std::optional<MediaOrder> OrderOfHeard(absl::Span<const StreamFacts> streams) {
  MediaOrder order;
  for (const StreamFacts& one : streams) {
    if (one.kind() != MediumKind::kAudio) continue;
    order.push_back(one.is_in_video() ? MediumKind::kVideo
                                      : MediumKind::kAudio);
  }
  if (CountsOf(order)[MediumKind::kVideo] == 0) return std::nullopt;
  return order;
}

// Puts the media that were read, kind by kind, in the order of the index.
absl::Status OrderMedia(const MediaList& indexed, RawSample* sample) {
  std::vector<RawMedium> read = std::move(sample->media);
  sample->media.clear();
  PerMedium<std::vector<size_t>> of_kind;
  for (size_t i = 0; i < read.size(); ++i) of_kind[read[i].kind].push_back(i);
  for (const MediumKind kind : MediumKinds()) {
    if (of_kind[kind].size() == indexed.count(kind)) continue;
    return DataFaultError(absl::StrCat(of_kind[kind].size(), " media of kind ",
                                       MediumName(kind), ", the index has ",
                                       indexed.count(kind)));
  }
  for (const IndexedMedium& medium : indexed) {
    sample->media.push_back(
        std::move(read[of_kind[medium.kind][medium.number]]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FaultOr<RawSample>> FileSource::Read(uint64_t ordinal,
                                                    ReadParts parts) const {
  if (ordinal >= index_->size()) {
    return absl::OutOfRangeError(absl::StrCat(index_->path(), ": no sample ",
                                              ordinal, " of ", index_->size()));
  }
  return ReadNumber(ordinal, parts);
}

absl::StatusOr<FaultOr<RawSample>> FileSource::ReadNumber(
    uint64_t number, ReadParts parts) const {
  if (parts.from == ReadFrom::kMemory && !index_->IsTouched(number)) {
    return absl::AbortedError(
        absl::StrCat(index_->path(), ": nobody has looked up sample ", number));
  }
  BALLAST_RETURN_IF_ERROR(index_->Touch(number));
  const IndexSampleRecord& record = index_->record(number);
  const absl::string_view name = index_->file_name(record.file);
  const std::string where = absl::StrCat(Printable(name), ": sample ", number,
                                         " at byte ", record.offset);
  const absl::StatusOr<std::shared_ptr<const File>> file =
      files_.Get(record.file, parts.from);
  if (!file.ok()) return Annotate(file.status(), where);
  FileView view(file->get(), parts.from, FileOwner(record));
  bool is_by_recipe = false;
  absl::StatusOr<FaultOr<RawSample>> sample = [&] {
    const absl::Status begun = view.Begin();
    absl::StatusOr<RawSample> read =
        begun.ok() ? ReadRecord(number, &view, parts) : begun;
    is_by_recipe = GetBadKind(read.status()) == kByRecipe;
    return SeparateFault(std::move(read));
  }();
  // A text is identified by its hash, wherever it was read; images in the file
  // only by their headers.
  const bool is_proven =
      sample.ok() && sample->ok() &&
      (!parts.images || !parser_->HoldsImages() || (*sample)->media.empty());
  if (is_proven) return sample;
  // DATA_LOSS: the file ends before the record does.
  if (sample.ok() || absl::IsDataLoss(sample.status())) {
    const absl::Status indexed =
        CheckIsIndexed(view, index_->file_stamp(record.file));
    if (indexed.ok() && sample.ok() && sample->ok()) return sample;
    if (!indexed.ok()) sample = indexed;
  }
  // Drops the file so that the next attempt opens it again: a stale handle
  // never recovers, and the file may have been replaced.
  if (parts.from == ReadFrom::kDisk) {
    files_.Drop(record.file, **file);
    parser_->Forget(record, view);
    // Opens an object in the version that it has seen last: this asks, so that
    // it knows the present one.
    if (view.object() != nullptr) {
      (void)Storage::OfProcess().Stamp((*file)->path());
    }
  }
  if (!sample.ok()) return Annotate(sample.status(), where);
  // Only the answer to a record that is the indexed one is the recipe's fault.
  return DataFault(absl::StrCat(where, ": ", sample->fault().reason(),
                                is_by_recipe
                                    ? ""
                                    : "; the file has changed since it was "
                                      "indexed, although its size and its time "
                                      "have not"));
}

absl::StatusOr<IndexedKinds> FileSource::GetKinds(uint64_t number) const {
  BALLAST_ASSIGN_OR_RETURN(const absl::Span<const StreamFacts> videos,
                           index_->streams(number));
  IndexedKinds kinds;
  kinds.audio = MediaList({}, {}, videos).count(MediumKind::kAudio) > 0;
  kinds.lists =
      std::any_of(videos.begin(), videos.end(), [](const auto& video) {
        return (video.flags & StreamFacts::kIsList) != 0;
      });
  return kinds;
}

absl::StatusOr<RawSample> FileSource::ReadRecord(uint64_t number,
                                                 FileView* file,
                                                 const ReadParts& parts) const {
  const IndexSampleRecord& record = index_->record(number);
  BALLAST_ASSIGN_OR_RETURN(const IndexedKinds kinds, GetKinds(number));
  if (file->object() != nullptr) {
    BALLAST_ASSIGN_OR_RETURN(const std::vector<ByteRange> ranges,
                             parser_->Ranges(record, *file, parts.images));
    BALLAST_RETURN_IF_ERROR(file->Load(ranges));
  }
  BALLAST_ASSIGN_OR_RETURN(
      Record found, parser_->Read(record, *file, index_->file_name(record.file),
                                  parts, kinds));
  RawSample sample;
  sample.name = std::move(found.name);
  sample.text_format = found.text_format;
  // Also compared if only images are wanted: it shows that they belong to this
  // sample.
  if (found.entry.text_check != record.text_check) {
    return DataFault("its text is not the index's").In(found.where).ToStatus();
  }
  const size_t images = found.count(MediumKind::kImage);
  if (parts.images) {
    const absl::Status read = ReadMedia(&found, number, *file, parts, &sample);
    if (!read.ok()) return Annotate(read, found.where);
  }
  if (parts.text) {
    if (sample.text_format == RawSample::TextFormat::kConversation) {
      const absl::StatusOr<bool> is_pair = SplitPair(images, &found.text);
      if (!is_pair.ok()) return Annotate(is_pair.status(), found.where);
      if (*is_pair) sample.text_format = RawSample::TextFormat::kPair;
    }
    sample.text = std::move(found.text);
    sample.fields = std::move(found.fields);
    sample.record = std::move(found.given);
  }
  return sample;
}

absl::Status FileSource::ReadMedia(Record* found, uint64_t number,
                                   const FileView& file, const ReadParts& parts,
                                   RawSample* sample) const {
  const IndexSampleRecord& record = index_->record(number);
  const size_t images = found->count(MediumKind::kImage);
  if (images != record.num_images) {
    return DataFaultError(
        absl::StrCat(images, " images, the index has ", record.num_images));
  }
  BALLAST_ASSIGN_OR_RETURN(const absl::Span<const StreamFacts> streams,
                           index_->streams(number));
  const std::optional<MediaOrder> heard = OrderOfHeard(streams);
  if (heard.has_value()) {
    BALLAST_RETURN_IF_ERROR(
        AsDataFault(AddAudioOfVideos(*heard, &found->media)));
  }
  const uint64_t owner =
      parser_->HoldsImages() ? FileOwner(record) : SampleOwner(record);
  MediaReader media(
      file, parser_->media(), owner,
      kMaxSampleBytes - std::min<uint64_t>(found->text.size(), kMaxSampleBytes),
      images, parts, sample);
  const auto read = [&]() -> absl::Status {
    for (const RecordMedium& medium : found->media) {
      BALLAST_RETURN_IF_ERROR(media.Add(medium));
    }
    if (media.image_check() == record.image_check) return absl::OkStatus();
    return DataFaultError(absl::StrCat(
        "the length or the header of an image or a video is not the index's",
        // An index is taken as up to date while the record is as it was.
        parser_->media() == nullptr ? ""
                                    : "; named media are indexed anew by "
                                      "--rebuild"));
  };
  const absl::Status status = read();
  const int64_t newest_ns = index_->media_time_ns(record.file);
  // A fault of media that are not the indexed ones says nothing.
  if (IsDataFault(status)) {
    BALLAST_RETURN_IF_ERROR(media.CheckMediaAreIndexed(newest_ns));
  }
  BALLAST_RETURN_IF_ERROR(status);
  sample->media_modified = media.GetModified(newest_ns);
  return OrderMedia(MediaList(index_->images(number), {}, streams), sample);
}

absl::StatusOr<uint64_t> FileSource::FetchAhead(
    uint64_t ordinal, const MakeRoom& make_room) const {
  if (!InStore() || ordinal >= index_->size()) return 0;
  BALLAST_RETURN_IF_ERROR(index_->Touch(ordinal));
  const IndexSampleRecord& record = index_->record(ordinal);
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const File> file,
                           files_.Get(record.file, ReadFrom::kDisk));
  const FileView view(file.get(), ReadFrom::kDisk, FileOwner(record));
  uint64_t fetched = 0;
  if (view.object() != nullptr) {
    BALLAST_ASSIGN_OR_RETURN(const std::vector<ByteRange> ranges,
                             parser_->Ranges(record, view, /*images=*/true));
    for (const ByteRange& range : ranges) {
      const auto bytes =
          view.object()->FetchAhead(range, view.owner(), make_room);
      if (!bytes.ok() && !absl::IsResourceExhausted(bytes.status())) {
        // Opened again at the next attempt: it may have another version.
        files_.Drop(record.file, *file);
      }
      BALLAST_RETURN_IF_ERROR(bytes.status());
      fetched += *bytes;
    }
  }
  BALLAST_ASSIGN_OR_RETURN(
      const std::vector<std::string> paths,
      parser_->StoredMedia(record, view, index_->file_name(record.file)));
  for (const std::string& path : paths) {
    BALLAST_ASSIGN_OR_RETURN(const File medium, parser_->media()->Open(path));
    const uint64_t size = medium.stamp().size;
    if (medium.object() == nullptr || size > kMaxSampleBytes) continue;
    BALLAST_ASSIGN_OR_RETURN(
        const uint64_t bytes,
        medium.object()->FetchAhead({0, size}, SampleOwner(record), make_room));
    fetched += bytes;
  }
  return fetched;
}

bool FileSource::IsHere(uint64_t ordinal) const {
  if (!InStore() || ordinal >= index_->size()) return true;
  if (!index_->Touch(ordinal).ok()) return false;
  const IndexSampleRecord& record = index_->record(ordinal);
  const auto file = files_.Get(record.file, ReadFrom::kMemory);
  if (!file.ok()) return false;
  const FileView view(file->get(), ReadFrom::kMemory, FileOwner(record));
  if (view.object() != nullptr) {
    const auto ranges = parser_->Ranges(record, view, /*images=*/true);
    if (!ranges.ok() ||
        !std::all_of(ranges->begin(), ranges->end(), [&](ByteRange range) {
          return view.object()->IsHere(range, view.owner());
        })) {
      return false;
    }
  }
  const auto paths =
      parser_->StoredMedia(record, view, index_->file_name(record.file));
  if (!paths.ok()) return false;
  return std::all_of(paths->begin(), paths->end(), [&](const auto& path) {
    const auto medium = parser_->media()->Open(path, ReadFrom::kMemory);
    if (!medium.ok()) return false;
    const uint64_t size = medium->stamp().size;
    return medium->object() == nullptr || size > kMaxSampleBytes ||
           medium->object()->IsHere({0, size}, SampleOwner(record));
  });
}

bool FileSource::InStore() const {
  return in_store_ || (!parser_->HoldsImages() && parser_->media() != nullptr &&
                       parser_->media()->InStore());
}

uint64_t FileSource::SampleOwner(const IndexSampleRecord& record) const {
  return Checksum(absl::StrCat(index_->file_name(record.file), "\n",
                               record.offset, "\n", record.line));
}

uint64_t FileSource::FileOwner(const IndexSampleRecord& record) const {
  // Lines share a block, and rows their row group.
  const ByteRange kept = RangeToKeep({record.offset, record.length},
                                     index_->file_stamp(record.file).size);
  const uint64_t place = record.length == 0 ? record.offset : kept.offset;
  return Checksum(absl::StrCat(index_->file_name(record.file), "\n", place));
}

void FileSource::AddOwners(uint64_t ordinal,
                           std::vector<uint64_t>* owners) const {
  if (!InStore() || ordinal >= index_->size() || !index_->Touch(ordinal).ok()) {
    return;
  }
  const IndexSampleRecord& record = index_->record(ordinal);
  owners->push_back(FileOwner(record));
  if (!parser_->HoldsImages()) owners->push_back(SampleOwner(record));
}

SampleLocation FileSource::Locate(uint64_t ordinal) const {
  // Does not touch the disk: it may hang while a caller asks.
  if (ordinal >= index_->size() || !index_->IsTouched(ordinal)) return {};
  const IndexSampleRecord& record = index_->record(ordinal);
  return {std::string(index_->file_name(record.file)), record.offset,
          record.line};
}

absl::StatusOr<std::unique_ptr<FileSource>> MakeFileSource(
    const v1::Source& source, absl::string_view directory,
    std::shared_ptr<const IndexFile> index, std::vector<SourceFile> files,
    std::shared_ptr<OpenFileCache> cache) {
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<RecordParser> parser,
                           MakeParser(source, directory));
  return std::make_unique<FileSource>(std::move(parser), std::move(index),
                                      std::move(files), std::move(cache));
}

}  // namespace ballast
