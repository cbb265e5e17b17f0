#include "tests/gpu/made_clips.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <nlohmann/json.hpp>

#include "common/sha256.h"
#include "tests/fakes/read_file.h"

namespace ballast {
namespace {

std::vector<MadeClip> ReadClips() {
  std::vector<MadeClip> clips;
  const char* const path = std::getenv("BALLAST_VIDEO_CLIPS");
  if (path == nullptr) return clips;
  static const std::string* const bytes = new std::string(ReadFile(path));
  uint64_t length = 0;
  if (bytes->size() >= sizeof(length)) {
    std::memcpy(&length, bytes->data(), sizeof(length));
  }
  if (bytes->size() < sizeof(length) ||
      length > bytes->size() - sizeof(length)) {
    std::fprintf(stderr, "%s: not a file of tests/gpu/video_clips.py\n", path);
    std::exit(1);
  }
  const absl::string_view rest =
      absl::string_view(*bytes).substr(sizeof(length));
  const absl::string_view data = rest.substr(length);
  const auto json = nlohmann::json::parse(rest.begin(), rest.begin() + length);
  for (const auto& from : json) {
    MadeClip clip;
    clip.name = from["name"];
    clip.codec = from["codec"];
    clip.pixel_format = from["format"];
    constexpr int kFull = 2;  // AVCOL_RANGE_JPEG
    clip.form = {from["width"], from["height"], ChromaSampling::kVideo,
                 GetVideoMatrix(from["space"]).value_or(VideoMatrix::kBt601),
                 from["range"] == kFull || clip.pixel_format == "yuvj420p"};
    clip.is_interlaced = from["interlaced"];
    clip.keys = from["keys"].get<std::vector<uint32_t>>();
    clip.complaints = from["complaints"][0];
    clip.more_complaints = from["complaints"][1];
    uint64_t offset = from["offset"];
    const auto take = [&](uint64_t size) {
      offset += size;
      return data.substr(offset - size, size);
    };
    if (from.contains("damage")) {
      const auto& damage = from["damage"];
      clip.damage = damage[0];
      clip.packets = clips[damage[1].get<size_t>()].packets;
      const auto at = clip.packets.begin() + damage[2].get<size_t>();
      if (damage[3] == -1) {
        clip.packets.erase(at);
      } else {
        *at = take(damage[3]);
      }
    } else {
      for (const uint64_t size : from["packets"]) {
        clip.packets.push_back(take(size));
      }
    }
    for (const auto& frame : from["frames"]) {
      clip.frames.push_back({frame[0], frame[1]});
    }
    for (const auto& frame : from["resized"]) {
      clip.resized.push_back({frame[0], frame[1], frame[2], frame[3]});
    }
    clips.push_back(std::move(clip));
  }
  return clips;
}

}  // namespace

std::optional<VideoCodec> MadeClip::engine_codec() const {
  if (pixel_format != "yuv420p" && pixel_format != "yuvj420p") {
    return std::nullopt;
  }
  if (codec == "h264") return VideoCodec::kH264;
  if (codec == "hevc") return VideoCodec::kHevc;
  if (codec == "vp9") return VideoCodec::kVp9;
  if (codec == "vp8") return VideoCodec::kVp8;
  return std::nullopt;
}

const std::vector<MadeClip>& MadeClips() {
  static const std::vector<MadeClip>* const clips =
      new std::vector<MadeClip>(ReadClips());
  return *clips;
}

std::string HashPlanes(const PlaneForm& form, const uint8_t* planes) {
  const PlaneLayout layout = LayOutPlanes(form);
  std::vector<uint8_t> samples;
  for (int plane = 0; plane < form.planes(); ++plane) {
    for (uint32_t y = 0; y < form.plane_height(plane); ++y) {
      const uint8_t* row =
          planes + layout.offset[plane] + uint64_t{y} * layout.pitch[plane];
      samples.insert(samples.end(), row, row + form.plane_width(plane));
    }
  }
  return Sha256Hex(samples);
}

}  // namespace ballast
