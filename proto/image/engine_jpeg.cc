#include "proto/image/engine_jpeg.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"

// Reads a JPEG's segments more strictly than libjpeg does: if an odd header has
// two readings, an engine may choose the other one.

namespace ballast {

std::optional<VideoMatrix> GetVideoMatrix(int code) {
  switch (code) {
    case 0:
      return std::nullopt;
    case 1:
      return VideoMatrix::kBt709;
    case 4:
      return VideoMatrix::kFcc;
    case 7:
      return VideoMatrix::kSmpte240;
    case 9:
    case 10:
      return VideoMatrix::kBt2020;
    default:
      return VideoMatrix::kBt601;
  }
}

uint32_t PlaneForm::plane_width(int plane) const {
  if (plane > 0 && sampling == ChromaSampling::kVideo) return width + width % 2;
  const bool halved = plane > 0 && (sampling == ChromaSampling::k422 ||
                                    sampling == ChromaSampling::k420);
  return halved ? width / 2 + width % 2 : width;
}

uint32_t PlaneForm::plane_height(int plane) const {
  const bool halved = plane > 0 && (sampling == ChromaSampling::k420 ||
                                    sampling == ChromaSampling::kVideo);
  return halved ? height / 2 + height % 2 : height;
}

PlaneLayout LayOutPlanes(const PlaneForm& form) {
  PlaneLayout layout;
  for (int plane = 0; plane < form.planes(); ++plane) {
    layout.offset[plane] = layout.bytes;
    layout.pitch[plane] = static_cast<uint32_t>(
        AlignUp(form.plane_width(plane), kPlaneAlignment));
    layout.bytes += uint64_t{layout.pitch[plane]} * form.plane_height(plane);
  }
  return layout;
}

namespace {

using Refusal = EngineRefusal;

uint32_t Byte(absl::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]);
}

uint32_t Big16(absl::string_view bytes, size_t at) {
  return Byte(bytes, at) << 8 | Byte(bytes, at + 1);
}

struct Component {
  uint32_t id = 0;
  uint32_t sampling = 0;  // horizontal << 4 | vertical
  uint32_t quantisation = 0;
};

constexpr size_t kMaxComponents = 3;

// The facts of a header, gathered segment by segment. Each function takes a
// segment's payload.
class Header {
 public:
  Refusal Application0(absl::string_view payload) {
    if (payload.size() < 14 || !absl::StartsWith(payload, {"JFIF", 5})) {
      return Refusal::kNone;
    }
    jfif_ = true;
    // libjpeg warns of other major versions.
    return Byte(payload, 5) == 1 ? Refusal::kNone : Refusal::kMarkers;
  }

  Refusal Application2(absl::string_view payload) {
    return absl::StartsWith(payload, {"MPF", 4}) ? Refusal::kMarkers
                                                 : Refusal::kNone;
  }

  Refusal Application14(absl::string_view payload) {
    if (payload.size() < 12 || !absl::StartsWith(payload, "Adobe")) {
      return Refusal::kNone;
    }
    adobe_ = true;
    transform_ = Byte(payload, 11);
    return Refusal::kNone;
  }

  Refusal Quantisation(absl::string_view payload) {
    constexpr size_t kBytes = 1 + 64;
    for (; !payload.empty(); payload.remove_prefix(kBytes)) {
      const uint32_t table = Byte(payload, 0);
      if (table >= quantised_.size()) return Refusal::kTables;
      if (payload.size() < kBytes) return Refusal::kMarkers;
      const absl::string_view steps = payload.substr(1, kBytes - 1);
      if (steps.find('\0') != absl::string_view::npos) return Refusal::kTables;
      quantised_[table] = true;
    }
    return Refusal::kNone;
  }

