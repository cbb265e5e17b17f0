#include "server/media/video/decoder/packet_scan.h"

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/display.h>
}

#include <string.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "server/media/video/decoder/edit_list.h"
#include "server/media/video/decoder/picture_sizes.h"

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

// Limits of what is read: bytes of an index of fragments (`sidx`), and boxes at
// the top of a file.
constexpr uint64_t kMaxIndexBytes = 1 << 20;
constexpr int kMaxBoxes = 1 << 20;

// The type of the first slice in the packet of H.264 or HEVC; -1 if these bytes
// have no slice.
int FirstSliceType(const AVCodecParameters& codec, const uint8_t* data,
                   size_t size) {
  const bool is_hevc = codec.codec_id == AV_CODEC_ID_HEVC;
  const auto type_of = [&](uint8_t byte) {
    return is_hevc ? byte >> 1 & 63 : byte & 31;
  };
  const auto is_slice = [&](int type) {
    return is_hevc ? type < 32 : type >= 1 && type <= 5;
  };
  // With a configuration record, units follow their length; otherwise three
  // bytes 0 0 1.
  const int at = is_hevc ? 21 : 4;  // of the length's length
  if (codec.extradata_size > at && codec.extradata[0] == 1) {
    const size_t prefix = (codec.extradata[at] & 3) + 1;
    for (size_t next = 0; next + prefix < size;) {
      const uint64_t length = ReadNumber(data + next, static_cast<int>(prefix));
      next += prefix;
      const int type = type_of(data[next]);
      if (is_slice(type)) return type;
      next += length;
    }
    return -1;
  }
  for (size_t i = 0; i + 3 < size; ++i) {
    if (data[i] != 0 || data[i + 1] != 0 || data[i + 2] != 1) continue;
    const int type = type_of(data[i + 3]);
    if (is_slice(type)) return type;
  }
  return -1;
}

// Whether decoding can begin with a packet that its container calls a key.
// Containers also call those keys from which the picture recovers after a
// while, or after which frames refer to earlier ones.
bool CanBegin(const AVCodecParameters& codec, const uint8_t* data,
              size_t size) {
  const bool is_hevc = codec.codec_id == AV_CODEC_ID_HEVC;
  if (!is_hevc && codec.codec_id != AV_CODEC_ID_H264) return true;
  const int type = FirstSliceType(codec, data, size);
  // H.264: an IDR picture. HEVC: any random access picture, since its frames
  // name all that they refer to, and its decoder leaves out those that cannot
  // be decoded.
  return is_hevc ? type >= 16 && type <= 21 : type == 5;
}

// Finds leading pictures of HEVC that refer to pictures before a random access
// picture with which the stream begins, or before a broken link: decoders pass
// over them.
class LeadingPictures {
 public:
  explicit LeadingPictures(const AVCodecParameters& codec) : codec_(codec) {}

  // Whether the next packet may be one.
  bool IsPossible() const { return is_skipping_; }
  // The next packet, or its first bytes.
  bool IsSkipped(const uint8_t* data, size_t size) {
    constexpr int kLeadingNoReference = 8, kLeading = 9, kLastBrokenLink = 18,
                  kClean = 21;
    if (codec_.codec_id != AV_CODEC_ID_HEVC) return false;
    const int type = FirstSliceType(codec_, data, size);
    if (type == kLeadingNoReference || type == kLeading) return is_skipping_;
    if (type >= 16 && type <= 23) {
      is_skipping_ = type <= kLastBrokenLink || (type == kClean && is_first_);
    }
    is_first_ = false;
    return false;
  }

 private:
  const AVCodecParameters& codec_;
  bool is_first_ = true;
  bool is_skipping_ = false;
};

// Key packets as the container's index says. A parser that reads hidden payload
// takes the flag from packets.
class IndexedKeys {
 public:
  explicit IndexedKeys(AVStream* stream) : stream_(stream) {}

  // Whether the packet at `position`, after those asked for before, is a key.
  bool IsKey(int64_t position) {
    const int count = avformat_index_get_entries_count(stream_);
    while (next_ < count) {
      const AVIndexEntry* entry = avformat_index_get_entry(stream_, next_++);
      if (entry->pos == position) return (entry->flags & AVINDEX_KEYFRAME) != 0;
    }
    return false;
  }

 private:
  AVStream* const stream_;
  int next_ = 0;
};

uint32_t ReadLittle(const uint8_t* from) {
  return static_cast<uint32_t>(from[0] | from[1] << 8 | from[2] << 16) |
         static_cast<uint32_t>(from[3]) << 24;
}

// The functions below return the byte to which a container without a list of
// frames says that it reaches; 0 if it does not say it.

