#include "server/data/index/index_file.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>
#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/aligned_buffer.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace ballast {

namespace {

constexpr uint64_t kChecksumsInPage = kIndexPageBytes / sizeof(uint64_t);
// Gaps of up to this many pages between two wanted pages are read with them:
// one long read is cheaper than two, and steps that want so many pages of an
// index soon want the rest.
constexpr uint64_t kSmallGap = 16;

// The system reads ahead at most the device's `read_ahead_kb` per call; this is
// the default.
constexpr uint64_t kReadAheadBytes = 128 << 10;

void ReadAheadPages(absl::string_view bytes, std::vector<uint64_t>* pages) {
  std::sort(pages->begin(), pages->end());
  for (size_t i = 0; i < pages->size();) {
    size_t next = i + 1;
    while (next < pages->size() &&
           (*pages)[next] - (*pages)[next - 1] <= kSmallGap + 1) {
      ++next;
    }
    const uint64_t begin = (*pages)[i] * kIndexPageBytes;
    const uint64_t end = ((*pages)[next - 1] + 1) * kIndexPageBytes;
    ReadAhead(bytes.substr(begin, end - begin));
    i = next;
  }
}

}  // namespace

void ReadAhead(absl::string_view bytes) {
  static const uint64_t memory_page = sysconf(_SC_PAGESIZE);
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t end = address + bytes.size();
  for (uintptr_t at = address / memory_page * memory_page; at < end;
       at += kReadAheadBytes) {
    // Bytes that cannot be read ahead are read when they are touched.
    madvise(reinterpret_cast<void*>(at),
            std::min<uint64_t>(end - at, kReadAheadBytes), MADV_WILLNEED);
  }
}

std::vector<uint64_t> PageChecksums(
    absl::Span<const absl::string_view> pieces) {
  std::vector<uint64_t> checksums;
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  uint64_t in_page = 0;
  for (absl::string_view piece : pieces) {
    while (!piece.empty()) {
      const uint64_t part =
          std::min<uint64_t>(piece.size(), kIndexPageBytes - in_page);
      XXH3_64bits_update(&state, piece.data(), part);
      piece.remove_prefix(part);
      in_page += part;
      if (in_page < kIndexPageBytes) continue;
      checksums.push_back(XXH3_64bits_digest(&state));
      XXH3_64bits_reset(&state);
      in_page = 0;
    }
  }
  if (in_page > 0) checksums.push_back(XXH3_64bits_digest(&state));
  return checksums;
}

CheckedPages::CheckedPages(absl::string_view bytes,
                           absl::Span<const uint64_t> checksums)
    : bytes_(bytes),
      checksums_(checksums),
      checked_(new std::atomic<uint64_t>[(checksums.size() + 63) / 64]()) {}

std::optional<uint64_t> CheckedPages::Check(uint64_t offset,
                                            uint64_t size) const {
  if (size == 0) return std::nullopt;
  const uint64_t last = (offset + size - 1) / kIndexPageBytes;
  for (uint64_t page = offset / kIndexPageBytes; page <= last; ++page) {
    if (IsPageChecked(page)) continue;
    if (Checksum(bytes_.substr(page * kIndexPageBytes, kIndexPageBytes)) !=
        checksums_[page]) {
      return page;
    }
    checked_[page / 64].fetch_or(uint64_t{1} << page % 64,
                                 std::memory_order_relaxed);
  }
  return std::nullopt;
}

uint64_t CheckedPages::num_checked() const {
  uint64_t sum = 0;
  for (size_t i = 0; i < (checksums_.size() + 63) / 64; ++i) {
    sum += std::popcount(checked_[i].load(std::memory_order_relaxed));
  }
  return sum;
}

IndexPages::IndexPages(absl::string_view file, uint64_t records, uint64_t table,
                       absl::Span<const uint64_t> checksums)
    : file_(file),
      records_(file.substr(records, table - records),
               absl::MakeConstSpan(
                   reinterpret_cast<const uint64_t*>(file.data() + table),
                   (file.size() - table) / sizeof(uint64_t))),
      table_(file.substr(table), checksums) {}

