#include "server/media/video/decoder/picture_sizes.h"

extern "C" {
#include <libavcodec/dv_profile.h>
#include <libavutil/mem.h>
}

#include <string.h>

#include <algorithm>
#include <string>

namespace ballast::video_decoder {
namespace {

// How the size is found.
enum class Way {
  kNone,     // its packets tell none: the container's holds for all
  kHeader,   // at the head of a picture, by the functions below
  kParser,   // by libavcodec's parser
  kDecoder,  // by its decoder, which passes over what follows the header
};

Way WayOf(AVCodecID codec) {
  switch (codec) {
    case AV_CODEC_ID_VP8:
    case AV_CODEC_ID_VP9:
    case AV_CODEC_ID_PNG:
    case AV_CODEC_ID_PRORES:
    case AV_CODEC_ID_DNXHD:
    case AV_CODEC_ID_CINEPAK:
    case AV_CODEC_ID_DVVIDEO:
    case AV_CODEC_ID_VC1:
    case AV_CODEC_ID_VP6:
    case AV_CODEC_ID_VP6F:
      return Way::kHeader;
    case AV_CODEC_ID_H264:
    case AV_CODEC_ID_HEVC:
    case AV_CODEC_ID_AV1:
    case AV_CODEC_ID_MPEG1VIDEO:
    case AV_CODEC_ID_MPEG2VIDEO:
      return Way::kParser;
    case AV_CODEC_ID_MPEG4:
    case AV_CODEC_ID_H263:
    case AV_CODEC_ID_FLV1:
    case AV_CODEC_ID_MJPEG:
      return Way::kDecoder;
    default:
      return Way::kNone;
  }
}

// The bits of a header, the highest of a byte first; zeros behind its end.
class Bits {
 public:
  Bits(const uint8_t* data, size_t size) : data_(data), bits_(size * 8) {}

  int Take(int count) {
    int value = 0;
    for (; count > 0; --count, ++next_) {
      const bool is_set =
          next_ < bits_ && (data_[next_ / 8] >> (7 - next_ % 8) & 1) != 0;
      value = value << 1 | (is_set ? 1 : 0);
    }
    return value;
  }
  bool IsOver() const { return next_ > bits_; }

