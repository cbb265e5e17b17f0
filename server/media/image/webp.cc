#include "server/media/image/webp.h"

#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

// Name and size.
constexpr size_t kChunkHeader = 8;

absl::Status Damaged(absl::string_view what) {
  return DataFaultError(absl::StrCat("WebP is truncated or damaged: ", what));
}

struct Canvas {
  uint32_t width = 0;
  uint32_t height = 0;
  uint8_t* pixels = nullptr;
  size_t channels = 3;  // 4: with alpha
  size_t stride() const { return width * channels; }
  size_t size() const { return stride() * height; }
};

// The first frame of a file.
class FirstFrame {
 public:
  FirstFrame() = default;
  FirstFrame(const FirstFrame&) = delete;
  FirstFrame& operator=(const FirstFrame&) = delete;
  ~FirstFrame() {
    WebPDemuxReleaseIterator(&frame_);
    WebPDemuxDelete(demuxer_);
  }

  // `bytes` stay alive. Errors: a data fault.
  absl::Status Open(absl::string_view bytes) {
    const WebPData data = {reinterpret_cast<const uint8_t*>(bytes.data()),
                           bytes.size()};
    demuxer_ = WebPDemux(&data);
    if (demuxer_ == nullptr) return Damaged("its chunks do not fit the file");
    if (!WebPDemuxGetFrame(demuxer_, 1, &frame_)) {
      return Damaged("it has no frame");
    }
    return absl::OkStatus();
  }

  uint32_t canvas(WebPFormatFeature side) const {
    return WebPDemuxGetI(demuxer_, side);
  }
  const WebPIterator& frame() const { return frame_; }

 private:
  WebPDemuxer* demuxer_ = nullptr;
  WebPIterator frame_ = {};
};

