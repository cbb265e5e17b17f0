#ifndef BALLAST_SERVER_DATA_INDEX_INDEX_FILE_H_
#define BALLAST_SERVER_DATA_INDEX_INDEX_FILE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/data/index/index_options.h"
#include "server/files/file.h"
#include "server/sample/index_format.h"
#include "server/sample/source_index.h"

namespace ballast {

// The unit of checking. A step's samples are spread over an index, so larger
// units would read bytes in vain; the system reads a whole page of memory in
// any case.
inline constexpr uint64_t kIndexPageBytes = 4096;

// XXH3-64 of each page of `pieces`, one after another; the last may be short.
std::vector<uint64_t> PageChecksums(absl::Span<const absl::string_view> pieces);

// Asks the system to read these bytes of a mapped file from the disk,
// asynchronously.
void ReadAhead(absl::string_view bytes);

// Bytes in memory, each page of which is checked against its checksum once,
// when first touched. Thread-safe: two threads that touch a page at the same
// time both check it.
class CheckedPages {
 public:
  CheckedPages() = default;
  // The number of checksums is the number of pages. Both must outlive this.
  CheckedPages(absl::string_view bytes, absl::Span<const uint64_t> checksums);

  absl::string_view bytes() const { return bytes_; }
  // Returns whether all pages of [offset, offset + size), which is inside, have
  // been checked. Does not read them.
  bool IsChecked(uint64_t offset, uint64_t size) const {
    if (size == 0) return true;
    const uint64_t last = (offset + size - 1) / kIndexPageBytes;
    for (uint64_t page = offset / kIndexPageBytes; page <= last; ++page) {
      if (!IsPageChecked(page)) return false;
    }
    return true;
  }
  bool IsPageChecked(uint64_t page) const {
    return checked_[page / 64].load(std::memory_order_relaxed) >> page % 64 & 1;
  }
  // Reads and checks those not yet checked. Returns the first damaged page, if
  // any.
  std::optional<uint64_t> Check(uint64_t offset, uint64_t size) const;
  // Number of pages checked so far.
  uint64_t num_checked() const;

 private:
  absl::string_view bytes_;
  absl::Span<const uint64_t> checksums_;
  // One bit per page. Only the bits are shared and the bytes never change, so
  // relaxed order suffices.
  std::unique_ptr<std::atomic<uint64_t>[]> checked_;
};

// The pages of an index's records, checked by a table of checksums whose own
// pages are checked in the same way. Thread-safe.
class IndexPages {
 public:
  IndexPages() = default;
  // `file` begins at a page of memory. Its records are the whole pages of
  // [records, table); the rest is the table, 8 bytes per page. `checksums` are
  // the checksums of its pages. Both must outlive this.
  IndexPages(absl::string_view file, uint64_t records, uint64_t table,
             absl::Span<const uint64_t> checksums);

  // OK if all pages of [offset, offset + size) of the records are undamaged.
  // Blocks on the disk. Errors: DATA_LOSS, naming the damaged bytes of the
  // file.
  absl::Status Touch(uint64_t offset, uint64_t size) const {
    if (records_.IsChecked(offset, size)) return absl::OkStatus();
    return Check(offset, size);
  }
  bool IsTouched(uint64_t offset, uint64_t size) const {
    return records_.IsChecked(offset, size);
  }

  // Appends the pages that Touch would read.
  void AddUntouched(uint64_t offset, uint64_t size,
                    std::vector<uint64_t>* pages) const;
  // Starts reading these pages of the records, and the pages of the table that
  // Touch needs for them, from the disk, all at once and asynchronously.
  void Prefetch(std::vector<uint64_t> pages) const;

  // Pages of records and table that have been read.
  uint64_t num_touched() const {
    return records_.num_checked() + table_.num_checked();
  }

 private:
  absl::Status Check(uint64_t offset, uint64_t size) const;
  absl::Status Damaged(const CheckedPages& pages, uint64_t page,
                       absl::string_view what) const;

  absl::string_view file_;
  CheckedPages records_;
  CheckedPages table_;
};

// An index file mapped into memory. Opening reads its head; each page of its
// records is checked when it is first touched. Thread-safe. Replacing the file,
// as BuildIndex does, does not affect the mapping; CheckUnchanged finds out
// whether something has written to it. If the file is truncated in place, or
// its disk fails, the process that touches the lost pages is killed, as with
// every mapping. Blocks on the disk at the first touch of a page.
class IndexFile final : public SourceIndex {
 public:
  // Maps `path` and checks its head: header, files, names. `rule` says which
  // images travel encoded. Errors: as File::Open; FAILED_PRECONDITION (another
  // version), DATA_LOSS (not an index, damaged).
  static absl::StatusOr<std::shared_ptr<const IndexFile>> Open(
      const std::string& path, EncodedRule rule = EncodedRule::kNone);
  // As Open, but also accepts versions from kOldestReusedVersion on.
  static absl::StatusOr<std::shared_ptr<const IndexFile>> OpenToReuse(
      const std::string& path);

