#ifndef BALLAST_SERVER_MEDIA_VIDEO_DECODER_PICTURE_SIZES_H_
#define BALLAST_SERVER_MEDIA_VIDEO_DECODER_PICTURE_SIZES_H_

extern "C" {
#include <libavcodec/avcodec.h>
}

#include <cstddef>
#include <cstdint>
#include <memory>

#include "server/media/video/decoder/media_input.h"

namespace ballast::video_decoder {

// Bytes of a packet's beginning that suffice to see its picture's size.
inline constexpr size_t kPeekedBytes = 4096;

// The sizes of a video's pictures as its packets say, without a picture being
// decoded: a video whose size changes cannot be a sample. Codecs that say no
// size in packets, such as Theora, WMV and FFV1, have the container's.
class PictureSizes {
 public:
  explicit PictureSizes(const AVCodecParameters& codec);

  // Whether a packet may say the size. VP9 and AV1 may change it anywhere,
  // other codecs in key packets alone.
  bool Wants(bool is_key) const;

  // Reads the packet `number`, of which data[0..size) is there: all of it, or
  // its beginning. AV_INPUT_BUFFER_PADDING_SIZE bytes behind it are readable.
  // `packet` may hold a new sample description. Returns false after a fault: a
  // picture has another size than the first.
  bool Add(const AVPacket& packet, uint8_t* data, size_t size, uint32_t number,
           Fault* fault);

 private:
  struct Size {
    int width = 0;  // 0: the packet does not say it
    int height = 0;
  };
  struct CloseParser {
    void operator()(AVCodecParserContext* parser) const {
      av_parser_close(parser);
    }
  };
  struct FreeContext {
    void operator()(AVCodecContext* context) const {
      avcodec_free_context(&context);
    }
  };

  void Describe(const uint8_t* extradata, size_t size);
  Size Read(const AVPacket& packet, uint8_t* data, size_t size);
  Size Parse(const AVPacket& packet, const uint8_t* data, size_t size);
  Size SkipThrough(uint8_t* data, size_t size);
  // Raw pictures of one size have equal lengths.
  bool AddRaw(int bytes, uint32_t number, Fault* fault);

  const AVCodecParameters& codec_;
  std::unique_ptr<AVCodecParserContext, CloseParser> parser_;
  std::unique_ptr<AVCodecContext, FreeContext> context_;
  Size first_;
  int raw_bytes_ = 0;
};

}  // namespace ballast::video_decoder

#endif  // BALLAST_SERVER_MEDIA_VIDEO_DECODER_PICTURE_SIZES_H_
