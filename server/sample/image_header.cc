// Reads format and size from a file's first bytes. The parsers are our own: the
// index reads the size of every image of a dataset, and the libraries would set
// up a whole decoder for each.
#include "server/sample/image_header.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

constexpr absl::string_view kJpegMagic("\xff\xd8\xff", 3);
constexpr absl::string_view kPngMagic("\x89PNG\r\n\x1a\n", 8);

uint32_t Byte(absl::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]);
}

uint32_t Big16(absl::string_view bytes, size_t at) {
  return Byte(bytes, at) << 8 | Byte(bytes, at + 1);
}

uint32_t Big32(absl::string_view bytes, size_t at) {
  return Big16(bytes, at) << 16 | Big16(bytes, at + 2);
}

uint32_t Little16(absl::string_view bytes, size_t at) {
  return Byte(bytes, at) | Byte(bytes, at + 1) << 8;
}

uint32_t Little24(absl::string_view bytes, size_t at) {
  return Little16(bytes, at) | Byte(bytes, at + 2) << 16;
}

// True if `bytes` is a prefix of `magic`, or starts with it.
bool IsPrefixOf(absl::string_view bytes, absl::string_view magic) {
  return magic.substr(0, bytes.size()) == bytes.substr(0, magic.size());
}

absl::Status CutShort(absl::string_view format, size_t size) {
  return absl::OutOfRangeError(absl::StrCat(
      format, " ends after ", size, " bytes, before its size is known"));
}

absl::StatusOr<ImageHeader> Checked(ImageFormat format, absl::string_view name,
                                    uint64_t width, uint64_t height) {
  if (width == 0 || height == 0) {
    return DataFaultError(
        absl::StrCat(name, " of ", width, "x", height, " pixels"));
  }
  if (width > kMaxImagePixels / height) {
    return DataFaultError(absl::StrCat(name, " of ", width, "x", height,
                                       " pixels; at most ", kMaxImagePixels,
                                       " pixels are decoded"));
  }
  return ImageHeader{format, static_cast<uint32_t>(width),
                     static_cast<uint32_t>(height)};
}

// True for markers that start a frame header: C0 to CF except DHT, JPG and DAC.
bool IsStartOfFrame(uint32_t marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 &&
         marker != 0xcc;
}

// True for markers without a length: RSTn, SOI, EOI, JPG0 to JPG13.
bool IsAlone(uint32_t marker) {
  return marker == 0xc8 || (marker >= 0xd0 && marker <= 0xd9) ||
         (marker >= 0xf0 && marker <= 0xfd);
}

absl::StatusOr<ImageHeader> ReadFrameHeader(absl::string_view bytes,
                                            size_t at) {
  // Length, bits, height, width, components.
  if (bytes.size() - at < 8) return CutShort("JPEG", bytes.size());
  const uint32_t bits = Byte(bytes, at + 2);
  const uint32_t components = Byte(bytes, at + 7);
  if (Big16(bytes, at) < 8 || bits != 8 ||
      (components != 1 && components != 3 && components != 4)) {
    return DataFaultError(
        absl::StrCat("JPEG of ", bits, " bits and ", components,
                     " components; 8 bits and 1, 3 or 4 components are "
                     "supported"));
  }
  return Checked(ImageFormat::kJpeg, "JPEG", Big16(bytes, at + 5),
                 Big16(bytes, at + 3));
}

// The place after the next marker that `is_wanted`, from `at` on; skips other
// segments and the junk between them, as Pillow does.
absl::StatusOr<size_t> FindMarker(absl::string_view bytes, size_t at,
                                  bool (*is_wanted)(uint32_t marker)) {
  while (true) {
    at = bytes.find('\xff', at);
    if (at == absl::string_view::npos) break;
    at = bytes.find_first_not_of('\xff', at);
    if (at == absl::string_view::npos) break;
    const uint32_t marker = Byte(bytes, at);
    ++at;
    if (marker == 0 || IsAlone(marker)) continue;
    if (is_wanted(marker)) return at;
    if (marker < 0xc0 || marker == 0xda) {
      return DataFaultError(absl::StrCat(
          "JPEG has marker 0x", absl::Hex(marker), " before its frame header"));
    }
    if (bytes.size() - at < 2) break;
    const size_t length = Big16(bytes, at);
    if (length < 2) {
      return DataFaultError(absl::StrCat("JPEG segment 0x", absl::Hex(marker),
                                         " has length ", length));
    }
    if (bytes.size() - at < length) break;
    at += length;
  }
  return CutShort("JPEG", bytes.size());
}