  ~IndexFile() override;
  IndexFile(const IndexFile&) = delete;
  IndexFile& operator=(const IndexFile&) = delete;

  uint64_t size() const override { return header_->num_samples; }
  absl::StatusOr<IndexedSample> sample(uint64_t ordinal) const override;
  absl::Span<const uint64_t> group_starts() const override {
    return group_starts_;
  }
  // Compares the state of the mapped file, as the system knows it without
  // asking a disk or network, with that at Open. Where only the ctime differs
  // (a link or permissions have changed, or the same index was copied in place
  // with its time), the head is read again: its checksum identifies all
  // contents. A path that leads to another file by now does not matter. Logs
  // when the file has changed, and when it is the opened one again.
  absl::Status CheckUnchanged() const override;
  void Prefetch(absl::Span<const uint64_t> ordinals) const override;
  std::string digest() const override;
  absl::StatusOr<MediaHashes> media_hashes(uint64_t ordinal) const override;
  std::string encoded_digest() const override;
  ImageMarkCounts mark_counts() const override;
  MediaCounts media_counts() const override;
  bool is_hashed() const override {
    return hashes_header_ != nullptr && hashes_header_->is_hashed != 0;
  }
  // Whether any record, left out or not, has a stream.
  bool has_streams() const { return !streams_.empty(); }
  // The streams of record `number`, by kind, which must be
  // below num_records(). Blocks and fails as Touch.
  absl::StatusOr<absl::Span<const StreamFacts>> streams(uint64_t number) const;
  // The FrameTimes of the streams of record `number`, one after the other.
  // Blocks and fails as Touch.
  absl::StatusOr<FrameTimes> times(uint64_t number) const;
  // Whether its streams were read by the rules in force.
  bool HasMediaFacts() const {
    return streams_.empty() || times_header_ != nullptr;
  }

  // Reads the whole file and checks that every page is as it was written, and
  // that the records are in order and inside the tables and files that they
  // refer to. `progress`, which may be empty, is called occasionally with the
  // number of samples checked. Errors: DATA_LOSS.
  absl::Status Verify(
      const std::function<void(uint64_t samples)>& progress) const;

  const std::string& path() const { return file_.path(); }
  // v1::Source::Format as a number.
  uint32_t format() const { return header_->format; }
  const IndexDigests& digests() const { return digests_; }
  // Number of samples: size(), then those left out, which follow.
  uint64_t num_records() const { return samples_.size(); }
  // Checks that record `number`, which must be below num_records(), and its
  // images are as they were written and within bounds. Errors: DATA_LOSS,
  // naming the file and the offset in it.
  absl::Status Touch(uint64_t number) const {
    return IsTouched(number) ? absl::OkStatus() : TouchAnew(number);
  }
  // Returns whether Touch(number) has already checked it. Does not touch the
  // disk.
  bool IsTouched(uint64_t number) const {
    const Range record = RecordRange(number);
    if (!pages_.IsTouched(record.offset, record.size)) return false;
    if (!LeadsInside(samples_[number])) return false;
    const Range range = ImagesRange(number);
    if (!pages_.IsTouched(range.offset, range.size)) return false;
    for (const ImageSize& image : images(number)) {
      if (image.width == 0 || image.height == 0) return false;
    }
    return true;
  }
  // Valid once Touch(number), or Verify, has returned OK.
  const IndexSampleRecord& record(uint64_t number) const {
    return samples_[number];
  }
  absl::Span<const ImageSize> images(uint64_t number) const {
    return images_.subspan(samples_[number].first_image,
                           samples_[number].num_images);
  }
  // One for each image of the record; empty if the index has none at all. Valid
  // once Verify has returned OK.
  absl::Span<const ImageMark> marks(uint64_t number) const {
    return GetPart(marks_, number);
  }
  absl::Span<const uint64_t> hashes(uint64_t number) const {
    return GetPart(hashes_, number);
  }
  // One for each of streams(number), or none. Blocks and fails as streams().
  absl::StatusOr<absl::Span<const uint64_t>> stream_hashes(
      uint64_t number) const;
  uint64_t num_images() const { return header_->num_images; }
  // Returns whether its samples and media were read by the rules in force.
  bool HasMarks() const {
    return hashes_header_ != nullptr && marks_header_->rules == kMarkRules;
  }
  // Identifies the contents, to the byte.
  uint64_t checksum() const { return checksum_; }
  // The data files, in order. `number` must be below num_files().
  uint64_t num_files() const { return header_->num_files; }
  absl::string_view file_name(uint64_t number) const;
  FileStamp file_stamp(uint64_t number) const;
  // The latest modification of the media that the file's records name, in a
  // mounted file system; 0: none, or not known.
  int64_t media_time_ns(uint64_t number) const {
    return media_times_.empty() ? 0 : media_times_[number];
  }
  uint64_t file_unreadable(uint64_t number) const {
    return files_[number].unreadable;
  }
  // Pages of kIndexPageBytes that look-ups have read so far.
  uint64_t num_touched_pages() const { return pages_.num_touched(); }

