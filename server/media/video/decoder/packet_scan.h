#ifndef BALLAST_SERVER_MEDIA_VIDEO_DECODER_PACKET_SCAN_H_
#define BALLAST_SERVER_MEDIA_VIDEO_DECODER_PACKET_SCAN_H_

#include <cstdint>
#include <vector>

#include "server/media/video/decoder/media_input.h"
#include "server/media/video/frame_table.h"

namespace ballast::video_decoder {

// Where decoding can begin, and how to get there.
struct KeyPacket {
  uint32_t packet = 0;
  int64_t time = kNoTime;
  int64_t decoding_time = kNoTime;
  int64_t position = -1;  // in the file; -1: unknown
};

struct PacketList {
  std::vector<VideoPacket> packets;
  std::vector<KeyPacket> keys;
  // Packets of which the container has lost bytes, in ascending order.
  std::vector<uint32_t> damaged;
  // The latest end of a shown packet's frame; kNoTime if none has a duration.
  int64_t end = kNoTime;
};

// Lists all packets of the video without decoding. Reads the headers alone
// where they describe every packet; `input` is then at its end and of no more
// use. Returns false after a fault; so is a picture of another size than the
// first (picture_sizes.h), and a key packet that is shown before earlier ones.
bool ListPackets(MediaInput* input, PacketList* list, Fault* fault);

// The rotation in the stream's header in degrees clockwise. Returns false after
// a fault: an angle that is not a multiple of 90, or a mirror.
bool ReadRotation(const AVStream* stream, uint32_t* degrees, Fault* fault);

}  // namespace ballast::video_decoder

#endif  // BALLAST_SERVER_MEDIA_VIDEO_DECODER_PACKET_SCAN_H_
