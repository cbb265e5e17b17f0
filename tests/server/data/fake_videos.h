#ifndef BALLAST_TESTS_SERVER_DATA_FAKE_VIDEOS_H_
#define BALLAST_TESTS_SERVER_DATA_FAKE_VIDEOS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "server/data/index/index_options.h"
#include "server/sample/medium.h"
#include "server/sample/source_index.h"

namespace ballast {

// A stand-in for video files, an MP4 by its first bytes: its number of frames,
// and `behind` bytes.
std::string FakeVideo(uint32_t frames, size_t behind = 0);

// The bytes of an open video.
std::string GetBytes(const RawMedium& video);

// Reads FakeVideos, of 8x6 pixels at 30 frames a second. INVALID_ARGUMENT ("no
// video") if the bytes are something else.
absl::StatusOr<StreamFacts> ReadFakeVideo(const RawMedium& video);

// The same bytes as a clip of audio.
absl::StatusOr<StreamFacts> ReadFakeAudio(const RawMedium& file);

// FakeOptions with ReadFakeVideo and ReadFakeAudio.
IndexOptions FakeVideoOptions();

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_DATA_FAKE_VIDEOS_H_