absl::Status IndexPages::Damaged(const CheckedPages& pages, uint64_t page,
                                 absl::string_view what) const {
  const absl::string_view bytes =
      pages.bytes().substr(page * kIndexPageBytes, kIndexPageBytes);
  const uint64_t begin = bytes.data() - file_.data();
  return absl::DataLossError(
      absl::StrCat("bytes ", begin, " to ", begin + bytes.size() - 1,
                   " are not what was written (", what, " page ", page, ")"));
}

absl::Status IndexPages::Check(uint64_t offset, uint64_t size) const {
  const uint64_t first = offset / kIndexPageBytes;
  const uint64_t pages = (offset + size - 1) / kIndexPageBytes - first + 1;
  if (const auto damaged =
          table_.Check(first * sizeof(uint64_t), pages * sizeof(uint64_t))) {
    return Damaged(table_, *damaged, "checksum");
  }
  if (const auto damaged = records_.Check(offset, size)) {
    return Damaged(records_, *damaged, "record");
  }
  return absl::OkStatus();
}

void IndexPages::AddUntouched(uint64_t offset, uint64_t size,
                              std::vector<uint64_t>* pages) const {
  if (size == 0) return;
  const uint64_t last = (offset + size - 1) / kIndexPageBytes;
  for (uint64_t page = offset / kIndexPageBytes; page <= last; ++page) {
    if (!records_.IsPageChecked(page)) pages->push_back(page);
  }
}

void IndexPages::Prefetch(std::vector<uint64_t> pages) const {
  std::vector<uint64_t> of_table;
  for (const uint64_t page : pages) {
    const uint64_t wanted = page / kChecksumsInPage;
    if (!table_.IsPageChecked(wanted)) of_table.push_back(wanted);
  }
  ReadAheadPages(table_.bytes(), &of_table);
  ReadAheadPages(records_.bytes(), &pages);
}

