#include "server/video/decoder/packet_scan.h"

extern "C" {
#include <libavutil/display.h>
}

#include <cmath>
#include <memory>
#include <string>

namespace ballast::video_decoder {
namespace {

struct FreePacket {
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
};

// VP8 puts frames that nobody sees into packets of their own.
bool IsShown(const AVPacket& packet, AVCodecID codec, bool has_payload) {
  constexpr int kShowFrame = 0x10;
  if ((packet.flags & AV_PKT_FLAG_DISCARD) != 0) return false;
  if (codec != AV_CODEC_ID_VP8 || !has_payload || packet.size == 0) return true;
  return (packet.data[0] & kShowFrame) != 0;
}

}  // namespace

bool ListPackets(MediaInput* input, PacketList* list, Fault* fault) {
  const bool has_payload = !input->CanHidePayload();
  if (!has_payload) input->HidePayload();
  const std::unique_ptr<AVPacket, FreePacket> packet(av_packet_alloc());
  if (packet == nullptr) {
    *fault = {Outcome::kNoMemory, "no memory for a packet"};
    return false;
  }
  const AVCodecID codec = input->stream()->codecpar->codec_id;
  while (input->ReadPacket(packet.get(), fault)) {
    const auto number = static_cast<uint32_t>(list->packets.size());
    if (number == kMostFrames) {
      av_packet_unref(packet.get());
      *fault = {Outcome::kRefused,
                "more than " + std::to_string(kMostFrames) + " frames"};
      return false;
    }
    const bool is_key = (packet->flags & AV_PKT_FLAG_KEY) != 0;
    // AV_NOPTS_VALUE is kNoTime.
    list->packets.push_back(
        {packet->pts, is_key, IsShown(*packet, codec, has_payload)});
    if (is_key) {
      list->keys.push_back({number, packet->pts, packet->dts, packet->pos});
    }
    av_packet_unref(packet.get());
  }
  return fault->outcome == Outcome::kOk;
}

bool ReadRotation(const AVStream* stream, uint32_t* degrees, Fault* fault) {
  *degrees = 0;
  size_t bytes = 0;
  const uint8_t* data = av_stream_get_side_data(
      stream, AV_PKT_DATA_DISPLAYMATRIX, &bytes);
  if (data == nullptr || bytes < 9 * sizeof(int32_t)) return true;
  const auto* matrix = reinterpret_cast<const int32_t*>(data);
  const double anticlockwise = av_display_rotation_get(matrix);
  if (std::isnan(anticlockwise)) return true;  // no matrix at all
  const double turns = -anticlockwise / 90;
  const double determinant =
      static_cast<double>(matrix[0]) * matrix[4] -
      static_cast<double>(matrix[1]) * matrix[3];
  if (std::abs(turns - std::round(turns)) > 0.01 || determinant < 0) {
    *fault = {Outcome::kRefused,
              "the header turns the picture by " +
                  std::to_string(-anticlockwise) + " degrees" +
                  (determinant < 0 ? " and mirrors it" : "") +
                  "; wanted a multiple of 90 without a mirror"};
    return false;
  }
  *degrees = static_cast<uint32_t>((static_cast<int>(std::round(turns)) + 4) %
                                   4) * 90;
  return true;
}

}  // namespace ballast::video_decoder
