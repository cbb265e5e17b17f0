#ifndef BALLAST_SERVER_MEDIA_VIDEO_DECODER_FRAME_DECODER_H_
#define BALLAST_SERVER_MEDIA_VIDEO_DECODER_FRAME_DECODER_H_

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/frame.h>
#include <libswscale/swscale.h>
}

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/media/video/decoder/media_input.h"
#include "server/media/video/decoder/packet_scan.h"
#include "server/media/video/frame_table.h"

namespace ballast::video_decoder {

struct FreeDecoding {
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
  void operator()(AVCodecContext* codec) const { avcodec_free_context(&codec); }
};

using DecoderContext = std::unique_ptr<AVCodecContext, FreeDecoding>;

// A decoder for the stream; nullptr after a fault.
DecoderContext OpenDecoder(const AVStream& stream, Fault* fault);

// Decodes some frames of a video and as few others as it can: begins at key
// packets, and leaves out frames that no other refers to. One thread: files
// decode side by side. Damage fails a frame instead of being concealed.
// Thread-compatible.
class FrameDecoder {
 public:
  // `place`: which of the wanted frames, counted from 0; each comes once.
  // Returns false to end.
  using Take = std::function<bool(const AVFrame& frame, uint32_t place)>;

  // A video of `bytes` bytes from `offset` of `fd` on, which stays open. `list`
  // and `table` are its packets and frames.
  FrameDecoder(int fd, uint64_t offset, uint64_t bytes, const PacketList& list,
               const FrameTable& table)
      : fd_(fd), offset_(offset), bytes_(bytes), list_(list), table_(table) {}

  // Decodes frames `wanted`, ascending and below the table's. Returns false
  // after a fault, and if `take` does.
  bool Decode(const std::vector<uint32_t>& wanted, const Take& take,
              Fault* fault);

 private:
  struct Target {
    uint32_t packet = 0;  // where times are missing: the frame's number
    uint32_t start = 0;
    uint32_t key = 0;  // its start in the table
    uint32_t place = 0;
    bool is_done = false;
  };

  bool Open();
  // Decodes all that is not done, beginning at the targets' starts.
  bool DecodeOnce();
  // Moves on to packet `number` without decoding; seeks if that is far.
  bool MoveTo(uint32_t number);
  // Likewise, by reading.
  bool SkipTo(uint32_t number);
  // Reads the next packet into packet_.
  bool ReadNext();
  bool Send(AVPacket* packet);
  bool Receive();
  // Receives what the codec still holds, and lets it begin anew.
  bool Drain();
  bool CanLeaveOut(uint32_t number, bool is_jump, uint32_t start) const;
  Target* FindTarget(uint32_t packet);
  // Whether the frame, or one since its key packet, is damaged.
  bool IsDamaged(const Target& target) const;
  void NoteDamage(uint32_t packet, int status);

  const int fd_;
  const uint64_t offset_;
  const uint64_t bytes_;
  const PacketList& list_;
  const FrameTable& table_;
  const Take* take_ = nullptr;
  Fault* fault_ = nullptr;

  std::unique_ptr<MediaInput> input_;
  DecoderContext codec_;
  std::unique_ptr<AVPacket, FreeDecoding> packet_;
  std::unique_ptr<AVFrame, FreeDecoding> frame_;
  std::vector<Target> targets_;  // by start, then packet
  uint32_t next_ = 0;            // packet that is read next
  bool is_held_ = false;         // it is in packet_ already
  uint32_t output_ = 0;          // frames that came out since the first packet
  bool is_ended_ = false;        // `take_` returned false
  std::unordered_map<uint32_t, size_t> numbers_;  // targets by packet
  std::vector<uint32_t> damaged_;                 // packets, ascending
  std::string damage_;                            // the last, in words
};

// Converts frames to 8-bit RGB as PyAV's to_ndarray(format="rgb24") does with
// the same FFmpeg: libswscale with its bilinear filter, the frame's own matrix
// and range, and from FFmpeg 8 on the frame's own place of chroma.
// Thread-compatible.
class RgbConverter {
 public:
  RgbConverter() = default;
  ~RgbConverter() { sws_freeContext(context_); }
  RgbConverter(const RgbConverter&) = delete;
  RgbConverter& operator=(const RgbConverter&) = delete;

  // Writes frame->height rows of `stride` bytes, at least RowBytes of the width
  // and a multiple of kRowAlignment; kSlotMargin bytes after them may be
  // overwritten. Returns false after a fault.
  bool Convert(const AVFrame& frame, uint8_t* rows, uint32_t stride,
               Fault* fault);

 private:
  SwsContext* context_ = nullptr;
#if LIBSWSCALE_VERSION_MAJOR >= 9
  std::unique_ptr<AVFrame, FreeDecoding> source_;
  std::unique_ptr<AVFrame, FreeDecoding> target_;
#else
  void SetColours(const AVFrame& frame);

  // Of context_.
  int width_ = 0, height_ = 0;
  AVPixelFormat format_ = AV_PIX_FMT_NONE;
  AVColorSpace colorspace_ = AVCOL_SPC_UNSPECIFIED;
  AVColorRange range_ = AVCOL_RANGE_UNSPECIFIED;
#endif
};

}  // namespace ballast::video_decoder

#endif  // BALLAST_SERVER_MEDIA_VIDEO_DECODER_FRAME_DECODER_H_
