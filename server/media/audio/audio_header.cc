#include "server/media/audio/audio_header.h"

#include <algorithm>
#include <array>
#include <bit>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

// Bytes from which a format is known, and a frame of MP3 found.
constexpr uint64_t kHeadBytes = 4096;
// A page of Ogg has at most 27 + 255 + 255 * 255.
constexpr uint64_t kMaxPageBytes = 65307;
// Chunks of a WAV file before its samples.
constexpr int kMaxChunks = 1000;
constexpr int kMaxTags = 16;
// Lengths of a WAV file that was written to a pipe, by FFmpeg and by SoX.
constexpr uint32_t kUnknownLength = 0x7FFFF000;

uint64_t Little(absl::string_view bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = size; i-- > 0;) {
    value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  }
  return value;
}

uint64_t Big(absl::string_view bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  }
  return value;
}

absl::Status CutShort(absl::string_view what, uint64_t wanted, uint64_t found) {
  return DataFaultError(absl::StrCat("the file was cut short: ", what, " of ",
                                     wanted, " bytes, of which ", found,
                                     " are there"));
}

absl::Status OfTwo(absl::string_view what, uint64_t second) {
  return DataFaultError(
      absl::StrCat("a second stream of ", what, " begins at byte ", second,
                   ", and readers play the first alone, or both; wanted one: "
                   "ffmpeg -i FILE OUT.flac"));
}

// The file, read in ranges that may go beyond its end.
class Bytes {
 public:
  Bytes(uint64_t length, ReadAudioBytes read) : length_(length), read_(read) {}

  uint64_t length() const { return length_; }
  // As many of `bytes` as there are.
  absl::StatusOr<std::string> Some(uint64_t offset, uint64_t bytes) const {
    if (offset >= length_) return std::string();
    BALLAST_ASSIGN_OR_RETURN(std::string some,
                             read_(offset, std::min(bytes, length_ - offset)));
    return some;
  }
  absl::StatusOr<std::string> All(absl::string_view what, uint64_t offset,
                                  uint64_t bytes) const {
    BALLAST_ASSIGN_OR_RETURN(std::string some, Some(offset, bytes));
    if (some.size() < bytes) return CutShort(what, bytes, some.size());
    return some;
  }

 private:
  const uint64_t length_;
  const ReadAudioBytes read_;
};

absl::StatusOr<AudioHeader> Checked(AudioHeader header) {
  if (header.rate == 0 || header.channels == 0) {
    return DataFaultError(
        absl::StrCat("the header says ", header.rate, " samples a second and ",
                     header.channels, " channels; wanted at least 1 of each"));
  }
  if (header.samples == 0) return DataFaultError("the file holds no sample");
  return header;
}