namespace {

// Samples between calls of `progress`: about one second of work.
constexpr uint64_t kSamplesOfProgress = 1 << 23;

// Returns whether `count` records of `size` bytes at `offset` end exactly at
// `end`.
bool Fills(uint64_t offset, uint64_t count, uint64_t size, uint64_t end) {
  return offset <= end && count <= (end - offset) / size &&
         offset + count * size == end;
}

// Number of pages of records, and of pages of their checksums.
uint64_t RecordPages(const IndexHeader& header) {
  return (header.page_checksums - header.sample_table) / kIndexPageBytes;
}
uint64_t TablePages(const IndexHeader& header) {
  return AlignUp(RecordPages(header) * sizeof(uint64_t), kIndexPageBytes) /
         kIndexPageBytes;
}

// Returns whether the tables of the head follow one another up to the samples.
bool HeadFits(const IndexHeader& header, const IndexHashesHeader* hashes) {
  const uint64_t headers = IndexHeaderBytes(header.version);
  const uint64_t files_end =
      hashes == nullptr ? header.table_checksums : hashes->media_times;
  return header.file_table == headers &&
         Fills(headers, header.num_files, sizeof(IndexFileRecord), files_end) &&
         (hashes == nullptr ||
          Fills(files_end, header.num_files, sizeof(int64_t),
                header.table_checksums)) &&
         header.names >= header.table_checksums &&
         header.names <= header.sample_table &&
         (header.names - header.table_checksums) % sizeof(uint64_t) == 0 &&
         (header.names - header.table_checksums) / sizeof(uint64_t) >=
             TablePages(header);
}

// Returns whether the tables follow one another inside total_bytes, as the
// format wants it. `hashes` is null in a file of version 6, `times` in one of
// version 7, too. Any values are safe.
bool TablesFit(const IndexHeader& header, const IndexMarksHeader& marks,
               const IndexVideosHeader& videos, const IndexHashesHeader* hashes,
               const IndexTimesHeader* times) {
  // Each is below 2^63, so that the sum does not wrap.
  if (header.num_samples > header.total_bytes ||
      header.num_left_out > header.total_bytes ||
      header.sample_table % kIndexPageBytes != 0 ||
      header.page_checksums % kIndexPageBytes != 0 ||
      header.sample_table > header.page_checksums ||
      header.page_checksums > header.total_bytes || !HeadFits(header, hashes)) {
    return false;
  }
  const uint64_t records = header.num_samples + header.num_left_out;
  const uint64_t starts = videos.num_videos == 0 ? 0 : records + 1;
  const uint64_t video_hashes =
      hashes == nullptr ? marks.mark_table : hashes->video_hash_table;
  const uint64_t num_video_hashes =
      hashes == nullptr ? 0 : hashes->num_video_hashes;
  const uint64_t num_times = times == nullptr ? 0 : times->num_times;
  const uint64_t time_starts =
      times == nullptr ? marks.mark_table : times->start_table;
  const uint64_t first_time =
      times == nullptr ? marks.mark_table : times->time_table;
  return Fills(header.sample_table, records, sizeof(IndexSampleRecord),
               header.image_table) &&
         Fills(header.image_table, header.num_images, sizeof(ImageSize),
               marks.hash_table) &&
         (marks.num_hashes == 0 || marks.num_hashes == header.num_images) &&
         Fills(marks.hash_table, marks.num_hashes, sizeof(uint64_t),
               videos.start_table) &&
         videos.num_sample_videos <= videos.num_videos &&
         videos.num_sample_clips <= videos.num_sample_videos &&
         Fills(videos.start_table, starts, sizeof(uint64_t),
               videos.video_table) &&
         Fills(videos.video_table, videos.num_videos, sizeof(StreamFacts),
               video_hashes) &&
         (num_video_hashes == 0 || num_video_hashes == videos.num_videos) &&
         Fills(video_hashes, num_video_hashes, sizeof(uint64_t), time_starts) &&
         Fills(time_starts, num_times == 0 ? 0 : starts, sizeof(uint64_t),
               first_time) &&
         (num_times == 0 || starts != 0) &&
         Fills(first_time, num_times, sizeof(uint32_t), marks.mark_table) &&
         marks.mark_table <= header.page_checksums &&
         header.num_images <=
             (header.page_checksums - marks.mark_table) / sizeof(ImageMark) &&
         header.page_checksums - marks.mark_table -
                 header.num_images * sizeof(ImageMark) <
             kIndexPageBytes &&
         (hashes == nullptr || hashes->is_hashed == 0 ||
          (marks.num_hashes == header.num_images &&
           num_video_hashes == videos.num_videos)) &&
         Fills(header.page_checksums, RecordPages(header), sizeof(uint64_t),
               header.total_bytes);
}

Digest DigestAt(const uint64_t (&halves)[2]) { return {halves[0], halves[1]}; }

}  // namespace

absl::StatusOr<std::shared_ptr<const IndexFile>> IndexFile::Open(
    const std::string& path, EncodedRule rule) {
  return Open(path, rule, kIndexVersion);
}

absl::StatusOr<std::shared_ptr<const IndexFile>> IndexFile::OpenToReuse(
    const std::string& path) {
  return Open(path, EncodedRule::kNone, kOldestReusedVersion);
}

absl::StatusOr<std::shared_ptr<const IndexFile>> IndexFile::Open(
    const std::string& path, EncodedRule rule, uint32_t oldest_version) {
  BALLAST_ASSIGN_OR_RETURN(File file, File::Open(path));
  const uint64_t size = file.stamp().size;
  // Headers of other versions may have other sizes.
  if (size < offsetof(IndexHeader, total_bytes)) {
    return absl::DataLossError(absl::StrCat(
        path, ": index of ", size, " bytes, wanted at least ",
        offsetof(IndexHeader, total_bytes), "; it is damaged or not an index"));
  }
  BALLAST_ASSIGN_OR_RETURN(const char* data, file.Map());
  auto index = absl::WrapUnique(
      new IndexFile(std::move(file), absl::string_view(data, size), rule));
  BALLAST_RETURN_IF_ERROR(index->CheckHead(oldest_version));
  return std::shared_ptr<const IndexFile>(std::move(index));
}

