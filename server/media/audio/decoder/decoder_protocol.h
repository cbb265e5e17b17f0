#ifndef BALLAST_SERVER_MEDIA_AUDIO_DECODER_DECODER_PROTOCOL_H_
#define BALLAST_SERVER_MEDIA_AUDIO_DECODER_DECODER_PROTOCOL_H_

#include <cmath>
#include <cstdint>

namespace ballast {

// Samples a second of all that models see.
inline constexpr uint32_t kModelRate = 16000;

// Samples at kModelRate of a file of `samples` at `rate`, as librosa's resample
// gives: rounded up. Pure.
inline uint64_t ResampledCount(uint64_t samples, uint32_t rate) {
  // In float64, as librosa computes it.
  const double ratio = double{kModelRate} / rate;
  return static_cast<uint64_t>(std::ceil(static_cast<double>(samples) * ratio));
}

}  // namespace ballast

// The requests to the two programs that decode audio (decoder_main.cc) and
// their answers, as frames of common/helper_program.h: parsers of untrusted
// bytes, kept out of the server, which links neither libsndfile, soxr nor
// FFmpeg.
//
//   kFacts  Request, with the descriptor of the file -> kEnd: Facts of the
//           header; frames is 0 if the header does not count them
//   kCount  likewise, after decoding the whole stream
//   kRead   likewise -> kOk: samples of the range (float), any number of times;
//           kEnd: Facts
//
// Another answer holds a reason and ends the request.
namespace ballast::audio_decoder {

enum Task : uint32_t { kFacts, kCount, kRead };

struct Request {
  // The bytes of the audio in the file.
  uint64_t offset;
  uint64_t bytes;
  // kRead: the samples wanted, mono at the model's rate, and the frames that
  // the stream must have.
  uint64_t first;
  uint64_t samples;
  uint64_t frames;
  // Processor time that the request may take; the process is ended above it.
  uint64_t cpu_seconds;
};

enum class Outcome : uint32_t {
  kOk,
  kEnd,
  kRefused,   // the same bytes are refused everywhere
  kUnread,    // the file could not be read
  kNoMemory,  // ends the process instead of answering
};

struct Facts {
  uint32_t rate;
  uint32_t channels;
  uint64_t frames;  // samples of each channel
};

inline constexpr uint32_t kMaxReasonBytes = 4096;
// Of one answer.
inline constexpr uint32_t kMaxSamplesInAnswer = uint32_t{1} << 16;
// What is decoded: rates of samples, and channels.
inline constexpr uint32_t kMinRate = 1000;
inline constexpr uint32_t kMaxRate = 768000;
inline constexpr uint32_t kMaxChannels = 64;
// The most address space that a process may take.
inline constexpr uint64_t kMaxMemory = uint64_t{2} << 30;
inline constexpr uint64_t kLargestAllocation = uint64_t{256} << 20;

}  // namespace ballast::audio_decoder

#endif  // BALLAST_SERVER_MEDIA_AUDIO_DECODER_DECODER_PROTOCOL_H_