absl::StatusOr<AudioHeader> ReadWav(const Bytes& file, bool is_64) {
  constexpr uint64_t kPcm = 1, kFloat = 3, kALaw = 6, kMuLaw = 7;
  AudioHeader header;
  uint64_t block = 0;
  uint64_t long_bytes = 0;
  bool has_format = false;
  bool is_float = false;
  uint64_t at = 12;
  for (int chunk = 0; chunk < kMaxChunks; ++chunk) {
    BALLAST_ASSIGN_OR_RETURN(const std::string head,
                             file.All("the head of a chunk", at, 8));
    const std::string id = head.substr(0, 4);
    uint64_t bytes = Little(head, 4, 4);
    at += 8;
    if (id == "data") {
      if (!has_format) {
        return DataFaultError("samples come before the chunk fmt");
      }
      const uint64_t left = file.length() - at;
      if (is_64 && bytes == 0xFFFFFFFF) {
        bytes = long_bytes;
      } else if (bytes >= kUnknownLength) {
        bytes = left;
      }
      if (bytes > left) return CutShort("samples", bytes, left);
      header.asks_decoder = bytes + bytes % 2 < left;  // chunks follow
      if (block != 0) {
        header.samples = bytes / block;
      } else {
        header.scan = "WAV of compressed blocks";
      }
      if (is_float) {
        header.scan = "WAV of floats, any of which may be no number";
      }
      return Checked(header);
    }
    if (id == "fmt ") {
      BALLAST_ASSIGN_OR_RETURN(
          const std::string format,
          file.All("chunk fmt", at, std::clamp<uint64_t>(bytes, 16, 40)));
      has_format = true;
      uint64_t tag = Little(format, 0, 2);
      if (tag == 0xFFFE && format.size() >= 26) tag = Little(format, 24, 2);
      header.channels = static_cast<uint32_t>(Little(format, 2, 2));
      header.rate = static_cast<uint32_t>(Little(format, 4, 4));
      const uint64_t aligned = Little(format, 12, 2);
      const uint64_t bits = Little(format, 14, 2);
      is_float = tag == kFloat;
      if (tag == kPcm || tag == kFloat || tag == kALaw || tag == kMuLaw) {
        block = header.channels * ((bits + 7) / 8);
        if (block == 0 || aligned != block) {
          return DataFaultError(absl::StrCat(
              "a sample of ", header.channels, " channels of ", bits,
              " bits takes ", aligned, " bytes; wanted ", block));
        }
      }
    } else if (id == "ds64" && is_64) {
      BALLAST_ASSIGN_OR_RETURN(const std::string sizes,
                               file.All("chunk ds64", at, 16));
      long_bytes = Little(sizes, 8, 8);
    }
    at += bytes + bytes % 2;
  }
  return DataFaultError(
      absl::StrCat("no chunk data among the first ", kMaxChunks));
}

// Checksums of FLAC and Ogg, the highest bit first.
template <class T, T kPolynomial>
T Checksum(absl::string_view bytes, T sum = 0) {
  constexpr int kHigh = 8 * sizeof(T) - 8;
  static constexpr auto kTable = [] {
    std::array<T, 256> table = {};
    for (uint64_t i = 0; i < table.size(); ++i) {
      uint64_t value = i << kHigh;
      for (int bit = 0; bit < 8; ++bit) {
        const bool is_set = (value >> (kHigh + 7) & 1) != 0;
        value = value << 1 ^ (is_set ? kPolynomial : 0);
      }
      table[i] = static_cast<T>(value);
    }
    return table;
  }();
  for (const char byte : bytes) {
    const auto next =
        static_cast<uint8_t>(sum >> kHigh ^ static_cast<uint8_t>(byte));
    sum = static_cast<T>(uint64_t{sum} << 8 ^ kTable[next]);
  }
  return sum;
}

// The sample after a frame of FLAC whose header begins `bytes`; nullopt: there
// is no such header. `block`: samples of the frames of a stream that has them
// all alike.
std::optional<uint64_t> EndOfFlacFrame(absl::string_view bytes,
                                       uint64_t block) {
  constexpr size_t kLongest = 16;
  bytes = bytes.substr(0, kLongest);
  if (bytes.size() < 6 || Big(bytes, 0, 2) >> 1 != 0xFFF8 >> 1) {
    return std::nullopt;
  }
  const bool is_by_sample = (bytes[1] & 1) != 0;
  const int size = static_cast<uint8_t>(bytes[2]) >> 4;
  const int rate = bytes[2] & 15;
  // A number in UTF-8, of up to 36 bits.
  const auto first = static_cast<uint8_t>(bytes[4]);
  const int more = std::countl_one(first);
  if (size == 0 || rate == 15 || more == 1 || more > 7) return std::nullopt;
  uint64_t number = more == 0 ? first : first & (0x7F >> more);
  size_t next = 5;
  for (int i = 1; i < more; ++i, ++next) {
    if (next >= bytes.size() || (bytes[next] & 0xC0) != 0x80) {
      return std::nullopt;
    }
    number = number << 6 | (bytes[next] & 0x3F);
  }
  const size_t size_bytes = size == 6 ? 1 : size == 7 ? 2 : 0;
  const size_t rate_bytes = rate == 12 ? 1 : rate == 13 || rate == 14 ? 2 : 0;
  if (next + size_bytes + rate_bytes >= bytes.size()) return std::nullopt;
  const uint64_t samples = size_bytes > 0 ? Big(bytes, next, size_bytes) + 1
                           : size == 1    ? 192
                           : size < 6     ? 576 << (size - 2)
                                          : 256 << (size - 8);
  next += size_bytes + rate_bytes;
  constexpr uint8_t kPolynomial = 0x07;
  if (Checksum<uint8_t, kPolynomial>(bytes.substr(0, next + 1)) != 0) {
    return std::nullopt;
  }
  return samples + (is_by_sample ? number : number * block);
}

