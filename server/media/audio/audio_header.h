#ifndef BALLAST_SERVER_MEDIA_AUDIO_AUDIO_HEADER_H_
#define BALLAST_SERVER_MEDIA_AUDIO_AUDIO_HEADER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace ballast {

enum class AudioFormat { kWav, kFlac, kMp3, kVorbis, kOpus, kM4a, kVideo };

// "wav", "flac", "mp3", "vorbis", "opus", "m4a"; of the audio of a video
// "video".
const char* AudioFormatName(AudioFormat format);

// What the headers of an audio file say.
struct AudioHeader {
  AudioFormat format = AudioFormat::kWav;
  // Samples a second of the decoder's output; of Opus the rate that the header
  // names, raised to one of Opus's own (8, 12, 16, 24 or 48 kHz), as by
  // libsndfile. 0 for M4A.
  uint32_t rate = 0;
  uint32_t channels = 0;  // 0 for M4A
  // Per channel. Empty: known only once the whole stream is read.
  std::optional<uint64_t> samples;
  // Why the whole stream is read, in words: its samples are not counted, or
  // each has to be looked at. Empty: it is not.
  std::string scan;
  // Its decoder may refuse it by more than what was read here.
  bool asks_decoder = false;
};

// Reads `bytes` bytes from `offset` on, which the file has. Its errors are
// passed on.
using ReadAudioBytes = absl::FunctionRef<absl::StatusOr<std::string>(
    uint64_t offset, uint64_t bytes)>;

// Reads the headers of a file of `length` bytes: some kilobytes at its start,
// and of Ogg all pages. FFmpeg reads M4A headers (audio_reader.h). Errors: a
// data fault (another format, damage, a file that was cut short); as `read`.
absl::StatusOr<AudioHeader> ReadAudioHeader(uint64_t length,
                                            ReadAudioBytes read);

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_AUDIO_AUDIO_HEADER_H_
