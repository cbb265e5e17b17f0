#ifndef BALLAST_SERVER_CORPUS_LIMITS_H_
#define BALLAST_SERVER_CORPUS_LIMITS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Bounds on one sample, checked before memory is allocated for it. A sample
// beyond them is bad.
inline constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;
// Text and encoded images of a sample together; with the videos in a tar file.
inline constexpr uint64_t kMaxSampleBytes = uint64_t{1} << 30;
inline constexpr uint32_t kMaxImages = 10'000;
inline constexpr uint32_t kMaxVideos = 1'000;
// Memory that a row group of a Parquet file may take: a decoder reads it whole.
inline constexpr uint64_t kMaxRowGroupBytes = uint64_t{2} << 30;
// From a sample's first byte in its file to its last, including ignored
// members. The index stores it, like a line's number, in 32 bits.
inline constexpr uint64_t kMaxSampleSpan = 0xFFFFFFFF;
inline constexpr uint64_t kMaxLineNumber = 0xFFFFFFFF;

// OK if `path`, from a dataset, may be followed: relative, UTF-8, 1 to 4096
// bytes, without `..` and control characters (so messages can show it as it
// is). Otherwise INVALID_ARGUMENT with the path and the reason.
absl::Status CheckDataPath(absl::string_view path);

// Formats `bytes` of a dataset for messages. Escapes control characters, and
// non-ASCII bytes unless the whole is UTF-8. Cuts after 200 bytes.
std::string Printable(absl::string_view bytes);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_LIMITS_H_