absl::StatusOr<ImageHeader> ReadJpegHeader(absl::string_view bytes) {
  BALLAST_ASSIGN_OR_RETURN(const size_t at,
                           FindMarker(bytes, 2, IsStartOfFrame));
  return ReadFrameHeader(bytes, at);
}

uint64_t RoundUpTo(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Buffers of some rows, tables and the padding of arrays.
constexpr uint64_t kSmallBuffers = uint64_t{1} << 20;

// For at most 4 components of at most 4 rows in 10 groups each.
uint64_t JpegRowBytes(uint64_t width) { return 256 * (width + 256); }

// The coefficients of a JPEG whose frame header begins at `at`, in blocks of
// 64, each of 2 bytes. Each component is padded to whole units of its sampling
// factors.
absl::StatusOr<uint64_t> CoefficientBytes(absl::string_view bytes, size_t at,
                                          const ImageHeader& header) {
  struct Factors {
    uint32_t x, y;
  };
  Factors factors[4];
  Factors most = {1, 1};
  const uint32_t components = Byte(bytes, at + 7);
  if (bytes.size() - at < 8 + 3 * size_t{components}) {
    return CutShort("JPEG", bytes.size());
  }
  for (uint32_t i = 0; i < components; ++i) {
    const uint32_t both = Byte(bytes, at + 8 + 3 * i + 1);
    factors[i] = {both >> 4, both & 15};
    if (factors[i].x < 1 || factors[i].x > 4 || factors[i].y < 1 ||
        factors[i].y > 4) {
      return DataFaultError(absl::StrCat("JPEG has sampling factors ",
                                         factors[i].x, "x", factors[i].y,
                                         "; wanted 1 to 4"));
    }
    most.x = std::max(most.x, factors[i].x);
    most.y = std::max(most.y, factors[i].y);
  }
  constexpr uint64_t kBlockBytes = 64 * 2;
  const auto blocks = [](uint64_t pixels, uint32_t factor, uint32_t most) {
    const uint64_t unit = uint64_t{8} * most;
    return RoundUpTo((pixels * factor + unit - 1) / unit, factor);
  };
  uint64_t total = 0;
  for (uint32_t i = 0; i < components; ++i) {
    const uint64_t rows = blocks(header.height, factors[i].y, most.y);
    // Plus a pointer to each row.
    total += rows * (blocks(header.width, factors[i].x, most.x) * kBlockBytes +
                     sizeof(void*));
  }
  return total;
}

absl::StatusOr<uint64_t> ReadJpegBytes(absl::string_view bytes,
                                       const ImageHeader& header) {
  const uint64_t rows = JpegRowBytes(header.width) + kSmallBuffers;
  BALLAST_ASSIGN_OR_RETURN(const size_t at,
                           FindMarker(bytes, 2, IsStartOfFrame));
  BALLAST_RETURN_IF_ERROR(ReadFrameHeader(bytes, at).status());
  const uint32_t marker = Byte(bytes, at - 1);
  bool has_scans = marker != 0xc0 && marker != 0xc1;
  if (!has_scans) {
    const auto is_scan = [](uint32_t m) { return m == 0xda; };
    BALLAST_ASSIGN_OR_RETURN(const size_t scan,
                             FindMarker(bytes, at + Big16(bytes, at), is_scan));
    if (bytes.size() - scan < 3) return CutShort("JPEG", bytes.size());
    // All coefficients are kept unless the first scan has all components.
    has_scans = Byte(bytes, scan + 2) < Byte(bytes, at + 7);
  }
  if (!has_scans) return rows;
  BALLAST_ASSIGN_OR_RETURN(const uint64_t coefficients,
                           CoefficientBytes(bytes, at, header));
  return rows + coefficients;
}

constexpr uint64_t kPngPixelBytes = 8;

// libpng's rows, each of which is allocated at most twice, and again if the
// file is read a second time.
uint64_t PngRowBytes(uint64_t width) {
  return 8 * kPngPixelBytes * (width + 64);
}

absl::StatusOr<ImageHeader> ReadPngHeader(absl::string_view bytes) {
  // Magic, then IHDR: length, name, width, height.
  if (bytes.size() < 24) return CutShort("PNG", bytes.size());
  if (Big32(bytes, 8) != 13 || bytes.substr(12, 4) != "IHDR") {
    return DataFaultError("PNG does not start with IHDR");
  }
  return Checked(ImageFormat::kPng, "PNG", Big32(bytes, 16), Big32(bytes, 20));
}

absl::StatusOr<ImageHeader> ReadWebpHeader(absl::string_view bytes) {
  // RIFF, size, WEBP; then the first chunk: name, size, payload.
  constexpr size_t kPayload = 20;
  if (bytes.size() < kPayload) return CutShort("WebP", bytes.size());
  const absl::string_view chunk = bytes.substr(12, 4);
  const size_t needed = chunk == "VP8L" ? 5 : 10;
  if (bytes.size() < kPayload + needed) return CutShort("WebP", bytes.size());
  if (chunk == "VP8X") {
    return Checked(ImageFormat::kWebp, "WebP",
                   Little24(bytes, kPayload + 4) + 1,
                   Little24(bytes, kPayload + 7) + 1);
  }
  if (chunk == "VP8L") {
    const uint32_t low = Little16(bytes, kPayload + 1);
    const uint32_t high = Little16(bytes, kPayload + 3);
    if (Byte(bytes, kPayload) != 0x2f || high >> 13 != 0) {
      return DataFaultError("WebP has a damaged VP8L header");
    }
    return Checked(ImageFormat::kWebp, "WebP", (low & 0x3fff) + 1,
                   (low >> 14 | (high & 0xfff) << 2) + 1);
  }
  if (chunk == "VP8 ") {
    const bool key_frame = (Byte(bytes, kPayload) & 1) == 0;
    if (!key_frame || bytes.substr(kPayload + 3, 3) != "\x9d\x01\x2a") {
      return DataFaultError("WebP has a damaged VP8 header");
    }
    return Checked(ImageFormat::kWebp, "WebP",
                   Little16(bytes, kPayload + 6) & 0x3fff,
                   Little16(bytes, kPayload + 8) & 0x3fff);
  }
  return DataFaultError(
      "WebP starts with none of the chunks VP8, VP8L and VP8X");
}

}  // namespace