IndexFile::IndexFile(File file, absl::string_view mapped, EncodedRule rule)
    : file_(std::move(file)),
      mapped_(mapped),
      rule_(rule),
      ctime_ns_(file_.opened().ctime_ns) {}

IndexFile::~IndexFile() {
  munmap(const_cast<char*>(mapped_.data()), mapped_.size());
}

void IndexFile::Advise(int advice) const {
  // Ignores a failure: the pages are read all the same.
  madvise(const_cast<char*>(mapped_.data()), mapped_.size(), advice);
}

absl::Status IndexFile::Damaged(absl::string_view reason) const {
  return absl::DataLossError(absl::StrCat(path(), ": damaged index: ", reason));
}

absl::Status IndexFile::CheckHead(uint32_t oldest_version) {
  // Look-ups are spread over the file, so only the pages that Prefetch requests
  // are read, without their neighbours.
  Advise(MADV_RANDOM);
  BALLAST_RETURN_IF_ERROR(ReadHeader(oldest_version));
  BALLAST_RETURN_IF_ERROR(CheckHeader());
  const auto at = [&](uint64_t offset) { return mapped_.data() + offset; };
  files_ = absl::MakeConstSpan(
      reinterpret_cast<const IndexFileRecord*>(at(header_->file_table)),
      header_->num_files);
  samples_ = absl::MakeConstSpan(
      reinterpret_cast<const IndexSampleRecord*>(at(header_->sample_table)),
      header_->num_samples + header_->num_left_out);
  images_ = absl::MakeConstSpan(
      reinterpret_cast<const ImageSize*>(at(header_->image_table)),
      header_->num_images);
  marks_ = absl::MakeConstSpan(
      reinterpret_cast<const ImageMark*>(at(marks_header_->mark_table)),
      header_->num_images);
  hashes_ = absl::MakeConstSpan(
      reinterpret_cast<const uint64_t*>(at(marks_header_->hash_table)),
      marks_header_->num_hashes);
  if (hashes_header_ != nullptr) {
    stream_hashes_ = absl::MakeConstSpan(
        reinterpret_cast<const uint64_t*>(at(hashes_header_->video_hash_table)),
        hashes_header_->num_video_hashes);
    media_times_ = absl::MakeConstSpan(
        reinterpret_cast<const int64_t*>(at(hashes_header_->media_times)),
        header_->num_files);
  }
  if (times_header_ != nullptr && times_header_->num_times != 0) {
    time_starts_ = absl::MakeConstSpan(
        reinterpret_cast<const uint64_t*>(at(times_header_->start_table)),
        samples_.size() + 1);
    times_ = absl::MakeConstSpan(
        reinterpret_cast<const uint32_t*>(at(times_header_->time_table)),
        times_header_->num_times);
  }
  if (videos_header_->num_videos != 0) {
    stream_starts_ = absl::MakeConstSpan(
        reinterpret_cast<const uint64_t*>(at(videos_header_->start_table)),
        samples_.size() + 1);
    streams_ = absl::MakeConstSpan(
        reinterpret_cast<const StreamFacts*>(at(videos_header_->video_table)),
        videos_header_->num_videos);
  }
  digests_.sizes = DigestAt(header_->sizes_digest);
  digests_.lengths = DigestAt(header_->lengths_digest);
  digests_.limits = DigestAt(header_->limits_digest);
  const auto* checksums =
      reinterpret_cast<const uint64_t*>(at(header_->table_checksums));
  const absl::Span<const uint64_t> table = absl::MakeConstSpan(
      checksums, reinterpret_cast<const uint64_t*>(at(header_->names)));
  const uint64_t pages = TablePages(*header_);
  pages_ = IndexPages(mapped_, header_->sample_table, header_->page_checksums,
                      table.first(pages));
  group_starts_ = table.subspan(pages);
  BALLAST_RETURN_IF_ERROR(CheckGroups());
  BALLAST_RETURN_IF_ERROR(CheckFiles());
  checksum_ = header_->header_checksum;
  // What was read is of the file that was opened.
  return CheckUnchanged();
}

