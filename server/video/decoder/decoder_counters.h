#ifndef BALLAST_SERVER_VIDEO_DECODER_DECODER_COUNTERS_H_
#define BALLAST_SERVER_VIDEO_DECODER_DECODER_COUNTERS_H_

#include <array>
#include <cstddef>

#include "common/instruments.h"

namespace ballast {

// Why a video decoder's process ended before its reader did. The next video
// gets another process.
enum class DecoderEnd {
  kCrash,          // a signal, or an exit of its own
  kProcessorTime,  // the file took more than any sound one
  kSilence,        // ended by the server: no word for too long
  kAnswer,         // ended by the server: an answer that contradicts itself
  kKilled,         // from outside: SIGKILL, as when memory runs out
  kAbandoned,      // ended by the server: the frames were no longer wanted
  kLibraries,      // FFmpeg's libraries cannot be loaded
};
inline constexpr size_t kDecoderEnds = 7;

// Names of metrics and messages, in the order of DecoderEnd.
inline constexpr std::array<const char*, kDecoderEnds> kDecoderEndNames = {
    "crash",  "processor_time", "silence",  "answer",
    "killed", "abandoned",      "libraries"};

// Starts and ends of all decoder processes of a reader. Thread-safe.
struct DecoderCounters {
  Counter starts;
  std::array<Counter, kDecoderEnds> ends;

  void AddEnd(DecoderEnd end) { ends[static_cast<size_t>(end)].Add(); }
};

}  // namespace ballast

#endif  // BALLAST_SERVER_VIDEO_DECODER_DECODER_COUNTERS_H_
