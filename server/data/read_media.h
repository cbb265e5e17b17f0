#ifndef BALLAST_SERVER_DATA_READ_MEDIA_H_
#define BALLAST_SERVER_DATA_READ_MEDIA_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/data/jsonl/media_root.h"
#include "server/data/record_parser.h"
#include "server/files/file.h"
#include "server/sample/index_format.h"
#include "server/sample/sample_source.h"

namespace ballast {

// Reads the media of one record into a RawSample, in the order of the record.
// Thread-compatible; blocks on the disk or the store.
class MediaReader {
 public:
  // `file` is the record's data file; `owner` as in FileView, for media that
  // the record names below `root`, which may be null if it names none. All
  // media in files of their own together have at most `left` bytes. `images` is
  // the number of images of the record. `sample` gets the media.
  MediaReader(FileView file, const MediaRoot* root, uint64_t owner,
              uint64_t left, size_t images, const ReadParts& parts,
              RawSample* sample)
      : file_(file),
        root_(root),
        owner_(owner),
        left_(left),
        images_(images),
        parts_(parts),
        sample_(sample) {}

  // Adds the next medium: an image at the place that `parts` has for it, else
  // as a string; of a list its pictures; else its open file. Errors: as
  // FileView::ReadAt and MediaRoot::Open; UNAVAILABLE (a named file changed
  // meanwhile); a data fault (too many bytes; over kMaxSampleBytes of an object
  // of a store).
  absl::Status Add(const RecordMedium& medium);

  // IndexSampleRecord::image_check of what was added so far.
  uint64_t image_check() const { return hash_.value(); }
  // OK unless a named medium of a mounted file system was modified after
  // `newest_ns`, the time of the latest one when the index was built (0: not
  // known), or one in a store has another version by now than was read. Then
  // what was read says nothing of the sample. Errors: UNAVAILABLE.
  absl::Status CheckMediaAreIndexed(int64_t newest_ns) const;
  // RawSample::media_modified, with the same `newest_ns`.
  absl::Time GetModified(int64_t newest_ns) const {
    return newest_ns != 0 && media_time_ns_ > newest_ns
               ? absl::FromUnixNanos(media_time_ns_)
               : absl::InfinitePast();
  }

 private:
  absl::Status ReadRange(const FileView& file, ByteRange range);
  absl::Status ReadImage(uint64_t size,
                         absl::FunctionRef<absl::Status(char* to)> read);
  absl::Status AddImage(const Medium& image);
  absl::Status AddList(const RecordMedium& list);
  absl::Status AddStream(const RecordMedium& stream);
  absl::Status AddRange(MediumKind kind, FileView file, ByteRange range);
  absl::StatusOr<std::string> ReadPicture(const Medium& picture);
  // Opens a named file, whose bytes count, and fetches it from a store.
  absl::StatusOr<File> Open(const MediumPath& named);
  absl::Status Take(const FileView& file);

  const FileView file_;
  const MediaRoot* const root_;
  const uint64_t owner_;
  uint64_t left_;
  const size_t images_;
  size_t image_ = 0;  // the next one's number
  const ReadParts& parts_;
  RawSample* const sample_;
  ImagesHash hash_;
  int64_t media_time_ns_ = 0;
  std::vector<std::string> in_store_;  // paths of named media
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_READ_MEDIA_H_