// Whether the file ends with a whole frame of FLAC and the sample before
// `samples`. A tag of ID3v1 may follow.
absl::StatusOr<bool> EndsAtSample(const Bytes& file, uint64_t samples,
                                  uint64_t block, uint64_t longest_frame) {
  constexpr uint64_t kTagBytes = 128;
  constexpr uint64_t kMostBytes = uint64_t{1} << 18;
  const uint64_t most =
      std::min(longest_frame == 0 ? kMostBytes : longest_frame + kTagBytes,
               std::min(file.length(), kMostBytes));
  BALLAST_ASSIGN_OR_RETURN(const std::string read,
                           file.Some(file.length() - most, most));
  absl::string_view tail = read;
  if (tail.size() >= kTagBytes &&
      absl::StartsWith(tail.substr(tail.size() - kTagBytes), "TAG")) {
    tail.remove_suffix(kTagBytes);
  }
  for (size_t at = tail.size(); at-- > 0;) {
    if (static_cast<uint8_t>(tail[at]) != 0xFF) continue;
    const absl::string_view frame = tail.substr(at);
    if (EndOfFlacFrame(frame, block) != samples) continue;
    constexpr uint16_t kPolynomial = 0x8005;
    return Checksum<uint16_t, kPolynomial>(frame) == 0;
  }
  return false;
}

absl::StatusOr<AudioHeader> ReadFlac(const Bytes& file, uint64_t at) {
  BALLAST_ASSIGN_OR_RETURN(const std::string info,
                           file.All("STREAMINFO", at + 4, 38));
  if ((info[0] & 0x7F) != 0 || Big(info, 1, 3) != 34) {
    return DataFaultError("FLAC without STREAMINFO at its start");
  }
  // From bit 80: 20 bits rate, 3 channels - 1, 5 width - 1, 36 samples.
  const uint64_t packed = Big(info, 14, 8);
  AudioHeader header;
  header.format = AudioFormat::kFlac;
  header.rate = static_cast<uint32_t>(packed >> 44);
  header.channels = static_cast<uint32_t>(packed >> 41 & 7) + 1;
  const uint64_t samples = packed & ((uint64_t{1} << 36) - 1);
  if (samples == 0) {
    header.scan = "FLAC written to a pipe: STREAMINFO counts no samples";
    return Checked(header);
  }
  header.samples = samples;
  BALLAST_ASSIGN_OR_RETURN(
      const bool is_whole,
      EndsAtSample(file, samples, Big(info, 6, 2), Big(info, 11, 3)));
  if (!is_whole) header.scan = "FLAC that does not end with its last frame";
  return Checked(header);
}

struct Mp3Frame {
  bool is_version_1 = false;
  uint32_t rate = 0;
  uint32_t channels = 0;
  uint64_t bytes = 0;
  uint32_t samples = 0;
};