 private:
  // A range of bytes, relative to the first record.
  struct Range {
    uint64_t offset;
    uint64_t size;
  };

  IndexFile(File file, absl::string_view mapped, EncodedRule rule);
  static absl::StatusOr<std::shared_ptr<const IndexFile>> Open(
      const std::string& path, EncodedRule rule, uint32_t oldest_version);

  absl::Status CheckHead(uint32_t oldest_version);
  // Returns whether the head in the file is the one that was opened.
  bool HeadIsSame() const;
  // Sets header_ and those that follow it.
  absl::Status ReadHeader(uint32_t oldest_version);
  absl::Status CheckHeader() const;
  absl::Status CheckFiles() const;
  absl::Status CheckGroups() const;
  // Like Touch, but without the images.
  absl::Status TouchRecord(uint64_t number) const {
    const absl::Status status = TouchPages(RecordRange(number));
    if (!status.ok() || LeadsInside(samples_[number])) return status;
    return CheckRecord(number);
  }
  absl::Status TouchAnew(uint64_t number) const;
  // Returns whether look-ups need the marks. With `decode: host` they do if
  // there are hashes to compare.
  bool GivesMarks() const {
    return rule_ != EncodedRule::kNone || !hashes_.empty();
  }
  absl::Status TouchPages(Range range) const {
    if (pages_.IsTouched(range.offset, range.size)) return absl::OkStatus();
    return TouchPagesAnew(range);
  }
  absl::Status TouchPagesAnew(Range range) const;
  absl::Status CheckRecord(uint64_t number) const;
  absl::Status CheckPlace(uint64_t number, uint64_t first_image) const;
  // Returns whether the record's file and images are within their bounds.
  bool LeadsInside(const IndexSampleRecord& record) const {
    if (record.file >= files_.size()) return false;
    const uint64_t size = files_[record.file].size;
    return record.offset <= size && record.length <= size - record.offset &&
           record.first_image <= images_.size() &&
           record.num_images <= images_.size() - record.first_image;
  }
  static Range RecordRange(uint64_t number) {
    return {number * sizeof(IndexSampleRecord), sizeof(IndexSampleRecord)};
  }
  // Valid once the record has been checked.
  Range ImagesRange(uint64_t number) const {
    const IndexSampleRecord& sample = samples_[number];
    return {header_->image_table - header_->sample_table +
                sample.first_image * sizeof(ImageSize),
            sample.num_images * sizeof(ImageSize)};
  }
  Range MarksRange(uint64_t number) const {
    return TableRange(marks_, samples_[number]);
  }
  template <typename Entry>
  Range TableRange(absl::Span<const Entry> table,
                   const IndexSampleRecord& sample) const {
    const char* begin =
        reinterpret_cast<const char*>(table.data() + sample.first_image);
    return {
        static_cast<uint64_t>(begin - mapped_.data()) - header_->sample_table,
        sample.num_images * sizeof(Entry)};
  }
  template <typename Entry>
  absl::Span<const Entry> GetPart(absl::Span<const Entry> table,
                                  uint64_t number) const {
    if (table.empty()) return table;
    return table.subspan(samples_[number].first_image,
                         samples_[number].num_images);
  }
  // The bytes of some entries of a table.
  template <typename Entry>
  Range GetRange(absl::Span<const Entry> entries) const {
    const char* begin = reinterpret_cast<const char*>(entries.data());
    return {
        static_cast<uint64_t>(begin - mapped_.data()) - header_->sample_table,
        entries.size() * sizeof(Entry)};
  }
  // Advises the system how the mapping will be used from now on (madvise).
  void Advise(int advice) const;
  absl::Status Damaged(absl::string_view reason) const;

  const File file_;
  absl::string_view mapped_;
  EncodedRule rule_;
  const IndexHeader* header_ = nullptr;
  const IndexMarksHeader* marks_header_ = nullptr;
  const IndexVideosHeader* videos_header_ = nullptr;
  // Null in an index of version 6.
  const IndexHashesHeader* hashes_header_ = nullptr;
  // Null in an index of version 7 or 6.
  const IndexTimesHeader* times_header_ = nullptr;
  IndexDigests digests_;
  absl::Span<const IndexFileRecord> files_;
  absl::Span<const IndexSampleRecord> samples_;
  absl::Span<const ImageSize> images_;
  absl::Span<const uint64_t> group_starts_;
  absl::Span<const ImageMark> marks_;
  absl::Span<const uint64_t> hashes_;
  absl::Span<const uint64_t> stream_starts_;
  absl::Span<const StreamFacts> streams_;
  absl::Span<const uint64_t> stream_hashes_;
  absl::Span<const uint64_t> time_starts_;
  absl::Span<const uint32_t> times_;
  absl::Span<const int64_t> media_times_;
  IndexPages pages_;
  uint64_t checksum_ = 0;
  // The ctime with which the head was found to be the same last.
  mutable std::atomic<int64_t> ctime_ns_;
  mutable std::atomic<bool> is_changed_{false};  // and was logged
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_INDEX_INDEX_FILE_H_