absl::StatusOr<uint64_t> ReadDecoderBytes(absl::string_view bytes,
                                          const ImageHeader& header) {
  if (header.format == ImageFormat::kJpeg) return ReadJpegBytes(bytes, header);
  if (header.format == ImageFormat::kPng) {
    // The last byte of IHDR: its checksum follows.
    constexpr size_t kInterlace = 28;
    if (bytes.size() <= kInterlace) return CutShort("PNG", bytes.size());
    if (Byte(bytes, kInterlace) == 0) {
      return PngRowBytes(header.width) + kSmallBuffers;
    }
  }
  return MostDecoderBytes(header);
}

uint64_t MostDecoderBytes(const ImageHeader& header) {
  const uint64_t pixels = uint64_t{header.width} * header.height;
  switch (header.format) {
    case ImageFormat::kJpeg: {
      // Four components, padded to units of 32x32 pixels.
      const uint64_t padded =
          RoundUpTo(header.width, 32) * RoundUpTo(header.height, 32);
      return JpegRowBytes(header.width) + kSmallBuffers +
             4 * (2 * padded + sizeof(void*) * header.height);
    }
    case ImageFormat::kPng:
      return 3 * pixels + PngRowBytes(header.width) + kSmallBuffers;
    case ImageFormat::kWebp:
      break;
  }
  // The picture, and where it is lossless libwebp's own of four bytes a pixel
  // with 17 rows more.
  return 7 * pixels + uint64_t{4 * 17} * header.width + kSmallBuffers;
}

