#ifndef BALLAST_SERVER_SAMPLE_MEDIUM_H_
#define BALLAST_SERVER_SAMPLE_MEDIUM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/small_file.h"
#include "server/files/file.h"
#include "server/sample/source_index.h"

namespace ballast {

// The bytes of one medium of a sample, nothing decoded. An image is its file, a
// string or a view of the place that the reader had for it. A video or a clip
// of audio is `size` bytes from `offset` on of an open file; a video may also
// be the files of the pictures that are its frames, `size` bytes in all, and no
// open file.
struct RawMedium {
  MediumKind kind = MediumKind::kImage;
  std::string bytes;
  // Where ReadParts::places took the file; else a view of nothing.
  absl::string_view placed;
  std::shared_ptr<const OwnedFd> fd;
  uint64_t offset = 0;
  uint64_t size = 0;
  std::vector<std::string> pictures;
  // The mounted file's when the read of the sample began: its bytes are read
  // later, by others.
  std::optional<FileState> state;

  static RawMedium Image(std::string file) {
    RawMedium image;
    image.bytes = std::move(file);
    return image;
  }

  // An image's file.
  absl::string_view file() const {
    return placed.data() != nullptr ? placed : absl::string_view(bytes);
  }
};

// The video or clip of audio in [offset, offset + size) of the file. Reads
// nothing of a mounted file; an object of a store is fetched into memory, which
// the descriptor then names. Errors: as FileView::ReadAt; UNAVAILABLE (no
// descriptor, no memory); INVALID_ARGUMENT (an object's has over
// kMaxSampleBytes).
absl::StatusOr<RawMedium> OpenMedium(MediumKind kind, FileView file,
                                     uint64_t offset, uint64_t size);

// The video or clip of these bytes, which are copied into memory that the
// descriptor names. `name` is for messages. Errors: UNAVAILABLE (no descriptor,
// no memory); INVALID_ARGUMENT (over kMaxSampleBytes).
absl::StatusOr<RawMedium> MediumInMemory(MediumKind kind,
                                         absl::string_view bytes,
                                         const std::string& name);

// OK if the mounted file is in that state, or if no file is mounted. Call it
// after the last byte was read: what was read before is of that version.
// Errors: UNAVAILABLE.
absl::Status CheckUnchanged(const RawMedium& video);

// The content hash of a video or clip: XXH3-64 of its file, or PicturesHash.
// Reads all of it. Errors: UNAVAILABLE (as FileError; the file ends before the
// medium does).
absl::StatusOr<uint64_t> HashMedium(const RawMedium& video);

// A medium that a JSON object names; of an image the path alone.
struct NamedMedium {
  std::string path;
  // The pictures that are its frames, in order, instead of a path.
  std::vector<std::string> frames = {};
  // The clip, in seconds: `start` or `video_start`, `end` or `video_end` next
  // to the path in a part.
  std::optional<double> start = {};
  std::optional<double> end = {};
  // `fps` there: frames sampled a second. Of pictures `sample_fps`: taken a
  // second. 0: neither.
  double fps = 0;
  // The part says `sample_fps` or `raw_fps`, which pictures have, files not.
  bool has_sample_fps = false;
  bool has_raw_fps = false;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SAMPLE_MEDIUM_H_