// The end of Matroska's segment.
uint64_t SegmentEnd(MediaInput* input) {
  constexpr uint64_t kSegment = 0x18538067;
  uint64_t at = 0;
  for (int elements = 0; elements < 8; ++elements) {
    uint8_t head[12] = {};  // a name and a length of this element
    input->Peek(static_cast<int64_t>(at), sizeof(head), head);
    const int name_bytes = std::countl_zero(head[0]) + 1;
    if (name_bytes > 4) return 0;
    const int bytes = std::countl_zero(head[name_bytes]) + 1;
    if (bytes > 8) return 0;
    const uint64_t most = (uint64_t{1} << 7 * bytes) - 1;
    const uint64_t length = ReadNumber(head + name_bytes, bytes) & most;
    if (length == most) return 0;  // it is not known
    at += static_cast<uint64_t>(name_bytes + bytes) + length;
    if (ReadNumber(head, name_bytes) == kSegment) return at;
    if (at >= input->bytes()) return 0;
  }
  return 0;
}

// The end of the last of AVI's RIFF chunks. A program that is killed while it
// writes leaves no length.
uint64_t RiffEnd(MediaInput* input) {
  uint64_t at = 0;
  uint8_t head[8];
  while (input->Peek(static_cast<int64_t>(at), sizeof(head), head) ==
             sizeof(head) &&
         memcmp(head, "RIFF", 4) == 0) {
    const uint32_t length = ReadLittle(head + 4);
    if (length == 0 || length == UINT32_MAX) return 0;
    at += sizeof(head) + length;
  }
  // The last byte may be missing padding.
  return at == 0 ? 0 : at - 1;
}

// The end of the last fragment of MP4, by its own length or an index before it.
uint64_t FragmentsEnd(MediaInput* input) {
  uint64_t end = 0;
  uint64_t at = 0;
  for (int boxes = 0; boxes < kMaxBoxes && at < input->bytes(); ++boxes) {
    uint8_t head[16] = {};
    input->Peek(static_cast<int64_t>(at), sizeof(head), head);
    const Mp4Box box(head);
    const uint64_t length = box.length;
    // Anything may follow the fragments.
    const bool is_fragment = box.Is("moof") || box.Is("mdat");
    if (length < 8 || length > (is_fragment ? INT64_MAX : input->bytes()))
      break;
    if (box.Is("sidx") && length >= 40 && length <= kMaxIndexBytes) {
      std::vector<uint8_t> index(length);
      input->Peek(static_cast<int64_t>(at), length, index.data());
      // After version, flags, two numbers and two times: the distance of the
      // first fragment, and the length of each.
      const bool is_long = index[8] != 0;
      size_t next = is_long ? 28 : 24;
      uint64_t to = at + length + ReadNumber(&index[next], is_long ? 8 : 4);
      for (next += is_long ? 12 : 8; next + 12 <= length; next += 12) {
        to += ReadNumber(&index[next], 4) & INT32_MAX;
      }
      end = std::max(end, to);
    }
    at += length;
    if (is_fragment) end = std::max(end, at);
  }
  return end;
}

bool Reaches(MediaInput* input, Fault* fault) {
  const std::string name = input->format()->iformat->name;
  const uint64_t end = name == "avi"                        ? RiffEnd(input)
                       : name.find("matroska") != name.npos ? SegmentEnd(input)
                       : name.find("mp4") != name.npos ? FragmentsEnd(input)
                                                       : 0;
  if (end <= input->bytes()) return true;
  *fault = {Outcome::kRefused,
            "the file was cut short: it says that it reaches to byte " +
                std::to_string(end) + ", and it has " +
                std::to_string(input->bytes()) + " bytes"};
  return false;
}

// Checks that all frames that the header lists are in the file: FFmpeg reads a
// file that was cut short as a shorter video.
bool CheckWhole(MediaInput* input, Fault* fault) {
  AVStream* const stream = input->format()->streams[input->stream()->index];
  const auto bytes = static_cast<int64_t>(input->bytes());
  for (int i = avformat_index_get_entries_count(stream); i-- > 0;) {
    const AVIndexEntry& entry = *avformat_index_get_entry(stream, i);
    if (entry.pos <= bytes - entry.size) continue;
    *fault = {Outcome::kRefused,
              "the file was cut short: its header lists a frame of " +
                  std::to_string(entry.size) + " bytes at byte " +
                  std::to_string(entry.pos) + ", and it has " +
                  std::to_string(bytes) + " bytes"};
    return false;
  }
  return true;
}

// Whether a key packet is shown after all packets before it. Otherwise the file
// holds another video behind the first, and frames of both would alternate.
bool IsLater(const AVPacket& key, const PacketList& list, int64_t latest,
             const AVStream& stream, Fault* fault) {
  if (key.pts == kNoTime || key.pts >= latest) return true;
  const auto seconds = [&](int64_t time) {
    return std::to_string(time * av_q2d(stream.time_base)) + " s";
  };
  *fault = {Outcome::kRefused, "the times of frames go back at packet " +
                                   std::to_string(list.packets.size()) +
                                   ", from " + seconds(latest) + " to " +
                                   seconds(key.pts) +
                                   ": files were joined byte by byte; wanted "
                                   "one video: ffmpeg -i FILE OUT.mp4"};
  return false;
}

}  // namespace