  Refusal Huffman(absl::string_view payload) {
    constexpr size_t kCounts = 1 + 16;
    while (!payload.empty()) {
      if (payload.size() < kCounts) return Refusal::kMarkers;
      const uint32_t table = Byte(payload, 0);
      // Baseline has two tables of each class.
      if ((table & ~0x11u) != 0) return Refusal::kTables;
      size_t codes = 0;
      for (size_t i = 1; i < kCounts; ++i) codes += Byte(payload, i);
      if (payload.size() - kCounts < codes) return Refusal::kMarkers;
      if (codes == 0 || codes > 256) return Refusal::kTables;
      payload.remove_prefix(kCounts + codes);
      coded_[table >> 4][table & 1] = true;
    }
    return Refusal::kNone;
  }

  Refusal RestartInterval(absl::string_view payload) {
    return payload.size() == 2 ? Refusal::kNone : Refusal::kMarkers;
  }

  Refusal Frame(absl::string_view payload) {
    if (count_ != 0 || payload.size() < 6) return Refusal::kMarkers;
    if (Byte(payload, 0) != 8) return Refusal::kProcess;
    form_.height = Big16(payload, 1);
    form_.width = Big16(payload, 3);
    count_ = Byte(payload, 5);
    if (count_ != 1 && count_ != kMaxComponents) return Refusal::kColours;
    if (payload.size() != 6 + 3 * count_) return Refusal::kMarkers;
    for (size_t i = 0; i < count_; ++i) {
      const size_t at = 6 + 3 * i;
      components_[i] = {Byte(payload, at), Byte(payload, at + 1),
                        Byte(payload, at + 2)};
    }
    return Refusal::kNone;
  }

  Refusal Scan(absl::string_view payload) {
    if (count_ == 0) return Refusal::kMarkers;
    if (payload.empty() || Byte(payload, 0) != count_) return Refusal::kScan;
    if (payload.size() != 4 + 2 * count_) return Refusal::kMarkers;
    for (size_t i = 0; i < count_; ++i) {
      if (Byte(payload, 1 + 2 * i) != components_[i].id) return Refusal::kScan;
      const uint32_t tables = Byte(payload, 2 + 2 * i);
      const uint32_t quantisation = components_[i].quantisation;
      if ((tables & ~0x11u) != 0 || !coded_[0][tables >> 4] ||
          !coded_[1][tables & 1] || quantisation >= quantised_.size() ||
          !quantised_[quantisation]) {
        return Refusal::kTables;
      }
    }
    // All coefficients, in full precision.
    if (payload.substr(1 + 2 * count_) != absl::string_view("\0\x3f\0", 3)) {
      return Refusal::kScan;
    }
    return Refusal::kNone;
  }

  // The verdict on the whole header, once the scan is reached.
  EngineJudgement Judge() {
    if (!HasColours()) return {Refusal::kColours, {}};
    if (!FindSampling()) return {Refusal::kSampling, {}};
    const uint64_t width = form_.width;
    const uint64_t height = form_.height;
    if (width == 0 || height == 0 || std::max(width, height) > kMaxEngineSide ||
        width * height > kMaxEnginePixels ||
        height > kMaxEngineTallness * width) {
      return {Refusal::kSize, {}};
    }
    return {Refusal::kNone, form_};
  }

 private:
  // Whether libjpeg reads the components as grey or YCbCr, and no marker says
  // otherwise.
  bool HasColours() const {
    if (count_ == 1) return true;
    if (adobe_) return transform_ == 1;
    if (jfif_) return true;
    const auto id = [&](size_t i) { return components_[i].id; };
    return !(id(0) == 'R' && id(1) == 'G' && id(2) == 'B');
  }

  bool FindSampling() {
    if (count_ == 1) {
      form_.sampling = ChromaSampling::kGrey;
      return components_[0].sampling == 0x11;
    }
    if (components_[1].sampling != 0x11 || components_[2].sampling != 0x11) {
      return false;
    }
    switch (components_[0].sampling) {
      case 0x11:
        form_.sampling = ChromaSampling::k444;
        return true;
      case 0x21:
        form_.sampling = ChromaSampling::k422;
        return true;
      case 0x22:
        form_.sampling = ChromaSampling::k420;
        return true;
    }
    return false;
  }