bool IndexFile::HeadIsSame() const {
  // The header's checksum covers the head's checksum, and so all contents.
  return header_->header_checksum == checksum_ &&
         Checksum(mapped_.substr(0, offsetof(IndexHeader, header_checksum))) ==
             checksum_ &&
         Checksum(
             mapped_.substr(sizeof(IndexHeader),
                            header_->sample_table - sizeof(IndexHeader))) ==
             header_->head_checksum;
}

absl::Status IndexFile::CheckUnchanged() const {
  BALLAST_ASSIGN_OR_RETURN(const FileState now, file_.State(ReadFrom::kMemory));
  const FileState opened = file_.opened();
  const int64_t same = ctime_ns_.load(std::memory_order_relaxed);
  bool is_same = now.stamp == opened.stamp;
  if (is_same && now.ctime_ns != same) {
    is_same = HeadIsSame();
    if (is_same) ctime_ns_.store(now.ctime_ns, std::memory_order_relaxed);
  }
  if (is_same) {
    if (is_changed_.exchange(false)) {
      LogInfo(path(), ": the index is again the one that was opened");
    }
    return absl::OkStatus();
  }
  const absl::Status changed = absl::DataLossError(absl::StrCat(
      path(), ": the index has changed under this server: it has ",
      now.stamp.size, " bytes, modified at ",
      absl::FormatTime(absl::FromUnixNanos(now.stamp.mtime_ns)), ", and had ",
      opened.stamp.size, " bytes, modified at ",
      absl::FormatTime(absl::FromUnixNanos(opened.stamp.mtime_ns)),
      ", when it was opened. Was it copied over in place? restore it, or "
      "restart all servers of the job; `ballast-server index` replaces an "
      "index instead"));
  if (!is_changed_.exchange(true)) LogError(changed.message());
  return changed;
}

absl::Status IndexFile::ReadHeader(uint32_t oldest_version) {
  header_ = reinterpret_cast<const IndexHeader*>(mapped_.data());
  if (header_->magic != kIndexMagic) return Damaged("this is no index");
  const uint32_t version = header_->version;
  if (version < oldest_version || version > kIndexVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        path(), ": index of version ", version, ", wanted ", kIndexVersion,
        version > kIndexVersion
            ? ": a later version of this program wrote it"
            : ": an earlier version of this program wrote it"));
  }
  const uint64_t size = IndexHeaderBytes(version);
  if (mapped_.size() < size) {
    return Damaged(absl::StrCat("it has ", mapped_.size(), " bytes, wanted ",
                                size, " for its header alone"));
  }
  if (header_->header_checksum !=
      Checksum(mapped_.substr(0, offsetof(IndexHeader, header_checksum)))) {
    return Damaged("the header's checksum differs");
  }
  marks_header_ = reinterpret_cast<const IndexMarksHeader*>(header_ + 1);
  videos_header_ =
      reinterpret_cast<const IndexVideosHeader*>(marks_header_ + 1);
  if (version > 6) {
    hashes_header_ =
        reinterpret_cast<const IndexHashesHeader*>(videos_header_ + 1);
  }
  if (version > 7) {
    times_header_ =
        reinterpret_cast<const IndexTimesHeader*>(hashes_header_ + 1);
  }
  return absl::OkStatus();
}

