#ifndef BALLAST_SERVER_CORPUS_READ_VIDEOS_H_
#define BALLAST_SERVER_CORPUS_READ_VIDEOS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/corpus/file.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/jsonl/conversation_json.h"
#include "server/corpus/jsonl/media_root.h"
#include "server/corpus/read_from.h"
#include "server/corpus/sample_source.h"
#include "server/storage/span.h"

// The videos of a sample that is read: each is added to `sample`, and to `hash`
// as an image is, in the order in which the index was told of them.
namespace ballast {

// Opens the video in [offset, offset + size) of the file. Errors: as OpenVideo;
// INVALID_ARGUMENT (the videos of an object take over kMaxSampleBytes).
absl::Status ReadVideo(FileView file, uint64_t offset, uint64_t size,
                       ImagesHash* hash, RawSample* sample);

// Reads a video in a tar file: the pictures of a list, which lie in these
// ranges of the file, or opens the video in the first of them. Errors: as
// ReadVideo and FileView::ReadAt.
absl::Status ReadMembers(FileView file, absl::Span<const ByteRange> ranges,
                         bool is_list, ImagesHash* hash, RawSample* sample);

// Opens the video that `named` says, or reads the pictures of its list, below
// `media`. `owner` as in FileView; pictures take from `left`, the bytes that
// the sample may still have. Errors: as ReadVideo and MediaRoot::Open;
// DATA_LOSS (too many bytes).
absl::Status ReadNamedVideo(const JsonVideo& named, const MediaRoot& media,
                            ReadFrom from, uint64_t owner, uint64_t* left,
                            ImagesHash* hash, RawSample* sample);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_READ_VIDEOS_H_
