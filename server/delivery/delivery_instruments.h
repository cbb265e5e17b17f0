#ifndef BALLAST_SERVER_DELIVERY_DELIVERY_INSTRUMENTS_H_
#define BALLAST_SERVER_DELIVERY_DELIVERY_INSTRUMENTS_H_

#include <chrono>

#include "absl/time/time.h"
#include "common/instruments.h"

namespace ballast {

// What building samples takes. Every member is of its own; see docs/metrics.md.
// Thread-safe.
struct BuildInstruments {
  // From the disk: one entry a sample and module that had something to read.
  DurationHistogram read_images;
  DurationHistogram read_text;
  // One entry an image. Decoding and resizing are one pass, strip by strip:
  // `resize` is what the resampling of all its strips took together, `decode`
  // is the rest.
  DurationHistogram decode;
  DurationHistogram resize;
  // A sample's text, to token ids, labels and positions.
  DurationHistogram tokenise;

  // Images that vision got, and those that language decoded once more to know
  // whether they can be (FileSampleBuilder).
  Counter images;
  Counter images_checked;
  Counter image_bytes;  // as they lie in their files, of both
  Counter tokens;
  Counter placeholders;  // samples that a placeholder stands for
};

// What handing blocks to clients takes. Thread-safe.
struct PullInstruments {
  // One entry a block. How long its client, which had room for it, waited until
  // it was built; 0 where it was there.
  DurationHistogram wait;
  // How long the block, which was built, waited for its client to have room.
  DurationHistogram hold_back;
  // From the first of its messages to gRPC's word that the last is written.
  DurationHistogram send;

  Counter blocks_shared;  // lent in shared memory
  Counter blocks_streamed;
  Counter bytes_shared;
  Counter bytes_streamed;
};

// Adds the time from its making to its end to `histogram`, which may be null.
// By a steady clock, which nobody sets.
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

  // The end is now, and nothing is added later.
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
