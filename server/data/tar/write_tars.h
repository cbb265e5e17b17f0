#ifndef BALLAST_SERVER_DATA_TAR_WRITE_TARS_H_
#define BALLAST_SERVER_DATA_TAR_WRITE_TARS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/data/journal.h"
#include "server/sample/sample_source.h"

namespace ballast {

struct RepackOptions {
  // Created if needed.
  std::string directory;
  // The tars are NAME-000000.tar and following.
  std::string name;
  // Samples in a tar; the last may hold fewer. At least 1.
  uint64_t samples_per_tar = 1000;
  // Writes this part of the tars.
  Shard shard;
  // Tars written at the same time. At least 1.
  uint32_t threads = 1;
  // May be empty. Called from any thread, one call at a time, with the number
  // of the shard's samples written or found so far.
  std::function<void(uint64_t done, uint64_t all)> progress;
};

struct RepackReport {
  uint64_t tars = 0;     // of the shard
  uint64_t resumed = 0;  // of these, written by an earlier run
  // Written by this run.
  uint64_t samples = 0;
  MediaCounts media;
  uint64_t bytes = 0;
};

// Writes the samples of `source`, in the order of its index, as WebDataset
// tars: KEY.json (or .txt, .tokens.bin, .tokens.json) as the source has the
// text, and KEY.jpg, or KEY.0.jpg, KEY.1.jpg, …, the images' bytes; likewise
// KEY.mp4, the videos', and KEY.0.0.jpg, KEY.0.1.jpg, …, the pictures of one
// that is a list. KEY is the sample's number in the index. Samples that the
// index leaves out are not written. The tars depend on the source and
// samples_per_tar alone.
//
// A tar appears under its name when it is complete and on the disk; one that is
// there is kept, so that a run that was killed continues after it.
// NAME.repack.json says what the tars hold: shards and later runs must agree.
// Blocks until all is written. Errors: FAILED_PRECONDITION (the directory holds
// a repack of other samples, or another process works on the shard); DATA_LOSS
// (a sample is not as indexed); INVALID_ARGUMENT (an image or a video that
// format webdataset does not name or hold: a video in another container, or
// over 2 GiB with those before it); as SampleSource::Read and the file system.
absl::StatusOr<RepackReport> Repack(const SampleSource& source,
                                    const RepackOptions& options);

// The extension of an encoded image: "jpg", "png" or "webp"; empty for others.
// Pure.
absl::string_view ImageExtension(absl::string_view bytes);

// The extension of a video that begins with `head`, 64 bytes: "mp4", "mov",
// "webm", "mkv" or "avi"; empty for others. Pure.
absl::string_view VideoExtension(absl::string_view head);

// Likewise of audio, which the index has read: "wav", "flac", "ogg", "m4a" or
// "mp3". Pure.
absl::string_view AudioExtension(absl::string_view head);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_TAR_WRITE_TARS_H_
