#ifndef BALLAST_SERVER_MEDIA_AUDIO_AUDIO_READER_H_
#define BALLAST_SERVER_MEDIA_AUDIO_AUDIO_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/helper_process.h"
#include "server/media/audio/audio_header.h"
#include "server/media/audio/audio_plan.h"
#include "server/media/audio/decoder/decoder_protocol.h"

namespace ballast {

// Audio in a file: `bytes` bytes from `offset` on. The descriptor is not owned.
struct AudioBytes {
  int fd = -1;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// What an audio file holds.
struct AudioFacts {
  AudioFormat format = AudioFormat::kWav;
  uint32_t rate = 0;  // of the decoded stream
  uint32_t channels = 0;
  uint64_t frames = 0;   // samples of each channel at `rate`
  uint64_t samples = 0;  // at kModelRate
  // Why the whole stream was read for them; empty: the headers sufficed.
  std::string scan;
};

// Most samples that one call reads: 2.3 hours, 512 MiB.
inline constexpr uint64_t kMaxClipSamples = uint64_t{1} << 27;

// Reads audio by two processes, of libsndfile and of FFmpeg (M4A, videos),
// asked by one thread at a time. They end with this object or the server,
// however that ends; the next call then starts another. Calls block.
// Thread-compatible.
class AudioReader {
 public:
  struct Options {
    // As HelperProcess::Options.
    absl::Duration patience = absl::Seconds(120);
    // Counts starts and ends; not owned, may be null.
    HelperCounters* counters = nullptr;
  };

  AudioReader() : AudioReader(Options()) {}
  explicit AudioReader(const Options& options);

  // Reads the facts of a file: from its headers, in this process but for M4A,
  // where they suffice; `in_video`: of the audio of a video, always by FFmpeg.
  // Errors: a data fault (no audio, damage, a file that was
  // cut short; or the file is at fault for the end of a process, as
  // HelperProcess says), UNAVAILABLE (the file cannot be read; the process was
  // killed or stopped, got no memory, or cannot be started),
  // FAILED_PRECONDITION (the process's libraries cannot be loaded here).
  absl::StatusOr<AudioFacts> ReadFacts(const AudioBytes& file,
                                       bool in_video = false);

  // Decodes the samples of `range`: the mean of all channels at kModelRate. A
  // range up to the end checks that the stream is as long as `facts` say.
  // Errors: as ReadFacts; a data fault also if range is longer than
  // kMaxClipSamples.
  absl::StatusOr<std::vector<float>> ReadSamples(const AudioBytes& file,
                                                 const AudioFacts& facts,
                                                 const SampleRange& range);

 private:
  HelperProcess& GetProcess(AudioFormat format);
  // Receives answers up to the end; appends samples to `samples`, which may be
  // null, up to `most`.
  absl::StatusOr<audio_decoder::Facts> Ask(HelperProcess& process,
                                           audio_decoder::Task task,
                                           const AudioBytes& file,
                                           audio_decoder::Request request,
                                           std::vector<float>* samples);
  absl::StatusOr<audio_decoder::Facts> Receive(HelperProcess& process,
                                               uint64_t most,
                                               std::vector<float>* samples);

  HelperProcess sndfile_;
  HelperProcess ffmpeg_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_AUDIO_AUDIO_READER_H_