absl::Status IndexFile::CheckHeader() const {
  const IndexHeader& header = *header_;
  if (header.total_bytes != mapped_.size()) {
    return Damaged(absl::StrCat("it has ", mapped_.size(), " bytes, wanted ",
                                header.total_bytes));
  }
  if (!TablesFit(*header_, *marks_header_, *videos_header_, hashes_header_,
                 times_header_)) {
    return Damaged("its tables do not lie one after another");
  }
  ReadAhead(mapped_.substr(0, header.sample_table));
  if (header.head_checksum !=
      Checksum(mapped_.substr(sizeof(IndexHeader),
                              header.sample_table - sizeof(IndexHeader)))) {
    return Damaged("the checksum of its files and names differs");
  }
  return absl::OkStatus();
}

absl::Status IndexFile::CheckFiles() const {
  const uint64_t bytes = header_->sample_table - header_->names;
  for (uint64_t i = 0; i < files_.size(); ++i) {
    const IndexFileRecord& file = files_[i];
    if (file.name > bytes || file.name_bytes > bytes - file.name) {
      return Damaged(absl::StrCat("file ", i, " has its name outside"));
    }
  }
  return absl::OkStatus();
}

absl::Status IndexFile::CheckGroups() const {
  uint64_t least = 0;
  for (uint64_t i = 0; i < group_starts_.size(); ++i) {
    const uint64_t start = group_starts_[i];
    if (start < least || start >= header_->num_samples ||
        (i == 0 && start != 0)) {
      return Damaged(absl::StrCat("group ", i, " begins at sample ", start,
                                  " of ", header_->num_samples));
    }
    least = start + 1;
  }
  return absl::OkStatus();
}

absl::Status IndexFile::TouchPagesAnew(Range range) const {
  const absl::Status status = pages_.Touch(range.offset, range.size);
  if (status.ok()) return status;
  return Damaged(absl::StrCat(
      status.message(),
      "; was it written to or copied in part, or does its disk fail? "
      "`ballast-server index --config F --verify` reads all of it and builds "
      "it anew"));
}

absl::Status IndexFile::CheckRecord(uint64_t number) const {
  const IndexSampleRecord& sample = samples_[number];
  if (LeadsInside(sample)) return absl::OkStatus();
  if (sample.file >= files_.size()) {
    return Damaged(absl::StrCat("sample ", number, " in file ", sample.file,
                                " of ", files_.size()));
  }
  const uint64_t size = files_[sample.file].size;
  if (sample.offset > size || sample.length > size - sample.offset) {
    return Damaged(absl::StrCat("sample ", number, " lies outside its file"));
  }
  return Damaged(absl::StrCat("sample ", number, " has images ",
                              sample.first_image, " and ", sample.num_images,
                              " more, of ", images_.size()));
}