namespace {

// Why bytes that are no JPEG, PNG or WebP are no image, with a kind of what
// data sets often hold in place of one.
absl::Status NoImage(absl::string_view bytes) {
  struct Other {
    absl::string_view magic;
    size_t at;
    const char* name;
  };
  constexpr Other kOthers[] = {
      {"GIF8", 0, "GIF"},
      {"BM", 0, "BMP"},
      {absl::string_view("II*\0", 4), 0, "TIFF"},
      {absl::string_view("MM\0*", 4), 0, "TIFF"},
      {"ftypavif", 4, "AVIF"},
      {"ftypavis", 4, "AVIF"},
      {"ftypheic", 4, "HEIC"},
      {"ftypmif1", 4, "HEIC"},
      {absl::string_view("\0\0\0\x0cjP  ", 8), 0, "JPEG 2000"},
  };
  for (const Other& other : kOthers) {
    if (bytes.size() < 12 ||
        bytes.substr(other.at, other.magic.size()) != other.magic) {
      continue;
    }
    return OfKind(
        DataFaultError(absl::StrCat(
            other.name,
            ", which is not read; wanted JPEG, PNG or WebP. In place, under "
            "its own name: python3 -c 'import sys; from PIL import Image; "
            "[Image.open(p).convert(\"RGB\").save(p, \"PNG\") for p in "
            "sys.argv[1:]]' FILE...")),
        absl::StrCat("image is ", other.name));
  }
  if (absl::StartsWith(bytes, kLfsPointer.substr(0, bytes.size())) &&
      bytes.size() >= 12) {
    return OfKind(DataFaultError("a pointer of git LFS in place of the image; "
                                 "run `git lfs pull` in its repository"),
                  "image is a pointer of git LFS");
  }
  const std::string head = absl::AsciiStrToLower(bytes.substr(0, 15));
  if (absl::StartsWith(head, "<!doctype html") ||
      absl::StartsWith(head, "<html")) {
    return OfKind(DataFaultError("a page of HTML in place of the image: its "
                                 "download failed; download it again"),
                  "image is a page of HTML");
  }
  return DataFaultError("neither JPEG nor PNG nor WebP");
}

}  // namespace

absl::StatusOr<ImageHeader> ReadImageHeader(absl::string_view bytes) {
  const bool riff = IsPrefixOf(bytes, "RIFF") &&
                    (bytes.size() <= 8 || IsPrefixOf(bytes.substr(8), "WEBP"));
  if (!IsPrefixOf(bytes, kJpegMagic) && !IsPrefixOf(bytes, kPngMagic) &&
      !riff) {
    return NoImage(bytes);
  }
  if (bytes.size() < 12) return CutShort("image", bytes.size());
  if (riff) return ReadWebpHeader(bytes);
  if (IsPrefixOf(bytes, kPngMagic)) return ReadPngHeader(bytes);
  return ReadJpegHeader(bytes);
}

bool HasImageEnd(absl::string_view head, absl::string_view tail,
                 uint64_t size) {
  constexpr absl::string_view kJpegEnd("\xff\xd9", 2);
  constexpr absl::string_view kPngEnd("\0\0\0\0IEND\xae\x42\x60\x82", 12);
  if (absl::StartsWith(head, kJpegMagic)) {
    return absl::EndsWith(tail, kJpegEnd);
  }
  if (absl::StartsWith(head, kPngMagic)) return absl::EndsWith(tail, kPngEnd);
  if (!absl::StartsWith(head, "RIFF") || head.size() < 8) return true;
  const uint64_t wanted = Little16(head, 4) | uint64_t{Little16(head, 6)} << 16;
  return wanted + 8 <= size;
}

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

absl::Status OrientationCutShort(absl::string_view format, size_t size) {
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
  return OrientationCutShort("JPEG", bytes.size());
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
  return OrientationCutShort("PNG", bytes.size());
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
      return OrientationCutShort("WebP", bytes.size());
    }
    const uint64_t length = reader.Get(at + 4, 4);
    if (bytes.substr(at, 4) == "EXIF") {
      if (bytes.size() - at < length + 8) {
        return OrientationCutShort("WebP", bytes.size());
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