// The header of a frame of layer III at `at`; nullopt: there is none.
std::optional<Mp3Frame> ParseMp3Frame(absl::string_view bytes, size_t at) {
  constexpr uint32_t kRates[] = {44100, 48000, 32000};
  constexpr uint32_t kKilobits1[] = {0,   32,  40,  48,  56,  64,  80, 96,
                                     112, 128, 160, 192, 224, 256, 320};
  constexpr uint32_t kKilobits2[] = {0,  8,  16, 24,  32,  40,  48, 56,
                                     64, 80, 96, 112, 128, 144, 160};
  if (at + 4 > bytes.size()) return std::nullopt;
  const uint64_t head = Big(bytes, at, 4);
  const uint64_t version = head >> 19 & 3;  // 0: 2.5, 2: 2, 3: 1
  const uint64_t layer = head >> 17 & 3;    // 1: III
  const uint64_t kilobits = head >> 12 & 15;
  const uint64_t rate = head >> 10 & 3;
  if (head >> 21 != 0x7FF || version == 1 || layer != 1 || kilobits == 0 ||
      kilobits == 15 || rate == 3) {
    return std::nullopt;
  }
  Mp3Frame frame;
  frame.is_version_1 = version == 3;
  frame.rate = kRates[rate] >> (version == 3 ? 0 : version == 2 ? 1 : 2);
  frame.channels = (head >> 6 & 3) == 3 ? 1 : 2;
  frame.samples = frame.is_version_1 ? 1152 : 576;
  const uint32_t bits =
      1000 * (frame.is_version_1 ? kKilobits1 : kKilobits2)[kilobits];
  frame.bytes = frame.samples / 8 * bits / frame.rate + (head >> 9 & 1);
  return frame;
}

// The samples that a frame of tags counts: the encoder's delay and padding are
// no audio. Nothing without such a frame, or without the encoder's part of it.
std::optional<uint64_t> CountMp3(absl::string_view bytes, size_t at,
                                 const Mp3Frame& frame, uint64_t* length) {
  constexpr size_t kFlagFrames = 1, kFlagBytes = 2, kFlagIndex = 4,
                   kFlagQuality = 8;
  size_t next = at + 4 +
                (frame.is_version_1 ? (frame.channels == 1 ? 17 : 32)
                                    : (frame.channels == 1 ? 9 : 17));
  if (next + 8 > bytes.size()) return std::nullopt;
  const absl::string_view name = bytes.substr(next, 4);
  if (name != "Xing" && name != "Info") return std::nullopt;
  const uint64_t flags = Big(bytes, next + 4, 4);
  next += 8;
  // With the encoder's part; all is within the first kilobytes.
  if (next + 4 + 4 + 100 + 4 + 24 > bytes.size()) return std::nullopt;
  uint64_t frames = 0;
  if ((flags & kFlagFrames) != 0) {
    frames = Big(bytes, next, 4);
    next += 4;
  }
  if ((flags & kFlagBytes) != 0) {
    *length = Big(bytes, next, 4);
    next += 4;
  }
  if ((flags & kFlagIndex) != 0) next += 100;
  if ((flags & kFlagQuality) != 0) next += 4;
  const absl::string_view encoder = bytes.substr(next, 9);
  if (!absl::StartsWith(encoder, "LAME") && !absl::StartsWith(encoder, "Lav")) {
    return std::nullopt;
  }
  // libsndfile leaves out the decoder's own delay, too, and of the padding what
  // that delay has not replaced, also where the encoder states 0 and 0, as
  // FFmpeg does when it cuts a file without decoding it.
  constexpr uint64_t kDecoderDelay = 529;
  const uint64_t trimmed = Big(bytes, next + 21, 3);
  const uint64_t silent =
      (trimmed >> 12) + std::max(trimmed & 0xFFF, kDecoderDelay);
  const uint64_t all = frames * frame.samples;
  if (all <= silent) return std::nullopt;
  return all - silent;
}

// AAC without a container: the sync word and layer 0.
bool IsAdts(absl::string_view bytes) {
  return bytes.size() >= 2 && (Big(bytes, 0, 2) & 0xFFF6) == 0xFFF0;
}

