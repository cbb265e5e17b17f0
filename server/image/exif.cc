#include "server/image/exif.h"

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kShort = 3;
constexpr uint32_t kLong = 4;
constexpr absl::string_view kJpegExif("Exif\0\0", 6);

// Reads numbers in either byte order; 0 beyond the end.
class Reader {
 public:
  Reader(absl::string_view bytes, bool big) : bytes_(bytes), big_(big) {}

  uint32_t Get(uint64_t at, int size) const {
    if (at > bytes_.size() || bytes_.size() - at < uint64_t(size)) return 0;
    uint32_t value = 0;
    for (int i = 0; i < size; ++i) {
      const auto byte = static_cast<uint8_t>(bytes_[at + i]);
      value |= uint32_t{byte} << 8 * (big_ ? size - 1 - i : i);
    }
    return value;
  }

 private:
  const absl::string_view bytes_;
  const bool big_;
};

absl::Status CutShort(absl::string_view format, size_t size) {
  return absl::OutOfRangeError(absl::StrCat(
      format, " ends after ", size, " bytes, before its orientation is known"));
}

// Searches the segments before the frame header; ReadImageHeader has already
// walked them.
absl::StatusOr<Orientation> OfJpeg(absl::string_view bytes) {
  const Reader reader(bytes, true);
  size_t at = 2;
  while (true) {
    at = bytes.find('\xff', at);
    if (at == absl::string_view::npos) break;
    at = bytes.find_first_not_of('\xff', at);
    if (at == absl::string_view::npos) break;
    const uint32_t marker = reader.Get(at++, 1);
    const bool alone = marker == 0 || marker == 0xc8 ||
                       (marker >= 0xd0 && marker <= 0xd9) ||
                       (marker >= 0xf0 && marker <= 0xfd);
    if (alone) continue;
    const bool frame =
        marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xcc;
    if (frame || marker < 0xc0 || marker == 0xda) return kUpright;
    const size_t length = reader.Get(at, 2);
    if (length < 2 || bytes.size() - at < length) break;
    const absl::string_view payload = bytes.substr(at + 2, length - 2);
    if (marker == 0xe1 && payload.substr(0, 6) == kJpegExif) {
      return OrientationOfExif(payload.substr(6));
    }
    at += length;
  }
  return CutShort("JPEG", bytes.size());
}

absl::StatusOr<Orientation> OfPng(absl::string_view bytes) {
  const Reader reader(bytes, true);
  // Length, name, payload, checksum.
  for (size_t at = 8; bytes.size() - at >= 8;) {
    const uint64_t length = reader.Get(at, 4);
    const absl::string_view name = bytes.substr(at + 4, 4);
    if (name == "IDAT" || name == "IEND") return kUpright;
    if (bytes.size() - at < length + 12) break;
    if (name == "eXIf") return OrientationOfExif(bytes.substr(at + 8, length));
    at += length + 12;
  }
  return CutShort("PNG", bytes.size());
}

absl::StatusOr<Orientation> OfWebp(absl::string_view bytes) {
  const Reader reader(bytes, false);
  constexpr uint32_t kHasExif = 1 << 3;
  if (bytes.substr(12, 4) != "VP8X" || !(reader.Get(20, 1) & kHasExif)) {
    return kUpright;
  }
  const uint64_t file_end = uint64_t{reader.Get(4, 4)} + 8;
  // Name, length, payload, padded to an even number of bytes.
  for (uint64_t at = 12; at < file_end;) {
    if (at > bytes.size() || bytes.size() - at < 8) {
      return CutShort("WebP", bytes.size());
    }
    const uint64_t length = reader.Get(at + 4, 4);
    if (bytes.substr(at, 4) == "EXIF") {
      if (bytes.size() - at < length + 8) {
        return CutShort("WebP", bytes.size());
      }
      absl::string_view exif = bytes.substr(at + 8, length);
      // Some writers copy the block from a JPEG with its prefix.
      if (exif.substr(0, 6) == kJpegExif) exif.remove_prefix(6);
      return OrientationOfExif(exif);
    }
    at += 8 + length + length % 2;
  }
  return kUpright;
}

}  // namespace

Orientation OrientationOfExif(absl::string_view exif) {
  const bool big = exif.substr(0, 2) == "MM";
  const Reader reader(exif, big);
  if ((!big && exif.substr(0, 2) != "II") || reader.Get(2, 2) != 42) {
    return kUpright;
  }
  const uint64_t directory = reader.Get(4, 4);
  const uint32_t entries = reader.Get(directory, 2);
  // Tag, type, count, value: 12 bytes.
  for (uint32_t i = 0; i < entries; ++i) {
    const uint64_t at = directory + 2 + uint64_t{12} * i;
    if (at + 12 > exif.size()) break;
    if (reader.Get(at, 2) != kOrientationTag) continue;
    const uint32_t type = reader.Get(at + 2, 2);
    if ((type != kShort && type != kLong) || reader.Get(at + 4, 4) != 1) break;
    const uint32_t value = reader.Get(at + 8, type == kShort ? 2 : 4);
    return value >= 1 && value <= 8 ? static_cast<Orientation>(value)
                                    : kUpright;
  }
  return kUpright;
}

absl::StatusOr<Orientation> ReadOrientation(absl::string_view bytes,
                                            const ImageHeader& header) {
  switch (header.format) {
    case ImageFormat::kJpeg:
      return OfJpeg(bytes);
    case ImageFormat::kPng:
      return OfPng(bytes);
    case ImageFormat::kWebp:
      return OfWebp(bytes);
  }
  return kUpright;
}

}  // namespace ballast
