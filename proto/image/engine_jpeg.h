#ifndef BALLAST_PROTO_IMAGE_ENGINE_JPEG_H_
#define BALLAST_PROTO_IMAGE_ENGINE_JPEG_H_

#include <array>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// How many planes a picture decodes to, and how many pixels share a chroma
// sample.
enum class ChromaSampling : uint8_t {
  kGrey,   // one plane
  k444,    // chroma for each pixel
  k422,    // for each two pixels of a row
  k420,    // for each square of two by two pixels
  kVideo,  // likewise, in one plane of pairs: Cb, Cr
};

// The matrix of a video's colours.
enum class VideoMatrix : uint8_t { kBt601, kBt709, kFcc, kSmpte240, kBt2020 };

// The matrix with which libswscale converts a video whose headers have `code`,
// of ISO/IEC 23091-2 and AVColorSpace; nullopt for RGB.
std::optional<VideoMatrix> GetVideoMatrix(int code);

// The planes that a picture decodes to, before upsampling and colour
// conversion: Y, or Y, Cb and Cr, 8 bits a sample.
struct PlaneForm {
  uint32_t width = 0;  // of the picture and of plane 0
  uint32_t height = 0;
  ChromaSampling sampling = ChromaSampling::kGrey;
  // Of a video.
  VideoMatrix matrix = VideoMatrix::kBt601;
  bool is_full = false;  // samples have all values from 0 to 255

  int planes() const {
    return sampling == ChromaSampling::kGrey    ? 1
           : sampling == ChromaSampling::kVideo ? 2
                                                : 3;
  }
  // Samples on the sides of a plane; chroma's are rounded up.
  uint32_t plane_width(int plane) const;
  uint32_t plane_height(int plane) const;

  friend bool operator==(const PlaneForm&, const PlaneForm&) = default;
};

// Places of an image's planes in its memory. Rows of a plane are `pitch`
// bytes apart, a multiple of kPlaneAlignment, and so is each plane's offset.
inline constexpr uint64_t kPlaneAlignment = 64;
struct PlaneLayout {
  std::array<uint64_t, 3> offset = {};
  std::array<uint32_t, 3> pitch = {};
  uint64_t bytes = 0;  // of all planes
};
PlaneLayout LayOutPlanes(const PlaneForm& form);

// Why a file is not for the GPU's JPEG engines. An engine must make the same
// planes of it as libjpeg, to the bit, and an engine reports no damage. So
// everything unusual is left to the host.
enum class EngineRefusal : uint8_t {
  kNone,      // the engines take it
  kNotJpeg,   // another format
  kMarkers,   // junk between segments, segments that do not add up, MPF's
              // several pictures, another JFIF than version 1
  kProcess,   // progressive, extended, lossless, arithmetic; not 8 bits
  kColours,   // CMYK, RGB, unknown transform of Adobe's marker
  kSampling,  // neither grey nor 4:4:4, 4:2:2, 4:2:0
  kTables,    // quantisation of 16 bits or by 0; tables missing
  kScan,      // more than one scan, or a part of the coefficients
  kSize,      // a side or an area out of bounds, too tall
  // Not decided by a header; JudgeForEngines does not return these.
  kEnd,     // no end marker, or no scan
  kLength,  // the file is longer than an encoded image may be
  kTurned,  // model.exif_orientation turns the picture
};
inline constexpr int kEngineRefusals = 12;

// "not baseline of 8 bits": for messages and tables.
absl::string_view EngineRefusalText(EngineRefusal refusal);

// Bounds of the images that the engines get. The area bounds the memory of
// planes: at most kMaxEnginePixels * 3 bytes and the padding of rows.
inline constexpr uint32_t kMaxEngineSide = 16384;
inline constexpr uint64_t kMaxEnginePixels = uint64_t{1} << 25;
// Pillow resamples still taller images in another order: vertically first.
inline constexpr uint32_t kMaxEngineTallness = 100;  // height / width

struct EngineJudgement {
  EngineRefusal refusal = EngineRefusal::kNone;
  PlaneForm form;  // if not refused
};

// Decides from a file's header: the bytes up to its first scan. `bytes` may be
// cut after that, and nothing beyond it is read. Errors: OUT_OF_RANGE (cut
// before the scan: pass more; in a whole file this is damage).
absl::StatusOr<EngineJudgement> JudgeForEngines(absl::string_view bytes);

// Whether a file ends with JPEG's end marker; `tail` is its last two bytes or
// more. A file that does not is not for the engines.
bool HasJpegEnd(absl::string_view tail);

}  // namespace ballast

#endif  // BALLAST_PROTO_IMAGE_ENGINE_JPEG_H_
