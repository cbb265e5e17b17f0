#ifndef BALLAST_TESTS_GPU_MADE_CLIPS_H_
#define BALLAST_TESTS_GPU_MADE_CLIPS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "trainer_shim/cuda/nvdec_decoder.h"

namespace ballast {

// A video of tests/gpu/video_clips.py, and what FFmpeg decodes of it.
struct MadeClip {
  struct Frame {
    uint32_t packet = 0;
    std::string sha256;  // of the samples
  };
  struct Resized {
    uint32_t packet = 0;
    uint32_t width = 0, height = 0;
    std::string sha256;  // of RGB
  };

  std::string name;
  std::string codec;         // FFmpeg's name
  std::string pixel_format;  // likewise
  PlaneForm form;
  bool is_interlaced = false;
  std::vector<absl::string_view> packets;
  std::vector<uint32_t> keys;
  std::string damage;  // its kind; empty: none
  // What FFmpeg said of the packets: by default, and with all its checks.
  int complaints = 0;
  int more_complaints = 0;
  std::vector<Frame> frames;  // in the order of presentation
  std::vector<Resized> resized;

  // The codec, if frames are of 8 bits and 4:2:0 and engines may take it.
  std::optional<VideoCodec> engine_codec() const;
};

// The clips of $BALLAST_VIDEO_CLIPS, read once; none without it. A file that
// is not one ends the process.
const std::vector<MadeClip>& MadeClips();

// SHA-256 of a frame's samples without the padding of rows.
std::string HashPlanes(const PlaneForm& form, const uint8_t* planes);

}  // namespace ballast

#endif  // BALLAST_TESTS_GPU_MADE_CLIPS_H_
