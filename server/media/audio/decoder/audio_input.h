#ifndef BALLAST_SERVER_MEDIA_AUDIO_DECODER_AUDIO_INPUT_H_
#define BALLAST_SERVER_MEDIA_AUDIO_DECODER_AUDIO_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "server/media/audio/decoder/decoder_protocol.h"

namespace ballast::audio_decoder {

// Why a request fails; `outcome` is kOk while it does not.
struct Fault {
  Outcome outcome = Outcome::kOk;
  std::string reason;
};

// A stream of audio, decoded in order.
class AudioInput {
 public:
  virtual ~AudioInput() = default;

  // As the header says; frames is 0 if it does not count them.
  virtual Facts facts() const = 0;
  // Decodes the next frames, at most `most`, as interleaved float32. Returns
  // how many; 0 at the end and after a fault.
  virtual size_t Read(float* to, size_t most, Fault* fault) = 0;
};

// Opens `bytes` bytes of `fd` from `offset` on. `fd` stays open. nullptr:
// `fault`. Each program links one: sndfile_input.cc or ffmpeg_input.cc.
std::unique_ptr<AudioInput> OpenAudio(int fd, uint64_t offset, uint64_t bytes,
                                      Fault* fault);

}  // namespace ballast::audio_decoder

#endif  // BALLAST_SERVER_MEDIA_AUDIO_DECODER_AUDIO_INPUT_H_