// What a file is that is not read, by its first bytes; "" if that is unknown.
std::string Seen(absl::string_view bytes) {
  constexpr struct {
    size_t at;
    absl::string_view bytes;
    const char* name;
  } kForms[] = {
      {0, "NIST_1A", "NIST SPHERE"},
      {8, "AIFF", "AIFF"},
      {8, "AIFC", "AIFF-C"},
      {0, ".snd", "AU"},
      {0, "caff", "CAF"},
      {0, "wvpk", "WavPack"},
      {0, "MAC ", "Monkey's Audio"},
      {0, "#!AMR", "AMR"},
      {0, "riff", "Sony Wave64"},
      {0, "\x1A\x45\xDF\xA3", "WebM or Matroska"},
      {0, "\x30\x26\xB2\x75", "WMA"},
  };
  for (const auto& form : kForms) {
    if (bytes.size() >= form.at &&
        absl::StartsWith(bytes.substr(form.at), form.bytes)) {
      return absl::StrCat(": found ", form.name);
    }
  }
  if (IsAdts(bytes)) return ": found AAC without a container (ADTS)";
  for (size_t at = 1; at + 4 <= bytes.size(); ++at) {
    const std::optional<Mp3Frame> frame = ParseMp3Frame(bytes, at);
    if (!frame || frame->bytes == 0) continue;
    const std::optional<Mp3Frame> second =
        ParseMp3Frame(bytes, at + frame->bytes);
    if (second && second->rate == frame->rate &&
        ParseMp3Frame(bytes, at + frame->bytes + second->bytes)) {
      return absl::StrCat(
          ": found an MP3 that begins within a frame, the next "
          "frame begins at byte ",
          at, ": cut the file there");
    }
  }
  return "";
}

absl::StatusOr<AudioHeader> ReadMp3(const Bytes& file, uint64_t start) {
  BALLAST_ASSIGN_OR_RETURN(const std::string bytes,
                           file.Some(start, kHeadBytes));
  for (size_t at = 0; at + 4 <= bytes.size(); ++at) {
    const std::optional<Mp3Frame> frame = ParseMp3Frame(bytes, at);
    if (!frame) continue;
    const uint64_t next = at + frame->bytes;
    if (next + 4 <= bytes.size() && !ParseMp3Frame(bytes, next)) continue;
    AudioHeader header;
    header.format = AudioFormat::kMp3;
    header.rate = frame->rate;
    header.channels = frame->channels;
    uint64_t length = 0;
    header.samples = CountMp3(bytes, at, *frame, &length);
    const uint64_t left = file.length() - start - at;
    if (header.samples && length > left) return CutShort("MP3", length, left);
    if (header.samples && length > 0) {
      const uint64_t behind = start + at + length;
      BALLAST_ASSIGN_OR_RETURN(const std::string more,
                               file.Some(behind, kHeadBytes));
      const std::optional<Mp3Frame> second = ParseMp3Frame(more, 0);
      if (absl::StartsWith(more, "ID3") ||
          (second && CountMp3(more, 0, *second, &length))) {
        return OfTwo("MP3", behind);
      }
    }
    if (!header.samples) {
      header.scan = "MP3 without a count of frames, delay and padding";
    }
    return Checked(header);
  }
  return DataFaultError(
      absl::StrCat("no frame of MP3 in the first ", bytes.size(), " bytes"));
}

struct OggPage {
  uint64_t bytes = 0;
  uint8_t flags = 0;
  uint64_t position = 0;  // of its last sample
  uint64_t serial = 0;
};

// The page at `at`; nullopt: there is none, or it exceeds `bytes`.
std::optional<OggPage> ParseOggPage(absl::string_view bytes, size_t at) {
  constexpr size_t kHead = 27;
  if (at + kHead > bytes.size() || bytes.substr(at, 4) != "OggS" ||
      bytes[at + 4] != 0) {
    return std::nullopt;
  }
  OggPage page;
  page.flags = static_cast<uint8_t>(bytes[at + 5]);
  page.position = Little(bytes, at + 6, 8);
  page.serial = Little(bytes, at + 14, 4);
  const size_t segments = static_cast<uint8_t>(bytes[at + 26]);
  page.bytes = kHead + segments;
  if (at + page.bytes > bytes.size()) return std::nullopt;
  for (size_t i = 0; i < segments; ++i) {
    page.bytes += static_cast<uint8_t>(bytes[at + kHead + i]);
  }
  if (at + page.bytes > bytes.size()) return std::nullopt;
  return page;
}

