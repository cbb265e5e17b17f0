#ifndef BALLAST_SERVER_DELIVERY_DELIVERY_INSTRUMENTS_H_
#define BALLAST_SERVER_DELIVERY_DELIVERY_INSTRUMENTS_H_

#include <chrono>

#include "absl/time/time.h"
#include "common/helper_process.h"
#include "common/instruments.h"
#include "server/delivery/failing_files.h"
#include "server/sample/medium_kind.h"

namespace ballast {

// Counts of media decoded for one purpose.
struct DecodedCounters {
  PerMedium<Counter> media;
  Counter frames;  // of these videos
};

// Measurements of building samples; see docs/metrics.md. Thread-safe.
struct BuildInstruments {
  // Time of reads from the disk: one entry per sample and module that reads
  // anything.
  DurationHistogram read_images;
  DurationHistogram read_text;
  // One entry per image. Decoding and resizing are one pass, strip by strip:
  // `resize` is the time of resampling all its strips, `decode` the rest.
  DurationHistogram decode;
  DurationHistogram resize;
  // One entry per video: decoding its frames, and resizing them meanwhile.
  DurationHistogram decode_video;
  // One entry per medium of audio: decoding it and making its features.
  DurationHistogram decode_audio;
  // Time from a sample's text to token ids, labels and positions.
  DurationHistogram tokenise;

  // Media decoded for vision, and media that language decoded only to check
  // that they can be decoded (LanguageBuilder).
  DecodedCounters vision;
  DecodedCounters audio;  // likewise, for audio encoders
  DecodedCounters check;
  Counter images_encoded;  // sent as files, for their owners to decode
  Counter media_bytes;     // of all these files
  HelperCounters video_decoders;
  HelperCounters audio_decoders;
  Counter tokens;
  Counter placeholders;  // samples replaced
  FailingFiles failing_files;
};

// Measurements of sending blocks to clients. Thread-safe.
struct PullInstruments {
  // Time that a client with room for a block waited until it was built; 0 if it
  // was built before. One entry per block.
  DurationHistogram wait;
  // Time that a built block waited for its client to have room.
  DurationHistogram hold_back;
  // Time from the first of a block's messages until gRPC has written the last.
  DurationHistogram send;

  Counter blocks_shared;  // lent in shared memory
  Counter blocks_streamed;
  Counter bytes_shared;
  Counter bytes_streamed;
  // Pulls that ended with an error of the server's: their ranks go elsewhere.
  Counter failed;
};

// Adds its lifetime to `histogram`, which may be null. Uses a steady clock.
class Stopwatch {
 public:
  static absl::Duration Since(std::chrono::steady_clock::time_point start) {
    return absl::FromChrono(std::chrono::steady_clock::now() - start);
  }

  explicit Stopwatch(DurationHistogram* histogram) : histogram_(histogram) {
    if (histogram_ != nullptr) start_ = std::chrono::steady_clock::now();
  }
  ~Stopwatch() { Stop(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // Ends the measurement now.
  void Stop() {
    if (histogram_ != nullptr) histogram_->Record(Since(start_));
    histogram_ = nullptr;
  }

 private:
  DurationHistogram* histogram_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_DELIVERY_INSTRUMENTS_H_