absl::Status IndexFile::TouchAnew(uint64_t number) const {
  BALLAST_RETURN_IF_ERROR(TouchRecord(number));
  BALLAST_RETURN_IF_ERROR(TouchPages(ImagesRange(number)));
  for (const ImageSize& image : images(number)) {
    if (image.width == 0 || image.height == 0) {
      return Damaged(
          absl::StrCat("an image of sample ", number, " has a side of 0"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<IndexedSample> IndexFile::sample(uint64_t ordinal) const {
  BALLAST_RETURN_IF_ERROR(Touch(ordinal));
  const IndexSampleRecord& record = samples_[ordinal];
  IndexedSample sample = {record.text_tokens, record.label_tokens};
  absl::Span<const ImageMark> of_images;
  if (GivesMarks() && record.num_images > 0) {
    BALLAST_RETURN_IF_ERROR(TouchPages(MarksRange(ordinal)));
    of_images = marks(ordinal);
    sample.rule = rule_;
  }
  BALLAST_ASSIGN_OR_RETURN(const absl::Span<const StreamFacts> streams,
                           streams(ordinal));
  BALLAST_ASSIGN_OR_RETURN(const FrameTimes of_streams, times(ordinal));
  sample.media = MediaList(images(ordinal), of_images, streams, of_streams);
  sample.first_text_tokens = record.first_text_tokens;
  // The upper half is a hash of the text, with a recipe of its input.
  sample.text_check = static_cast<uint16_t>(record.text_check >> 48);
  return sample;
}

MediaCounts IndexFile::media_counts() const {
  MediaCounts counts;
  counts[MediumKind::kImage] = mark_counts().images;
  const uint64_t in_rows = videos_header_->num_sample_clips;
  counts[MediumKind::kVideo] = videos_header_->num_sample_videos - in_rows;
  // All are of the one such kind that the model takes.
  for (uint64_t i = in_rows == 0 ? 0 : videos_header_->num_sample_videos; i > 0;
       --i) {
    const MediumKind kind = streams_[i - 1].kind();
    if (kind == MediumKind::kVideo) continue;
    counts[kind] = in_rows;
    break;
  }
  return counts;
}

absl::StatusOr<absl::Span<const StreamFacts>> IndexFile::streams(
    uint64_t number) const {
  if (streams_.empty()) return absl::Span<const StreamFacts>();
  const absl::Span<const uint64_t> ends = stream_starts_.subspan(number, 2);
  BALLAST_RETURN_IF_ERROR(TouchPages(GetRange(ends)));
  if (ends[0] > ends[1] || ends[1] > streams_.size()) {
    return Damaged(absl::StrCat("sample ", number, " has videos from ", ends[0],
                                " to ", ends[1], ", of ", streams_.size()));
  }
  const auto found = streams_.subspan(ends[0], ends[1] - ends[0]);
  if (found.empty()) return found;
  BALLAST_RETURN_IF_ERROR(TouchPages(GetRange(found)));
  for (const StreamFacts& video : found) {
    if (video.kind() != MediumKind::kVideo) continue;  // its plan checks it
    if (video.width == 0 || video.height == 0 || video.frames == 0) {
      return Damaged(absl::StrCat("a video of sample ", number,
                                  " has no frames, or a side of 0"));
    }
  }
  return found;
}

absl::StatusOr<FrameTimes> IndexFile::times(uint64_t number) const {
  if (times_.empty()) return FrameTimes();
  const absl::Span<const uint64_t> ends = time_starts_.subspan(number, 2);
  BALLAST_RETURN_IF_ERROR(TouchPages(GetRange(ends)));
  if (ends[0] > ends[1] || ends[1] > times_.size()) {
    return Damaged(absl::StrCat("sample ", number, " has times from ", ends[0],
                                " to ", ends[1], ", of ", times_.size()));
  }
  const FrameTimes found = times_.subspan(ends[0], ends[1] - ends[0]);
  if (!found.empty()) BALLAST_RETURN_IF_ERROR(TouchPages(GetRange(found)));
  return found;
}

absl::StatusOr<MediaHashes> IndexFile::media_hashes(uint64_t ordinal) const {
  MediaHashes found;
  BALLAST_ASSIGN_OR_RETURN(found.streams, stream_hashes(ordinal));
  if (hashes_.empty()) return found;
  BALLAST_RETURN_IF_ERROR(TouchRecord(ordinal));
  if (samples_[ordinal].num_images == 0) return found;
  BALLAST_RETURN_IF_ERROR(TouchPages(TableRange(hashes_, samples_[ordinal])));
  found.images = hashes(ordinal);
  return found;
}

absl::StatusOr<absl::Span<const uint64_t>> IndexFile::stream_hashes(
    uint64_t number) const {
  if (stream_hashes_.empty()) return absl::Span<const uint64_t>();
  BALLAST_ASSIGN_OR_RETURN(const absl::Span<const StreamFacts> found,
                           streams(number));
  const auto hashes = stream_hashes_.subspan(
      found.empty() ? 0 : found.data() - streams_.data(), found.size());
  if (!hashes.empty()) BALLAST_RETURN_IF_ERROR(TouchPages(GetRange(hashes)));
  return hashes;
}

void IndexFile::Prefetch(absl::Span<const uint64_t> ordinals) const {
  std::vector<uint64_t> untouched;
  // Fetches pages in memory into the processor's cache, others into memory.
  const auto fetch = [&](Range range) {
    const char* begin = mapped_.data() + header_->sample_table + range.offset;
    __builtin_prefetch(begin);
    __builtin_prefetch(begin + range.size - 1);
    pages_.AddUntouched(range.offset, range.size, &untouched);
  };
  for (const uint64_t ordinal : ordinals) fetch(RecordRange(ordinal));
  pages_.Prefetch(std::move(untouched));
  untouched.clear();
  for (const uint64_t ordinal : ordinals) {
    // Skips a damaged record: its look-up reports the damage.
    if (!TouchRecord(ordinal).ok()) continue;
    const Range range = ImagesRange(ordinal);
    if (range.size == 0) continue;
    fetch(range);
    if (GivesMarks()) fetch(MarksRange(ordinal));
  }
  pages_.Prefetch(std::move(untouched));
}

absl::Status IndexFile::Verify(
    const std::function<void(uint64_t samples)>& progress) const {
  Advise(MADV_NORMAL);
  const absl::Cleanup random = [this] { Advise(MADV_RANDOM); };
  uint64_t images = 0;
  for (uint64_t i = 0; i < samples_.size(); ++i) {
    if (progress && i % kSamplesOfProgress == 0) progress(i);
    BALLAST_RETURN_IF_ERROR(Touch(i));
    BALLAST_RETURN_IF_ERROR(CheckPlace(i, images));
    BALLAST_RETURN_IF_ERROR(streams(i).status());
    images += samples_[i].num_images;
  }
  if (images != images_.size()) {
    return Damaged(
        absl::StrCat(images_.size(), " images, its samples have ", images));
  }
  // The padding of the last page belongs to no record.
  return TouchPages({0, header_->page_checksums - header_->sample_table});
}

absl::Status IndexFile::CheckPlace(uint64_t number,
                                   uint64_t first_image) const {
  const IndexSampleRecord& sample = samples_[number];
  if (sample.first_image != first_image) {
    return Damaged(absl::StrCat("sample ", number, " has images from ",
                                sample.first_image, ", wanted from ",
                                first_image));
  }
  // Samples left out are ordered among themselves.
  if (number == 0 || number == header_->num_samples) return absl::OkStatus();
  const IndexSampleRecord& before = samples_[number - 1];
  if (std::tie(sample.file, sample.offset, sample.line) <
      std::tie(before.file, before.offset, before.line)) {
    return Damaged(absl::StrCat("sample ", number,
                                " stands after one that lies behind it"));
  }
  return absl::OkStatus();
}

std::string IndexFile::digest() const {
  return absl::StrFormat("%016x%016x", header_->data_digest[0],
                         header_->data_digest[1]);
}

std::string IndexFile::encoded_digest() const {
  if (!GivesMarks()) return "";
  const auto& halves = rule_ == EncodedRule::kUnchecked
                           ? marks_header_->unchecked_digest
                           : marks_header_->checked_digest;
  Digest digest = DigestAt(halves);
  if (is_hashed()) {
    // Servers that compare all hashes agree with no others.
    const Digest both[] = {digest, DigestAt(hashes_header_->hashes_digest)};
    digest = ComputeDigest(
        absl::string_view(reinterpret_cast<const char*>(both), sizeof(both)));
  }
  return absl::StrFormat("%016x%016x", digest[0], digest[1]);
}

ImageMarkCounts IndexFile::mark_counts() const {
  ImageMarkCounts counts;
  std::copy_n(marks_header_->checks, counts.checks.size(),
              counts.checks.begin());
  std::copy_n(marks_header_->refusals, counts.refusals.size(),
              counts.refusals.begin());
  counts.images = counts.marked();
  for (const uint64_t refused : counts.refusals) counts.images += refused;
  return counts;
}

absl::string_view IndexFile::file_name(uint64_t number) const {
  const IndexFileRecord& file = files_[number];
  return mapped_.substr(header_->names + file.name, file.name_bytes);
}

FileStamp IndexFile::file_stamp(uint64_t number) const {
  return {files_[number].size, files_[number].mtime_ns};
}

}  // namespace ballast