// Decodes a frame to its place on the canvas: transparent pixels keep the
// colour given in the file.
absl::Status DecodeFrame(const WebPIterator& frame, const Canvas& canvas) {
  const auto [left, top] = std::pair(frame.x_offset, frame.y_offset);
  if (left < 0 || top < 0 || frame.width <= 0 || frame.height <= 0 ||
      uint64_t(left) + uint64_t(frame.width) > canvas.width ||
      uint64_t(top) + uint64_t(frame.height) > canvas.height) {
    return Damaged("a frame is outside its canvas");
  }
  // The first frame of an animation may be smaller than the canvas; the rest is
  // then black, or transparent.
  if (uint32_t(frame.width) != canvas.width ||
      uint32_t(frame.height) != canvas.height) {
    std::memset(canvas.pixels, 0, canvas.size());
  }
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) {
    return absl::InternalError("libwebp's headers are of another version");
  }
  const size_t offset =
      size_t(top) * canvas.stride() + size_t(left) * canvas.channels;
  config.output.colorspace = canvas.channels == 4 ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = canvas.pixels + offset;
  config.output.u.RGBA.stride = static_cast<int>(canvas.stride());
  config.output.u.RGBA.size = canvas.size() - offset;
  const VP8StatusCode code =
      WebPDecode(frame.fragment.bytes, frame.fragment.size, &config);
  WebPFreeDecBuffer(&config.output);
  if (code == VP8_STATUS_OUT_OF_MEMORY) {
    return absl::ResourceExhaustedError(
        "decoding a WebP: the machine is out of memory");
  }
  if (code != VP8_STATUS_OK) {
    return Damaged(absl::StrCat("libwebp's status ", code));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> ReadWebpTableBytes(absl::string_view bytes) {
  FirstFrame first;
  BALLAST_RETURN_IF_ERROR(first.Open(bytes));
  const WebPIterator& frame = first.frame();
  absl::string_view chunks(reinterpret_cast<const char*>(frame.fragment.bytes),
                           frame.fragment.size);
  absl::string_view alpha;
  while (chunks.size() >= kChunkHeader) {
    const absl::string_view name = chunks.substr(0, 4);
    uint32_t size = 0;  // little-endian
    std::memcpy(&size, chunks.data() + 4, sizeof(size));
    const absl::string_view payload = chunks.substr(kChunkHeader, size);
    if (name == "VP8L") return ReadLosslessTableBytes(payload);
    if (name == "VP8 ") {
      if (alpha.empty()) return 0;
      return ReadAlphaBytes(alpha, uint32_t(frame.width),
                            uint32_t(frame.height));
    }
    if (name == "ALPH") alpha = payload;
    chunks.remove_prefix(std::min<uint64_t>(
        chunks.size(), kChunkHeader + size + (size & uint64_t{1})));
  }
  return Damaged("a frame has no picture");
}

absl::Status DecodeWebp(absl::string_view bytes, uint32_t width,
                        uint32_t height, bool on_white, ScratchArena* arena,
                        RowSink* sink) {
  FirstFrame first;
  BALLAST_RETURN_IF_ERROR(first.Open(bytes));
  if (first.canvas(WEBP_FF_CANVAS_WIDTH) != width ||
      first.canvas(WEBP_FF_CANVAS_HEIGHT) != height) {
    return Damaged("its canvas is not of the header's size");
  }
  Canvas canvas = {width, height, nullptr};
  if (on_white && (first.canvas(WEBP_FF_FORMAT_FLAGS) & ALPHA_FLAG) != 0) {
    canvas.channels = 4;
  }
  canvas.pixels = arena->AllocateArray<uint8_t>(canvas.size());
  if (canvas.pixels == nullptr) {
    return arena->Refusal(
        absl::StrCat("WebP of ", width, "x", height, " pixels"));
  }
  BALLAST_RETURN_IF_ERROR(sink->Begin(width, height));
  BALLAST_RETURN_IF_ERROR(DecodeFrame(first.frame(), canvas));
  if (canvas.channels == 4) {
    for (size_t i = 0; i < size_t{width} * height; ++i) {
      uint8_t rgb[3];
      PutOnWhite(canvas.pixels + 4 * i, rgb);
      std::memcpy(canvas.pixels + 3 * i, rgb, 3);
    }
  }
  CopyRows(canvas.pixels, width, height, sink);
  return absl::OkStatus();
}

// The beginning of a lossless WebP, by its specification (RFC 9649) and as
// libwebp reads it: src/dec/vp8l_dec.c. What is damaged for libwebp is damaged
// here, and nothing else.
namespace {

constexpr int kLiterals = 256;
constexpr int kLengths = 24;
constexpr int kDistances = 40;
constexpr int kMaxCacheBits = 11;
constexpr int kMaxCodeBits = 15;

// Sizes in libwebp: an entry of a table, the struct of a group of five codes
// (568 bytes), and the most entries of a group, by the bits of its colour
// cache: kTableSize.
constexpr uint64_t kEntryBytes = 4;
constexpr uint64_t kGroupBytes = 576;
constexpr std::array<uint64_t, kMaxCacheBits + 1> kGroupEntries = {
    2954, 2956, 2958, 2962, 2970, 2986, 3018, 3082, 3212, 3468, 3980, 5004};

absl::Status DamagedLossless(absl::string_view what) {
  return Damaged(absl::StrCat("lossless ", what));
}

// Bits from the lowest of each byte on; zeros after the end.
class Bits {
 public:
  explicit Bits(absl::string_view bytes) : bytes_(bytes) {}

  uint32_t Read(int count) {
    const uint32_t value = Peek() & ((uint32_t{1} << count) - 1);
    Skip(count);
    return value;
  }
  // The next 24 bits at least.
  uint32_t Peek() const {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) {
      const size_t at = at_ / 8 + i;
      if (at < bytes_.size()) {
        value |= uint32_t{static_cast<uint8_t>(bytes_[at])} << 8 * i;
      }
    }
    return value >> at_ % 8;
  }
  void Skip(int count) { at_ += static_cast<uint64_t>(count); }
  // More bits were read than there are.
  bool IsOver() const { return at_ > bytes_.size() * 8; }

 private:
  const absl::string_view bytes_;
  uint64_t at_ = 0;
};

// A prefix code as a table of all continuations. A code of one symbol takes no
// bits.
class PrefixCode {
 public:
  // False: no code has these `lengths`.
  bool Set(const std::vector<uint8_t>& lengths) {
    std::array<uint32_t, kMaxCodeBits + 2> counts = {};
    uint32_t last = 0, used = 0;
    for (uint32_t symbol = 0; symbol < lengths.size(); ++symbol) {
      if (lengths[symbol] == 0) continue;
      ++counts[lengths[symbol]];
      ++used;
      last = symbol;
    }
    if (used == 0) return false;
    bits_ = 0;
    if (used == 1) {
      table_.assign(1, {0, static_cast<uint16_t>(last)});
      return true;
    }
    for (int bits = 1; bits <= kMaxCodeBits; ++bits) {
      if (counts[bits] > 0) bits_ = bits;
    }
    // The first code of each length.
    std::array<uint32_t, kMaxCodeBits + 2> next = {};
    for (int bits = 1; bits <= bits_; ++bits) {
      next[bits + 1] = (next[bits] + counts[bits]) << 1;
      if (next[bits] + counts[bits] > uint32_t{1} << bits) return false;
    }
    if (next[bits_ + 1] != uint32_t{2} << bits_) return false;  // incomplete
    table_.resize(size_t{1} << bits_);
    for (uint32_t symbol = 0; symbol < lengths.size(); ++symbol) {
      const int length = lengths[symbol];
      if (length == 0) continue;
      uint32_t reversed = 0;
      for (uint32_t i = 0, code = next[length]++; i < uint32_t(length); ++i) {
        reversed = reversed << 1 | (code >> i & 1);
      }
      for (size_t at = reversed; at < table_.size(); at += size_t{1} << length)
        table_[at] = {static_cast<uint8_t>(length),
                      static_cast<uint16_t>(symbol)};
    }
    return true;
  }

  uint32_t Read(Bits* bits) const {
    const Entry entry = table_[bits->Peek() & ((uint32_t{1} << bits_) - 1)];
    bits->Skip(entry.length);
    return entry.symbol;
  }

 private:
  struct Entry {
    uint8_t length;
    uint16_t symbol;
  };
  int bits_ = 0;
  std::vector<Entry> table_;
};

struct Group {
  PrefixCode green, red, blue, alpha, distance;
};

// Lengths of codes, themselves by a prefix code.
bool ReadLengths(Bits* bits, std::vector<uint8_t>* lengths) {
  constexpr std::array<uint8_t, 19> kOrder = {
      17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const uint32_t codes = bits->Read(4) + 4;
  if (codes > kOrder.size()) return false;
  std::vector<uint8_t> of_lengths(kOrder.size());
  for (uint32_t i = 0; i < codes; ++i) {
    of_lengths[kOrder[i]] = static_cast<uint8_t>(bits->Read(3));
  }
  PrefixCode code;
  if (!code.Set(of_lengths)) return false;
  uint32_t left = static_cast<uint32_t>(lengths->size());
  if (bits->Read(1) == 1) {
    const int length = 2 + 2 * static_cast<int>(bits->Read(3));
    left = 2 + bits->Read(length);
    if (left > lengths->size()) return false;
  }
  uint8_t before = 8;
  for (size_t symbol = 0; symbol < lengths->size() && left > 0; --left) {
    const uint32_t length = code.Read(bits);
    if (length < 16) {
      (*lengths)[symbol++] = static_cast<uint8_t>(length);
      if (length != 0) before = static_cast<uint8_t>(length);
      continue;
    }
    const size_t repeats = length == 16   ? 3 + bits->Read(2)
                           : length == 17 ? 3 + bits->Read(3)
                                          : 11 + bits->Read(7);
    if (symbol + repeats > lengths->size()) return false;
    std::fill_n(lengths->begin() + static_cast<ptrdiff_t>(symbol), repeats,
                length == 16 ? before : 0);
    symbol += repeats;
  }
  return true;
}

bool ReadCode(Bits* bits, size_t symbols, PrefixCode* code) {
  std::vector<uint8_t> lengths(symbols);
  if (bits->Read(1) == 1) {  // one or two symbols
    const bool has_two = bits->Read(1) == 1;
    const int size = bits->Read(1) == 1 ? 8 : 1;
    for (int i = 0; i <= int{has_two}; ++i) {
      const uint32_t symbol = bits->Read(i == 0 ? size : 8);
      if (symbol < symbols) lengths[symbol] = 1;
    }
  } else if (!ReadLengths(bits, &lengths)) {
    return false;
  }
  return !bits->IsOver() && code->Set(lengths);
}

bool ReadGroup(Bits* bits, int cache_bits, Group* group) {
  const size_t colours = cache_bits == 0 ? 0 : size_t{1} << cache_bits;
  return ReadCode(bits, kLiterals + kLengths + colours, &group->green) &&
         ReadCode(bits, kLiterals, &group->red) &&
         ReadCode(bits, kLiterals, &group->blue) &&
         ReadCode(bits, kLiterals, &group->alpha) &&
         ReadCode(bits, kDistances, &group->distance);
}

bool ReadCacheBits(Bits* bits, int* cache_bits) {
  *cache_bits = 0;
  if (bits->Read(1) == 0) return true;
  *cache_bits = static_cast<int>(bits->Read(4));
  return *cache_bits >= 1 && *cache_bits <= kMaxCacheBits;
}

// Of a length or a distance.
uint64_t ReadNumber(Bits* bits, uint32_t symbol) {
  if (symbol < 4) return symbol + 1;
  const int extra = static_cast<int>(symbol - 2) >> 1;
  return ((2 + (symbol & 1)) << extra) + bits->Read(extra) + uint64_t{1};
}

// Short distances count pixels around the next one, the nearest first.
uint64_t DistanceBack(uint64_t code, uint32_t width) {
  constexpr std::array<uint8_t, 120> kAround = {
      0x18, 0x07, 0x17, 0x19, 0x28, 0x06, 0x27, 0x29, 0x16, 0x1a, 0x26, 0x2a,
      0x38, 0x05, 0x37, 0x39, 0x15, 0x1b, 0x36, 0x3a, 0x25, 0x2b, 0x48, 0x04,
      0x47, 0x49, 0x14, 0x1c, 0x35, 0x3b, 0x46, 0x4a, 0x24, 0x2c, 0x58, 0x45,
      0x4b, 0x34, 0x3c, 0x03, 0x57, 0x59, 0x13, 0x1d, 0x56, 0x5a, 0x23, 0x2d,
      0x44, 0x4c, 0x55, 0x5b, 0x33, 0x3d, 0x68, 0x02, 0x67, 0x69, 0x12, 0x1e,
      0x66, 0x6a, 0x22, 0x2e, 0x54, 0x5c, 0x43, 0x4d, 0x65, 0x6b, 0x32, 0x3e,
      0x78, 0x01, 0x77, 0x79, 0x53, 0x5d, 0x11, 0x1f, 0x64, 0x6c, 0x42, 0x4e,
      0x76, 0x7a, 0x21, 0x2f, 0x75, 0x7b, 0x31, 0x3f, 0x63, 0x6d, 0x52, 0x5e,
      0x00, 0x74, 0x7c, 0x41, 0x4f, 0x10, 0x20, 0x62, 0x6e, 0x30, 0x73, 0x7d,
      0x51, 0x5f, 0x40, 0x72, 0x7e, 0x61, 0x6f, 0x50, 0x71, 0x7f, 0x60, 0x70};
  if (code > kAround.size()) return code - kAround.size();
  const int64_t around = kAround[code - 1];
  return static_cast<uint64_t>(
      std::max<int64_t>((around >> 4) * int64_t{width} + 8 - (around & 15), 1));
}

// Colours seen before, by a hash; each is entered before the cache is next
// asked.
class ColourCache {
 public:
  explicit ColourCache(int bits)
      : bits_(bits), colours_(bits == 0 ? 0 : size_t{1} << bits) {}

  uint32_t Get(uint32_t key, const std::vector<uint32_t>& pixels,
               uint64_t count) {
    for (; entered_ < count; ++entered_) {
      const uint32_t pixel = pixels[entered_];
      colours_[pixel * 0x1e35a7bdu >> (32 - bits_)] = pixel;
    }
    return colours_[key];
  }

 private:
  const int bits_;
  std::vector<uint32_t> colours_;
  uint64_t entered_ = 0;  // pixels
};

// A picture that has one group of codes and no transform: ARGB.
absl::StatusOr<std::vector<uint32_t>> ReadPicture(Bits* bits, uint32_t width,
                                                  uint32_t height) {
  int cache_bits;
  Group group;
  if (!ReadCacheBits(bits, &cache_bits) ||
      !ReadGroup(bits, cache_bits, &group)) {
    return DamagedLossless("codes of blocks");
  }
  std::vector<uint32_t> pixels(size_t{width} * height);
  ColourCache cache(cache_bits);
  for (uint64_t count = 0; count < pixels.size();) {
    const uint32_t green = group.green.Read(bits);
    if (green < kLiterals) {
      const uint32_t red = group.red.Read(bits);
      const uint32_t blue = group.blue.Read(bits);
      const uint32_t alpha = group.alpha.Read(bits);
      pixels[count++] = alpha << 24 | red << 16 | green << 8 | blue;
    } else if (green < kLiterals + kLengths) {
      const uint64_t length = ReadNumber(bits, green - kLiterals);
      const uint64_t back =
          DistanceBack(ReadNumber(bits, group.distance.Read(bits)), width);
      if (back > count || length > pixels.size() - count) {
        return DamagedLossless("repetition in a picture of blocks");
      }
      for (uint64_t i = 0; i < length; ++i, ++count) {
        pixels[count] = pixels[count - back];
      }
    } else {
      pixels[count] = cache.Get(green - kLiterals - kLengths, pixels, count);
      ++count;
    }
    if (bits->IsOver()) return DamagedLossless("picture of blocks");
  }
  return pixels;
}

uint32_t Blocks(uint32_t side, uint32_t bits) {
  return (side + (uint32_t{1} << bits) - 1) >> bits;
}

// Bytes of the small pictures of all transforms. *width becomes the width of
// the stored picture: a palette puts several pixels into one.
absl::StatusOr<uint64_t> ReadTransforms(Bits* bits, uint32_t* width,
                                        uint32_t height) {
  enum : uint32_t { kPredictor, kCrossColour, kSubtractGreen, kPalette };
  uint64_t bytes = 0;
  uint32_t seen = 0;
  while (bits->Read(1) == 1) {
    const uint32_t type = bits->Read(2);
    if ((seen >> type & 1) != 0)
      return DamagedLossless("transform comes twice");
    seen |= 1u << type;
    uint32_t picture_width = 0, picture_height = 0;
    if (type == kPredictor || type == kCrossColour) {
      const uint32_t block = bits->Read(3) + 2;
      picture_width = Blocks(*width, block);
      picture_height = Blocks(height, block);
    } else if (type == kPalette) {
      picture_width = bits->Read(8) + 1;
      picture_height = 1;
      *width = Blocks(*width, picture_width > 16  ? 0
                              : picture_width > 4 ? 1
                              : picture_width > 2 ? 2
                                                  : 3);
    }
    if (picture_width == 0) continue;
    BALLAST_ASSIGN_OR_RETURN(const std::vector<uint32_t> picture,
                             ReadPicture(bits, picture_width, picture_height));
    bytes += picture.size() * sizeof(picture[0]);
  }
  return bytes;
}

// From the transforms on.
absl::StatusOr<uint64_t> ReadTableBytes(Bits* bits, uint32_t width,
                                        uint32_t height) {
  BALLAST_ASSIGN_OR_RETURN(uint64_t bytes,
                           ReadTransforms(bits, &width, height));
  int cache_bits;
  if (!ReadCacheBits(bits, &cache_bits)) return DamagedLossless("colour cache");
  uint64_t groups = 1;
  if (bits->Read(1) == 1) {
    const uint32_t block = bits->Read(3) + 2;
    BALLAST_ASSIGN_OR_RETURN(
        const std::vector<uint32_t> picture,
        ReadPicture(bits, Blocks(width, block), Blocks(height, block)));
    std::bitset<0x10000> used;
    for (const uint32_t pixel : picture) {
      const uint32_t group = pixel >> 8 & 0xffff;
      used.set(group);
      groups = std::max<uint64_t>(groups, group + 1);
    }
    bytes += picture.size() * sizeof(picture[0]);
    // libwebp then maps numbers to those that are used.
    if (groups > 1000 || groups > uint64_t{width} * height) {
      bytes += groups * sizeof(int);
      groups = used.count();
    }
  }
  if (bits->IsOver()) return DamagedLossless("codes of pixels");
  return bytes +
         groups * (kGroupEntries[cache_bits] * kEntryBytes + kGroupBytes);
}

}  // namespace

absl::StatusOr<uint64_t> ReadLosslessTableBytes(absl::string_view stream) {
  constexpr size_t kHeader = 5;
  if (stream.size() < kHeader) return DamagedLossless("header");
  Bits bits(stream);
  bits.Skip(8);  // the signature
  const uint32_t width = bits.Read(14) + 1;
  const uint32_t height = bits.Read(14) + 1;
  bits.Skip(4);  // alpha, version
  return ReadTableBytes(&bits, width, height);
}

absl::StatusOr<uint64_t> ReadAlphaBytes(absl::string_view chunk, uint32_t width,
                                        uint32_t height) {
  constexpr uint32_t kMethod = 3, kCompressed = 1;
  Bits bits(chunk);
  if ((bits.Read(8) & kMethod) != kCompressed) return 0;
  BALLAST_ASSIGN_OR_RETURN(const uint64_t tables,
                           ReadTableBytes(&bits, width, height));
  // The alpha itself, for which libwebp also keeps room in its rows' memory.
  return uint64_t{2} * width * height + tables;
}

}  // namespace ballast
