// Writes the seeds of audio_header_fuzz:
//   write_audio_seeds WAV FLAC MP3 OGG

#include <fstream>

#include "tests/server/media/audio/golden_audio.h"
#include "tests/server/media/audio/made_headers.h"

int main(int argc, char** argv) {
  if (argc != 5) return 1;
  const std::string seeds[] = {
      ballast::MakeWav({1, 2, 3, 4}, 44100, 2), ballast::Flac(16000, 1, 4711),
      ballast::Id3(5) +
          ballast::Mp3(ballast::Info(3, 1251, 576, 100, "LAME3.100"), 3),
      ballast::Ogg(ballast::OpusHead(312, 16000), 48000)};
  for (int i = 0; i < 4; ++i) {
    std::ofstream(argv[i + 1], std::ios::binary) << seeds[i];
  }
  return 0;
}
