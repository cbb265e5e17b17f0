#ifndef BALLAST_SERVER_DELIVERY_ENCODER_GATE_H_
#define BALLAST_SERVER_DELIVERY_ENCODER_GATE_H_

#include <array>
#include <cstdint>
#include <map>

#include "absl/time/time.h"
#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "server/delivery/block.h"
#include "server/delivery/block_stream.h"

namespace ballast {

// Returns whether a language block depends on the media of its samples: a text
// must not be supervised if an image or a clip of its sample cannot be decoded
// (serve.on_bad_sample: placeholder).
bool ChecksImages(const v1::Config& config);

// Holds language back until the encoders have decoded the media of the same
// samples, so that language need not decode them again. A language block may
// begin once this server's streams of encoders have built every block up to it.
// Media that an encoder decodes elsewhere, or later, are decoded by language
// itself (docs/decisions/0015-vision-first.md).
//
// Plain values, no threads or locks: thread-compatible.
class EncoderGate {
 public:
  // Look() is called at this interval.
  static constexpr absl::Duration kLookInterval = absl::Seconds(5);

  // A stream of an encoder is paused if its client took no block, and no block
  // was being built, for this many looks. Its client may be waiting for
  // language, so language may run `prefetch_steps` steps ahead of it.
  static constexpr uint32_t kPausedLooks = 3;
  // A stream of an encoder counts as stalled after this many looks, and
  // language ignores it. Clients give up on a silent server after --hang-after,
  // 30 s.
  static constexpr uint32_t kStalledLooks = 5;

  // While language is ahead of an encoder's stream that makes progress again,
  // one language block may begin for this many blocks of the encoder: slow
  // enough for it to catch up, fast enough that language's clients do not give
  // up the server as hung.
  static constexpr uint64_t kEncoderBlocksPerBlock = 4;

  // Progress of an encoder's stream:
  //
  //   built                  being built        not begun
  //   ......................|###|...|###|###|............
  //                          ^ first_unbuilt   ^ to_begin
  struct Progress {
    BlockId first_unbuilt;  // equals to_begin if every begun block is built
    BlockId to_begin;
    bool goes_on = false;      // to_begin begins as blocks are taken
    uint32_t looks_still = 0;  // looks without a block taken or being built
  };
  // For each encoder, keyed by data-parallel rank.
  using Ranks = std::map<v1::Module, std::map<uint32_t, Progress>>;

  // `enabled` is false if language does not depend on images (ChecksImages):
  // then nothing waits. `prefetch_steps` is serve.prefetch_steps.
  EncoderGate(bool enabled, uint32_t prefetch_steps)
      : enabled_(enabled), prefetch_steps_(prefetch_steps) {}

  // Streams are only read and not owned: each must stay in place until removed.
  void Add(const LoaderStream* stream) { streams_[stream->id] = {stream}; }
  void Remove(const LoaderStream& stream) { streams_.erase(stream.id); }

  // Records that `stream` has begun a block; `is_new` is false if the block
  // existed already.
  void OnBegun(const LoaderStream& stream, bool is_new);
  // Records that the client of `stream` has taken a block.
  void OnTaken(const LoaderStream& stream);
  // Counts the looks for which each stream has been idle.
  void Look();

  // Returns whether `stream` may begin its next block now. An encoder's always
  // may.
  bool MayBegin(const LoaderStream& stream) const;
  // Like the above, for several streams with one call of GetRanks().
  bool MayBegin(const LoaderStream& stream, const Ranks& encoders) const;
  // The progress of each rank of an encoder, i.e. of its most advanced stream.
  Ranks GetRanks() const;

  // Returns whether language block `block` must wait for one rank of an
  // encoder. `encoder_begun` is the number of blocks that an average rank of
  // the encoder has begun since the language stream last began one. Pure.
  static bool MustWait(const BlockId& block, const Progress& encoder,
                       uint64_t encoder_begun, uint32_t prefetch_steps);

 private:
  // Blocks of each encoder begun so far, by number of the module.
  using BegunBlocks = std::array<uint64_t, v1::Module_ARRAYSIZE>;

  struct Watched {
    const LoaderStream* stream;
    uint32_t looks_still = 0;
    // begun_ when this stream last began a block.
    BegunBlocks begun_then = {};
  };

  const bool enabled_;
  const uint32_t prefetch_steps_;
  std::map<uint64_t, Watched> streams_;  // by id
  BegunBlocks begun_ = {};
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_ENCODER_GATE_H_