bool ListPackets(MediaInput* input, PacketList* list, Fault* fault) {
  if (input->IsMp4() && !IsPlain(ReadEditList(input, input->stream()->id))) {
    *fault = {Outcome::kRefused,
              "its edit list plays the video at another speed, which FFmpeg "
              "does not do; wanted a rate of 1: write the video anew"};
    return false;
  }
  const bool has_payload = !input->CanHidePayload();
  if (!has_payload) input->HidePayload();
  if (has_payload && !Reaches(input, fault)) return false;
  const std::unique_ptr<AVPacket, FreePacket> packet(av_packet_alloc());
  if (packet == nullptr) {
    *fault = {Outcome::kNoMemory, "no memory for a packet"};
    return false;
  }
  const AVCodecParameters& codec = *input->stream()->codecpar;
  IndexedKeys index(input->format()->streams[input->stream()->index]);
  PictureSizes sizes(codec);
  LeadingPictures leading(codec);
  int64_t latest = kNoTime;  // of the shown packets
  uint8_t peeked[kPeekedBytes + AV_INPUT_BUFFER_PADDING_SIZE];
  while (input->ReadPacket(packet.get(), fault)) {
    const auto number = static_cast<uint32_t>(list->packets.size());
    if (number == kMaxVideoFrames) {
      av_packet_unref(packet.get());
      *fault = {Outcome::kRefused,
                "more than " + std::to_string(kMaxVideoFrames) + " frames"};
      return false;
    }
    const bool is_indexed_key = has_payload
                                    ? (packet->flags & AV_PKT_FLAG_KEY) != 0
                                    : index.IsKey(packet->pos);
    const bool has_size = sizes.Wants(is_indexed_key);
    const bool is_looked_at = has_size || leading.IsPossible();
    uint8_t* data = packet->data;
    auto size = static_cast<size_t>(packet->size);
    if (!has_payload) {
      data = peeked;
      size = is_looked_at ? input->Peek(packet->pos,
                                        std::min(size, kPeekedBytes), peeked)
                          : 0;
      memset(peeked + size, 0, AV_INPUT_BUFFER_PADDING_SIZE);
    }
    const bool is_key = is_indexed_key && CanBegin(codec, data, size);
    if ((has_size && !sizes.Add(*packet, data, size, number, fault)) ||
        (is_key && !IsLater(*packet, *list, latest, *input->stream(), fault))) {
      av_packet_unref(packet.get());
      return false;
    }
    if ((packet->flags & AV_PKT_FLAG_CORRUPT) != 0) {
      list->damaged.push_back(number);
    }
    const bool is_shown = IsShown(*packet, codec.codec_id, has_payload) &&
                          !leading.IsSkipped(data, size);
    // AV_NOPTS_VALUE is kNoTime, which is less than all others.
    if (is_shown) latest = std::max(latest, packet->pts);
    list->packets.push_back({packet->pts, is_key, is_shown});
    if (is_shown && packet->duration > 0 && packet->pts != kNoTime) {
      list->end = std::max(list->end, packet->pts + packet->duration);
    }
    if (is_key) {
      list->keys.push_back({number, packet->pts, packet->dts, packet->pos});
    }
    av_packet_unref(packet.get());
  }
  if (fault->outcome != Outcome::kOk) return false;
  return has_payload || CheckWhole(input, fault);
}

bool ReadRotation(const AVStream* stream, uint32_t* degrees, Fault* fault) {
  *degrees = 0;
  size_t bytes = 0;
#if LIBAVCODEC_VERSION_MAJOR >= 61
  const AVPacketSideData* const matrix_data = av_packet_side_data_get(
      stream->codecpar->coded_side_data, stream->codecpar->nb_coded_side_data,
      AV_PKT_DATA_DISPLAYMATRIX);
  const uint8_t* const data =
      matrix_data != nullptr ? matrix_data->data : nullptr;
  if (matrix_data != nullptr) bytes = matrix_data->size;
#else
  const uint8_t* const data =
      av_stream_get_side_data(stream, AV_PKT_DATA_DISPLAYMATRIX, &bytes);
#endif
  if (data == nullptr || bytes < 9 * sizeof(int32_t)) return true;
  const auto* matrix = reinterpret_cast<const int32_t*>(data);
  const double anticlockwise = av_display_rotation_get(matrix);
  if (std::isnan(anticlockwise)) return true;  // no matrix at all
  const double turns = -anticlockwise / 90;
  const double determinant = static_cast<double>(matrix[0]) * matrix[4] -
                             static_cast<double>(matrix[1]) * matrix[3];
  if (std::abs(turns - std::round(turns)) > 0.01 || determinant < 0) {
    *fault = {Outcome::kRefused,
              "the header turns the picture by " +
                  std::to_string(-anticlockwise) + " degrees" +
                  (determinant < 0 ? " and mirrors it" : "") +
                  "; wanted a multiple of 90 without a mirror"};
    return false;
  }
  *degrees =
      static_cast<uint32_t>((static_cast<int>(std::round(turns)) + 4) % 4) * 90;
  return true;
}

}  // namespace ballast::video_decoder
