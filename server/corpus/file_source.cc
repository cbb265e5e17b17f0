#include "server/corpus/file_source.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "server/corpus/data_path.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/jsonl/conversation_json.h"
#include "server/corpus/limits.h"
#include "server/corpus/read_image.h"
#include "server/corpus/read_videos.h"
#include "server/corpus/tar/webdataset_reader.h"
#include "server/storage/range_plan.h"
#include "server/storage/storage.h"

namespace ballast {
namespace {

template <typename... Piece>
absl::Status Differs(const Piece&... pieces) {
  return AsDataFault(absl::DataLossError(absl::StrCat(pieces...)));
}

absl::Status CheckImageCount(size_t found, const IndexSampleRecord& record) {
  if (found == record.num_images) return absl::OkStatus();
  return Differs(found, " images, the index has ", record.num_images);
}

// Checks that the lengths and headers of the images and videos are those
// indexed.
absl::Status CheckImages(const ImagesHash& hash,
                         const IndexSampleRecord& record) {
  if (hash.value() == record.image_check) return absl::OkStatus();
  return Differs(
      "the length or the header of an image or a video is not the index's");
}

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

// Of objects that a line names, of which the index has no stamp: whether one
// has by now another version than the one that was seen last.
bool HaveChanged(const JsonSample& line, const MediaRoot& media) {
  std::vector<std::string> paths = line.images;
  for (const JsonVideo& video : line.videos) {
    if (video.frames.empty()) paths.push_back(video.path);
    paths.insert(paths.end(), video.frames.begin(), video.frames.end());
  }
  bool changed = false;
  for (const std::string& path : paths) {
    const auto seen = media.Open(path, ReadFrom::kMemory);
    if (!seen.ok()) continue;
    const auto now = Storage::OfProcess().Stamp(seen->path());
    changed = changed || !now.ok() || !(*now == seen->stamp());
  }
  return changed;
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
  BALLAST_ASSIGN_OR_RETURN(const bool lists, HasList(number));
  const absl::string_view name = index_->file_name(record.file);
  const std::string where = absl::StrCat(Printable(name), ": sample ", number,
                                         " at byte ", record.offset);
  const absl::StatusOr<std::shared_ptr<const File>> file =
      files_.Get(record.file, parts.from);
  if (!file.ok()) return Annotate(file.status(), where);
  FileView view(file->get(), parts.from, FileOwner(record));
  absl::StatusOr<FaultOr<RawSample>> sample = [&] {
    const absl::Status begun = view.Begin();
    return SeparateFault(
        begun.ok() ? LoadAndRead(record, name, parts, lists, &view) : begun);
  }();
  // A text is identified by its hash, wherever it was read; images in the file
  // only by their headers.
  const bool is_proven =
      sample.ok() && sample->ok() &&
      (!parts.images || !HoldsImages() ||
       (record.num_images == 0 && (*sample)->videos.empty()));
  if (is_proven) return sample;
  if (sample.ok()) {
    const absl::Status indexed =
        CheckIsIndexed(view, index_->file_stamp(record.file));
    if (indexed.ok() && sample->ok()) return sample;
    if (!indexed.ok()) sample = indexed;
  }
  // Drops the file so that the next attempt opens it again: a stale handle
  // never recovers, and the file may have been replaced.
  if (parts.from == ReadFrom::kDisk) {
    files_.Drop(record.file, **file);
    // Opens an object in the version that it has seen last: this asks, so that
    // it knows the present one.
    if (view.object() != nullptr) {
      (void)Storage::OfProcess().Stamp((*file)->path());
    }
  }
  if (!sample.ok()) return Annotate(sample.status(), where);
  return DataFault(absl::StrCat(where, ": ", sample->fault().reason(),
                                "; the file has changed since it was indexed, "
                                "although its size and its time have not"));
}

absl::StatusOr<bool> FileSource::HasList(uint64_t number) const {
  BALLAST_ASSIGN_OR_RETURN(const absl::Span<const IndexedVideo> videos,
                           index_->videos(number));
  return std::any_of(videos.begin(), videos.end(), [](const auto& video) {
    return (video.flags & IndexedVideo::kIsList) != 0;
  });
}

absl::StatusOr<RawSample> FileSource::LoadAndRead(
    const IndexSampleRecord& record, absl::string_view file_name,
    ReadParts parts, bool lists, FileView* view) const {
  if (view->object() != nullptr) {
    BALLAST_ASSIGN_OR_RETURN(const std::vector<ByteRange> ranges,
                             RangesOf(record, *view, parts.images));
    BALLAST_RETURN_IF_ERROR(view->Load(ranges));
  }
  return ReadRecord(record, *view, file_name, parts, lists);
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
                             RangesOf(record, view, /*images=*/true));
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
  BALLAST_ASSIGN_OR_RETURN(const uint64_t more,
                           FetchMore(record, view, make_room));
  return fetched + more;
}

bool FileSource::IsHere(uint64_t ordinal) const {
  if (!InStore() || ordinal >= index_->size()) return true;
  if (!index_->Touch(ordinal).ok()) return false;
  const IndexSampleRecord& record = index_->record(ordinal);
  const auto file = files_.Get(record.file, ReadFrom::kMemory);
  if (!file.ok()) return false;
  const FileView view(file->get(), ReadFrom::kMemory, FileOwner(record));
  if (view.object() != nullptr) {
    const auto ranges = RangesOf(record, view, /*images=*/true);
    if (!ranges.ok() ||
        !std::all_of(ranges->begin(), ranges->end(), [&](ByteRange range) {
          return view.object()->IsHere(range, view.owner());
        })) {
      return false;
    }
  }
  return IsMoreHere(record, view);
}

bool FileSource::InStore() const { return in_store_; }

absl::StatusOr<std::vector<ByteRange>> FileSource::RangesOf(
    const IndexSampleRecord& record, FileView file, bool /*images*/) const {
  return std::vector<ByteRange>{
      RangeToKeep({record.offset, record.length}, file.size())};
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
  if (!HoldsImages()) owners->push_back(SampleOwner(record));
}

SampleLocation FileSource::Locate(uint64_t ordinal) const {
  // Does not touch the disk: it may hang while a caller asks.
  if (ordinal >= index_->size() || !index_->IsTouched(ordinal)) return {};
  const IndexSampleRecord& record = index_->record(ordinal);
  return {std::string(index_->file_name(record.file)), record.offset,
          record.line};
}

absl::StatusOr<RawSample> WebDatasetSource::ReadRecord(
    const IndexSampleRecord& record, FileView file, absl::string_view file_name,
    ReadParts parts, bool lists) const {
  const uint64_t end = record.offset + record.length;
  WebDatasetReader reader(file, record.offset, end, /*whole=*/false, lists);
  BALLAST_ASSIGN_OR_RETURN(const std::optional<WebDatasetSample> found,
                           reader.Next());
  if (!found || found->begin != record.offset || found->end != end) {
    return Differs("no sample of ", record.length, " bytes");
  }
  RawSample sample;
  sample.name = WebDatasetSampleName(file_name, found->key);
  const auto at_key = [&](const absl::Status& status) {
    return Annotate(status, absl::StrCat("key ", Printable(found->key)));
  };
  if (!found->fault.ok()) return at_key(found->fault);
  BALLAST_RETURN_IF_ERROR(
      at_key(CheckImageCount(found->images.size(), record)));
  sample.text_format = found->text_format;
  // Also read if only images are wanted: it shows that they belong to this
  // sample.
  BALLAST_ASSIGN_OR_RETURN(std::string text,
                           file.ReadAt(found->text.data, found->text.size));
  if (TextHash(found->key, text) != record.text_check) {
    return at_key(Differs("this key or its text is not the index's"));
  }
  if (parts.text) sample.text = std::move(text);
  if (!parts.images) return sample;
  ImagesHash hash;
  for (const TarMember& image : found->images) {
    BALLAST_RETURN_IF_ERROR(ReadImage(file, image.data, image.size,
                                      found->images.size(), parts, &hash,
                                      &sample));
  }
  for (const WebDatasetVideo& video : found->videos) {
    std::vector<ByteRange> ranges;
    for (const TarMember& member : video.members) {
      ranges.push_back({member.data, member.size});
    }
    BALLAST_RETURN_IF_ERROR(
        at_key(ReadMembers(file, ranges, video.is_list, &hash, &sample)));
  }
  BALLAST_RETURN_IF_ERROR(at_key(CheckImages(hash, record)));
  return sample;
}

absl::StatusOr<RawSample> JsonlSource::ReadRecord(
    const IndexSampleRecord& record, FileView file, absl::string_view file_name,
    ReadParts parts, bool /*lists*/) const {
  if (record.length > kMaxTextBytes) {
    return Differs("line of ", record.length, " bytes");
  }
  BALLAST_ASSIGN_OR_RETURN(std::string line,
                           file.ReadAt(record.offset, record.length));
  if (Checksum(line) != record.text_check) {
    return Differs("line ", record.line, " is another");
  }
  RawSample sample;
  sample.name = JsonlSampleName(file_name, record.line);
  const auto at_line = [&](const absl::Status& status) {
    return Annotate(status, absl::StrCat("line ", record.line));
  };
  const absl::StatusOr<JsonSample> found = ParseJsonSample(line);
  if (!found.ok()) return at_line(found.status());
  BALLAST_RETURN_IF_ERROR(
      at_line(CheckImageCount(found->images.size(), record)));
  sample.text_format = found->text_format;
  uint64_t left = kMaxSampleBytes - line.size();
  if (parts.text) sample.text = std::move(line);
  if (!parts.images) return sample;
  ImagesHash hash;
  for (const std::string& path : found->images) {
    const absl::StatusOr<File> image = media_.Open(path, parts.from);
    if (!image.ok()) return at_line(image.status());
    FileView view(&*image, parts.from, SampleOwner(record));
    const uint64_t size = view.size();
    if (size > left) {
      return at_line(Differs("over ", kMaxSampleBytes, " bytes in all"));
    }
    left -= size;
    BALLAST_RETURN_IF_ERROR(view.Load({{0, size}}));
    BALLAST_RETURN_IF_ERROR(
        ReadImage(view, 0, size, found->images.size(), parts, &hash, &sample));
    BALLAST_RETURN_IF_ERROR(at_line(view.CheckUnchanged()));
  }
  for (const JsonVideo& named : found->videos) {
    BALLAST_RETURN_IF_ERROR(
        at_line(ReadNamedVideo(named, media_, parts.from, SampleOwner(record),
                               &left, &hash, &sample)));
  }
  const absl::Status checked = CheckImages(hash, record);
  if (!checked.ok() && parts.from == ReadFrom::kDisk && media_.InStore() &&
      HaveChanged(*found, media_)) {
    return at_line(absl::UnavailableError(
        "named media have another version in the store than was read"));
  }
  // To build an index nobody looks at them while the line is as it was.
  BALLAST_RETURN_IF_ERROR(
      at_line(Annotate(checked, "named media, indexed anew by --rebuild")));
  return sample;
}

absl::StatusOr<std::vector<std::string>> JsonlSource::MediaOf(
    const IndexSampleRecord& record, FileView file) const {
  std::vector<std::string> paths;
  if (!media_.InStore() || record.image_check == 0 ||
      record.length > kMaxTextBytes) {
    return paths;
  }
  BALLAST_RETURN_IF_ERROR(
      file.Load({RangeToKeep({record.offset, record.length}, file.size())}));
  BALLAST_ASSIGN_OR_RETURN(const std::string line,
                           file.ReadAt(record.offset, record.length));
  const absl::StatusOr<JsonSample> found = ParseJsonSample(line);
  if (!found.ok()) return paths;
  paths = found->images;
  for (const JsonVideo& video : found->videos) {
    if (video.frames.empty()) paths.push_back(video.path);
    paths.insert(paths.end(), video.frames.begin(), video.frames.end());
  }
  return paths;
}

bool JsonlSource::IsMoreHere(const IndexSampleRecord& record,
                             FileView file) const {
  const auto paths = MediaOf(record, file);
  if (!paths.ok()) return false;
  return std::all_of(paths->begin(), paths->end(), [&](const auto& path) {
    const auto media = media_.Open(path, ReadFrom::kMemory);
    if (!media.ok()) return false;
    const uint64_t size = media->stamp().size;
    return media->object() == nullptr || size > kMaxSampleBytes ||
           media->object()->IsHere({0, size}, SampleOwner(record));
  });
}

absl::StatusOr<uint64_t> JsonlSource::FetchMore(
    const IndexSampleRecord& record, FileView file,
    const MakeRoom& make_room) const {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                           MediaOf(record, file));
  uint64_t fetched = 0;
  for (const std::string& path : paths) {
    BALLAST_ASSIGN_OR_RETURN(const File image, media_.Open(path));
    const uint64_t size = image.stamp().size;
    if (image.object() == nullptr || size > kMaxSampleBytes) continue;
    BALLAST_ASSIGN_OR_RETURN(
        const uint64_t bytes,
        image.object()->FetchAhead({0, size}, SampleOwner(record), make_room));
    fetched += bytes;
  }
  return fetched;
}

}  // namespace ballast
