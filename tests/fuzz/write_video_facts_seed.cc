// Writes the seed of video_facts_fuzz: an answer of the video decoder.

#include <cstdint>
#include <fstream>
#include <string>

#include "server/media/video/decoder/decoder_protocol.h"

namespace {

template <class T>
void Append(const T& value, std::string* to) {
  to->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

int main(int, char** argv) {
  using namespace ballast::video_decoder;  // NOLINT: one function
  FactsHead head = {};
  head.container_bytes = 3;
  head.codec_bytes = 4;
  head.scan_bytes = 6;
  head.frames = 5;
  head.width = 640;
  head.height = 480;
  head.rotation = 90;
  head.is_timed = 1;
  head.unit_numerator = 1;
  head.unit_denominator = 15360;
  head.rate_numerator = 30;
  head.rate_denominator = 1;
  head.seconds = 5 / 30.0;
  std::string answer;
  Append(head, &answer);
  answer += "movh264reason";
  for (uint32_t i = 0; i < head.frames; ++i) {
    Append(FactsFrame{i * 512, i, i / 3 * 3}, &answer);
  }
  std::ofstream(argv[1], std::ios::binary) << answer;
  return 0;
}