  bool jfif_ = false;
  bool adobe_ = false;
  uint32_t transform_ = 0;  // Adobe's
  std::array<bool, 4> quantised_ = {};
  std::array<std::array<bool, 2>, 2> coded_ = {};  // [DC, AC][table]
  size_t count_ = 0;
  std::array<Component, kMaxComponents> components_ = {};
  PlaneForm form_;
};

// True for the markers of segments that a header may have.
bool HasLength(uint32_t marker) {
  return (marker >= 0xc0 && marker <= 0xcf) || marker == 0xda ||
         marker == 0xdb || marker == 0xdd ||
         (marker >= 0xe0 && marker <= 0xef) || marker == 0xfe;
}

Refusal Read(uint32_t marker, absl::string_view payload, Header* header) {
  switch (marker) {
    case 0xc0:
      return header->Frame(payload);
    case 0xc4:
      return header->Huffman(payload);
    case 0xda:
      return header->Scan(payload);
    case 0xdb:
      return header->Quantisation(payload);
    case 0xdd:
      return header->RestartInterval(payload);
    case 0xe0:
      return header->Application0(payload);
    case 0xe2:
      return header->Application2(payload);
    case 0xee:
      return header->Application14(payload);
  }
  // Other frame headers, and arithmetic coding's conditioning; else a comment
  // or an application's data.
  return marker <= 0xcf ? Refusal::kProcess : Refusal::kNone;
}

absl::Status CutShort(size_t size) {
  return absl::OutOfRangeError(
      absl::StrCat("JPEG ends after ", size, " bytes, before its scan"));
}

}  // namespace

absl::string_view EngineRefusalText(EngineRefusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "none";
    case Refusal::kNotJpeg:
      return "not a JPEG";
    case Refusal::kMarkers:
      return "unusual markers";
    case Refusal::kProcess:
      return "not baseline of 8 bits";
    case Refusal::kColours:
      return "neither grey nor YCbCr";
    case Refusal::kSampling:
      return "sampling other than 4:4:4, 4:2:2 and 4:2:0";
    case Refusal::kTables:
      return "unusual or missing tables";
    case Refusal::kScan:
      return "several scans";
    case Refusal::kSize:
      return "size out of bounds";
    case Refusal::kEnd:
      return "no end marker";
    case Refusal::kLength:
      return "file too long";
    case Refusal::kTurned:
      return "turned by its EXIF orientation";
  }
  return "unknown";
}

absl::StatusOr<EngineJudgement> JudgeForEngines(absl::string_view bytes) {
  constexpr absl::string_view kMagic("\xff\xd8", 2);
  if (bytes.substr(0, 2) != kMagic.substr(0, bytes.size())) {
    return EngineJudgement{Refusal::kNotJpeg, {}};
  }
  Header header;
  size_t at = 2;
  while (bytes.size() - std::min(at, bytes.size()) >= 4) {
    if (Byte(bytes, at) != 0xff) return EngineJudgement{Refusal::kMarkers, {}};
    const uint32_t marker = Byte(bytes, at + 1);
    if (!HasLength(marker)) return EngineJudgement{Refusal::kMarkers, {}};
    const size_t length = Big16(bytes, at + 2);
    if (length < 2) return EngineJudgement{Refusal::kMarkers, {}};
    if (bytes.size() - at - 2 < length) return CutShort(bytes.size());
    const Refusal refusal =
        Read(marker, bytes.substr(at + 4, length - 2), &header);
    if (refusal != Refusal::kNone) return EngineJudgement{refusal, {}};
    if (marker == 0xda) return header.Judge();
    at += 2 + length;
  }
  return CutShort(bytes.size());
}

bool HasJpegEnd(absl::string_view tail) {
  return tail.size() >= 2 && tail.substr(tail.size() - 2) == "\xff\xd9";
}

}  // namespace ballast