// The last page, which ends where the file does.
absl::StatusOr<OggPage> ReadLastPage(const Bytes& file) {
  const uint64_t from = file.length() - std::min(file.length(), kMaxPageBytes);
  BALLAST_ASSIGN_OR_RETURN(const std::string tail,
                           file.Some(from, kMaxPageBytes));
  for (size_t at = tail.size(); at-- > 0;) {
    const std::optional<OggPage> page = ParseOggPage(tail, at);
    if (page && at + page->bytes == tail.size()) return *page;
  }
  return DataFaultError(
      "the file was cut short, or has other bytes at its end: no page of Ogg "
      "ends where the file does");
}

// Every page is whole, and none begins a stream after pages of another: readers
// play the first of such streams alone, or all.
absl::Status CheckOggPages(const Bytes& file) {
  constexpr uint8_t kBeginOfStream = 2;
  constexpr size_t kSum = 22;  // where a page holds its checksum
  constexpr uint64_t kRead = 16 * kMaxPageBytes;
  std::string bytes;
  size_t next = 0;  // in `bytes`
  bool has_begun = false;
  for (uint64_t at = 0; at < file.length();) {
    const uint64_t ahead = bytes.size() - next;
    if (ahead < kMaxPageBytes && at + ahead < file.length()) {
      BALLAST_ASSIGN_OR_RETURN(bytes, file.Some(at, kRead));
      next = 0;
    }
    const std::optional<OggPage> page = ParseOggPage(bytes, next);
    if (!page) {
      return DataFaultError(absl::StrCat(
          "no page of Ogg at byte ", at,
          ", where the one before it ends: it was damaged or cut short"));
    }
    const absl::string_view found(bytes.data() + next, page->bytes);
    constexpr uint32_t kPolynomial = 0x04C11DB7;
    const auto add = [](absl::string_view part, uint32_t sum) {
      return Checksum<uint32_t, kPolynomial>(part, sum);
    };
    const uint32_t sum = add(
        found.substr(kSum + 4),
        add(absl::string_view("\0\0\0\0", 4), add(found.substr(0, kSum), 0)));
    if (sum != Little(found, kSum, 4)) {
      return DataFaultError(
          absl::StrCat("the page of Ogg at byte ", at,
                       " was damaged: its checksum is not that of its bytes"));
    }
    const bool begins = (page->flags & kBeginOfStream) != 0;
    if (begins && has_begun) return OfTwo("Ogg", at);
    has_begun = has_begun || !begins;
    at += page->bytes;
    next += page->bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<AudioHeader> ReadOgg(const Bytes& file, absl::string_view head) {
  constexpr uint8_t kEndOfStream = 4;
  constexpr uint64_t kOpusRate = 48000;
  constexpr uint64_t kNoPosition = ~uint64_t{0};
  const std::optional<OggPage> first = ParseOggPage(head, 0);
  if (!first) return DataFaultError("the first page of Ogg is damaged");
  const absl::string_view packet =
      head.substr(27 + static_cast<uint8_t>(head[26]),
                  first->bytes - 27 - static_cast<uint8_t>(head[26]));
  AudioHeader header;
  header.asks_decoder = true;
  uint64_t factor = 1;
  uint64_t skipped = 0;
  if (absl::StartsWith(packet, "\x01vorbis") && packet.size() >= 16) {
    header.format = AudioFormat::kVorbis;
    header.channels = static_cast<uint8_t>(packet[11]);
    header.rate = static_cast<uint32_t>(Little(packet, 12, 4));
  } else if (absl::StartsWith(packet, "OpusHead") && packet.size() >= 19) {
    header.format = AudioFormat::kOpus;
    header.channels = static_cast<uint8_t>(packet[9]);
    skipped = Little(packet, 10, 2);
    const uint64_t rate = Little(packet, 12, 4);
    factor = rate <= 8000    ? 6
             : rate <= 12000 ? 4
             : rate <= 16000 ? 3
             : rate <= 24000 ? 2
                             : 1;
    header.rate = static_cast<uint32_t>(kOpusRate / factor);
  } else {
    return DataFaultError("Ogg that begins with neither Vorbis nor Opus");
  }
  BALLAST_ASSIGN_OR_RETURN(const OggPage last, ReadLastPage(file));
  BALLAST_RETURN_IF_ERROR(CheckOggPages(file));
  if (last.serial != first->serial) {
    header.scan = "Ogg of several streams";
    return Checked(header);
  }
  if ((last.flags & kEndOfStream) == 0) {
    return DataFaultError(
        "the file was cut short: its last page of Ogg does not end the stream");
  }
  if (last.position == kNoPosition) {
    header.scan = "Ogg whose last page has no position";
    return Checked(header);
  }
  header.samples =
      last.position <= skipped ? 0 : (last.position - skipped) / factor;
  return Checked(header);
}

}  // namespace

const char* AudioFormatName(AudioFormat format) {
  switch (format) {
    case AudioFormat::kWav:
      return "wav";
    case AudioFormat::kFlac:
      return "flac";
    case AudioFormat::kMp3:
      return "mp3";
    case AudioFormat::kVorbis:
      return "vorbis";
    case AudioFormat::kOpus:
      return "opus";
    case AudioFormat::kM4a:
      return "m4a";
    case AudioFormat::kVideo:
      return "video";
  }
  return "";
}

absl::StatusOr<AudioHeader> ReadAudioHeader(uint64_t length,
                                            ReadAudioBytes read) {
  const Bytes file(length, read);
  uint64_t start = 0;
  for (int tags = 0; tags < kMaxTags; ++tags) {
    BALLAST_ASSIGN_OR_RETURN(const std::string head,
                             file.Some(start, kHeadBytes));
    const absl::string_view bytes = head;
    if (start == 0 && bytes.size() >= 12) {
      const absl::string_view form = bytes.substr(8, 4);
      if (absl::StartsWith(bytes, "RIFF") && form == "WAVE") {
        return ReadWav(file, /*is_64=*/false);
      }
      if (absl::StartsWith(bytes, "RF64") && form == "WAVE") {
        return ReadWav(file, /*is_64=*/true);
      }
      if (absl::StartsWith(bytes, "OggS")) return ReadOgg(file, bytes);
      if (bytes.substr(4, 4) == "ftyp") {
        AudioHeader header;
        header.format = AudioFormat::kM4a;
        return header;
      }
    }
    if (absl::StartsWith(bytes, "fLaC")) return ReadFlac(file, start);
    if (!absl::StartsWith(bytes, "ID3") || bytes.size() < 10) break;
    // Four times 7 bits; flag 16: a footer as long as the head.
    uint64_t size = 0;
    for (size_t i = 6; i < 10; ++i) {
      size = size << 7 | (static_cast<uint8_t>(bytes[i]) & 0x7F);
    }
    start += 10 + size + ((bytes[5] & 0x10) != 0 ? 10 : 0);
  }
  if (start == 0) {
    BALLAST_ASSIGN_OR_RETURN(const std::string head, file.Some(0, kHeadBytes));
    if (head.size() < 2 || Big(head, 0, 2) >> 5 != 0x7FF || IsAdts(head)) {
      return DataFaultError(absl::StrCat("no audio that is known", Seen(head),
                                         "; wanted WAV, FLAC, MP3, Ogg Vorbis, "
                                         "Ogg Opus or M4A"));
    }
  }
  return ReadMp3(file, start);
}

}  // namespace ballast