 private:
  const uint8_t* const data_;
  const size_t bits_;
  size_t next_ = 0;
};

void SkipVp9Colours(Bits* bits, int profile) {
  constexpr int kRgb = 7;
  if (profile >= 2) bits->Take(1);  // depth
  const bool has_sampling = profile == 1 || profile == 3;
  if (bits->Take(3) != kRgb) {
    bits->Take(has_sampling ? 1 + 3 : 1);
  } else if (has_sampling) {
    bits->Take(1);
  }
}

// VP9's uncompressed header. A picture that takes its size from one that it
// refers to says none, so until the first change that is the first's.
bool ReadVp9(Bits bits, int* width, int* height) {
  constexpr int kSync = 0x498342;
  if (bits.Take(2) != 2) return false;
  int profile = bits.Take(1);
  profile += 2 * bits.Take(1);
  if (profile == 3) bits.Take(1);
  if (bits.Take(1) != 0) return false;  // shows an earlier picture
  const bool is_key = bits.Take(1) == 0;
  const bool is_shown = bits.Take(1) != 0;
  const bool is_resilient = bits.Take(1) != 0;
  if (is_key) {
    if (bits.Take(24) != kSync) return false;
    SkipVp9Colours(&bits, profile);
  } else {
    const bool is_intra = !is_shown && bits.Take(1) != 0;
    if (!is_resilient) bits.Take(2);
    if (is_intra) {
      if (bits.Take(24) != kSync) return false;
      if (profile > 0) SkipVp9Colours(&bits, profile);
      bits.Take(8);
    } else {
      bits.Take(8 + 3 * 4);
      for (int i = 0; i < 3; ++i) {
        if (bits.Take(1) != 0) return false;
      }
    }
  }
  *width = bits.Take(16) + 1;
  *height = bits.Take(16) + 1;
  return !bits.IsOver();
}

// The sequence header of VC-1's advanced profile.
bool ReadVc1(const uint8_t* data, size_t size, int* width, int* height) {
  for (size_t at = 0; at + 9 <= size; ++at) {
    if (ReadNumber(data + at, 4) != 0x10F) continue;
    Bits bits(data + at + 4, size - at - 4);
    if (bits.Take(2) != 3) return false;  // another profile
    bits.Take(14);
    *width = 2 * bits.Take(12) + 2;
    *height = 2 * bits.Take(12) + 2;
    return true;
  }
  return false;
}

// A key frame of VP6, which counts macroblocks.
bool ReadVp6(const uint8_t* data, size_t size, int* width, int* height) {
  if (size < 6 || (data[0] & 0x80) != 0) return false;
  const bool has_offset = (data[0] & 1) != 0 || (data[1] & 6) == 0;
  const uint8_t* const counts = data + (has_offset ? 4 : 2);
  *height = 16 * counts[0];
  *width = 16 * counts[1];
  return true;
}

bool ReadHeader(AVCodecID codec, const uint8_t* data, size_t size, int* width,
                int* height) {
  const auto number = [&](size_t at) {
    return static_cast<int>(ReadNumber(data + at, 2));
  };
  switch (codec) {
    case AV_CODEC_ID_VP8:
      // Three bytes of the frame, three of the start code.
      if (size < 10) return false;
      *width = (data[6] | data[7] << 8) & 0x3FFF;
      *height = (data[8] | data[9] << 8) & 0x3FFF;
      return true;
    case AV_CODEC_ID_VP9:
      return ReadVp9(Bits(data, size), width, height);
    case AV_CODEC_ID_PNG:
      // The signature, length and name of IHDR.
      if (size < 24 || memcmp(data + 12, "IHDR", 4) != 0) return false;
      *width = static_cast<int>(ReadNumber(data + 16, 4) & INT32_MAX);
      *height = static_cast<int>(ReadNumber(data + 20, 4) & INT32_MAX);
      return true;
    case AV_CODEC_ID_DNXHD:
      if (size < 28 || data[0] != 0 || data[1] != 0) return false;
      *height = number(24);
      *width = number(26);
      return true;
    case AV_CODEC_ID_CINEPAK:
      if (size < 8) return false;
      *width = number(4);
      *height = number(6);
      return true;
    case AV_CODEC_ID_DVVIDEO: {
      const AVDVProfile* const profile =
          av_dv_frame_profile(nullptr, data, static_cast<unsigned>(size));
      if (profile == nullptr) return false;
      *width = profile->width;
      *height = profile->height;
      return true;
    }
    case AV_CODEC_ID_VC1:
      return ReadVc1(data, size, width, height);
    case AV_CODEC_ID_VP6:
    case AV_CODEC_ID_VP6F:
      return ReadVp6(data, size, width, height);
    default:  // ProRes
      if (size < 20 || memcmp(data + 4, "icpf", 4) != 0) return false;
      *width = number(16);
      *height = number(18);
      return true;
  }
}

// The bytes of the length before each unit of H.264 and HEVC, as a
// configuration record says; 0 without one.
size_t LengthBytes(AVCodecID codec, const AVCodecContext& context) {
  const int at = codec == AV_CODEC_ID_HEVC ? 21 : 4;
  if (context.extradata_size <= at || context.extradata[0] != 1) return 0;
  return (context.extradata[at] & 3) + 1;
}

// Parsers refuse a unit that is longer than its packet: makes the last unit of
// a packet's beginning end there.
void EndUnits(size_t length_bytes, uint8_t* data, size_t size) {
  for (size_t next = 0; next + length_bytes < size;) {
    const size_t at = next;
    const uint64_t length =
        ReadNumber(data + at, static_cast<int>(length_bytes));
    next += length_bytes;
    const uint64_t left = size - next;
    if (length > left) {
      for (size_t i = 0; i < length_bytes; ++i) {
        data[at + i] = static_cast<uint8_t>(left >> 8 * (length_bytes - 1 - i));
      }
      return;
    }
    next += length;
  }
}

// Likewise of AV1, whose lengths have 7 bits a byte, the lowest first.
void EndUnitsOfAv1(uint8_t* data, size_t size) {
  for (size_t next = 0; next < size;) {
    const uint8_t head = data[next];
    next += (head & 4) != 0 ? 2 : 1;
    if ((head & 2) == 0) return;  // to the end
    const size_t at = next;
    uint64_t length = 0;
    int bytes = 0;
    do {
      if (next >= size || bytes == 8) return;
      length |= static_cast<uint64_t>(data[next] & 127) << 7 * bytes++;
    } while ((data[next++] & 128) != 0);
    uint64_t left = size - next;
    if (length > left) {
      for (int i = 0; i < bytes; ++i, left >>= 7) {
        data[at + static_cast<size_t>(i)] =
            static_cast<uint8_t>((left & 127) | (i + 1 < bytes ? 128 : 0));
      }
      return;
    }
    next += length;
  }
}

}  // namespace

PictureSizes::PictureSizes(const AVCodecParameters& codec) : codec_(codec) {
  Describe(codec.extradata, static_cast<size_t>(codec.extradata_size));
}

void PictureSizes::Describe(const uint8_t* extradata, size_t size) {
  const Way way = WayOf(codec_.codec_id);
  if (way != Way::kParser && way != Way::kDecoder) return;
  parser_.reset();
  const AVCodec* const decoder = avcodec_find_decoder(codec_.codec_id);
  context_.reset(
      avcodec_alloc_context3(way == Way::kDecoder ? decoder : nullptr));
  if (context_ == nullptr ||
      avcodec_parameters_to_context(context_.get(), &codec_) < 0) {
    context_.reset();
    return;
  }
  if (extradata != codec_.extradata) {
    av_freep(&context_->extradata);
    context_->extradata_size = 0;
    context_->extradata =
        static_cast<uint8_t*>(av_mallocz(size + AV_INPUT_BUFFER_PADDING_SIZE));
    if (context_->extradata != nullptr) {
      memcpy(context_->extradata, extradata, size);
      context_->extradata_size = static_cast<int>(size);
    }
  }
  if (way == Way::kParser) {
    parser_.reset(av_parser_init(codec_.codec_id));
    if (parser_ != nullptr) parser_->flags |= PARSER_FLAG_COMPLETE_FRAMES;
    return;
  }
  context_->thread_count = 1;
  context_->skip_frame = AVDISCARD_ALL;
  context_->max_pixels = static_cast<int64_t>(kMaxFramePixels);
  if (avcodec_open2(context_.get(), decoder, nullptr) < 0) context_.reset();
}

bool PictureSizes::Wants(bool is_key) const {
  const bool may_change =
      codec_.codec_id == AV_CODEC_ID_VP9 || codec_.codec_id == AV_CODEC_ID_AV1;
  const bool has_size = WayOf(codec_.codec_id) != Way::kNone ||
                        codec_.codec_id == AV_CODEC_ID_RAWVIDEO;
  return has_size && (is_key || may_change);
}

PictureSizes::Size PictureSizes::Read(const AVPacket& packet, uint8_t* data,
                                      size_t size) {
  Size found;
  switch (WayOf(codec_.codec_id)) {
    case Way::kNone:
      return {};
    case Way::kHeader:
      return ReadHeader(codec_.codec_id, data, size, &found.width,
                        &found.height)
                 ? found
                 : Size();
    case Way::kParser:
      return Parse(packet, data, size);
    case Way::kDecoder:
      return SkipThrough(data, size);
  }
  return {};
}

PictureSizes::Size PictureSizes::Parse(const AVPacket& packet,
                                       const uint8_t* data, size_t size) {
  if (parser_ == nullptr || context_ == nullptr) return {};
  uint8_t* parsed = nullptr;
  int bytes = 0;
  // Parsers keep the size of the packet before.
  parser_->width = 0;
  parser_->height = 0;
  av_parser_parse2(parser_.get(), context_.get(), &parsed, &bytes, data,
                   static_cast<int>(size), packet.pts, packet.dts, packet.pos);
  return {parser_->width, parser_->height};
}

PictureSizes::Size PictureSizes::SkipThrough(uint8_t* data, size_t size) {
  if (context_ == nullptr) return {};
  AVPacket* packet = av_packet_alloc();
  AVFrame* frame = av_frame_alloc();
  if (packet != nullptr && frame != nullptr) {
    packet->data = data;
    packet->size = static_cast<int>(size);
    packet->flags = AV_PKT_FLAG_KEY;
    // Errors of a packet's beginning come after its header.
    avcodec_send_packet(context_.get(), packet);
    avcodec_receive_frame(context_.get(), frame);
  }
  av_frame_free(&frame);
  av_packet_free(&packet);
  return {context_->width, context_->height};
}

bool PictureSizes::Add(const AVPacket& packet, uint8_t* data, size_t size,
                       uint32_t number, Fault* fault) {
  size_t described = 0;
  const uint8_t* const description =
      av_packet_get_side_data(&packet, AV_PKT_DATA_NEW_EXTRADATA, &described);
  if (description != nullptr) Describe(description, described);
  if (size < static_cast<size_t>(packet.size) && context_ != nullptr) {
    const size_t length_bytes = LengthBytes(codec_.codec_id, *context_);
    if (codec_.codec_id == AV_CODEC_ID_AV1) {
      EndUnitsOfAv1(data, size);
    } else if (length_bytes > 0) {
      EndUnits(length_bytes, data, size);
    }
  }
  if (codec_.codec_id == AV_CODEC_ID_RAWVIDEO) {
    return AddRaw(packet.size, number, fault);
  }
  const Size found = Read(packet, data, size);
  if (found.width <= 0 || found.height <= 0) return true;
  if (first_.width == 0) first_ = found;
  if (found.width == first_.width && found.height == first_.height) return true;
  *fault = {Outcome::kRefused,
            "the picture of packet " + std::to_string(number) + " is " +
                std::to_string(found.width) + "x" +
                std::to_string(found.height) + " pixels, the video " +
                std::to_string(first_.width) + "x" +
                std::to_string(first_.height) + "; wanted one size"};
  return false;
}

bool PictureSizes::AddRaw(int bytes, uint32_t number, Fault* fault) {
  if (raw_bytes_ == 0) raw_bytes_ = bytes;
  if (bytes == raw_bytes_) return true;
  *fault = {Outcome::kRefused,
            "the picture of packet " + std::to_string(number) + " has " +
                std::to_string(bytes) + " bytes, the first one " +
                std::to_string(raw_bytes_) + "; wanted one size"};
  return false;
}

}  // namespace ballast::video_decoder
