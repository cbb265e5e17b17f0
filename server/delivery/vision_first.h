#ifndef BALLAST_SERVER_DELIVERY_VISION_FIRST_H_
#define BALLAST_SERVER_DELIVERY_VISION_FIRST_H_

#include <cstdint>

#include "absl/time/time.h"
#include "proto/config.pb.h"
#include "server/delivery/stream_progress.h"

namespace ballast {

// Language is not supervised where the images of a sample cannot be decoded
// (serve.on_bad_sample: placeholder), so whoever builds its block must know.
// Vision's blocks of the same samples find out by the way, so language's wait
// until this server's streams of vision have come past them. What is not known
// then, because vision is built elsewhere, language finds out by decoding the
// images itself. docs/decisions/0015-vision-first.md

// Whether language must know of images that fail.
bool ChecksImages(const v1::Config& config);

// How far a stream of vision is:
//
//   built                  being built        not begun
//   ......................|###|...|###|###|............
//                          ^ missing       ^ to_begin
struct VisionLane {
  BlockId missing;       // the first that is not built; to_begin where all are
  BlockId to_begin;      // the first that is not begun
  bool goes_on = false;  // that one will be, as the client takes blocks
  // Looks, one every kLook, since the client last took a block or one was in
  // work.
  uint32_t looks_still = 0;
};

inline constexpr absl::Duration kLook = absl::Seconds(5);

// A client that takes nothing for so many looks may be one that waits for
// language: then language may come `prefetch_steps` steps before vision. After
// kStandsStill looks it goes its own way. Clients give a server up that is
// silent for --hang-after, 30 s.
inline constexpr uint32_t kPauses = 3;
inline constexpr uint32_t kStandsStill = 5;

// Where language has come before vision while that stood still, it goes a
// quarter as fast until vision has caught up: slow enough for that, fast enough
// for its clients not to take the server for one that hangs.
inline constexpr uint64_t kBlocksOfVision = 4;

// Whether `block` of language, which could be begun, waits for the lane. Since
// its stream began one before, `vision_begun` blocks of an average rank of
// vision have been begun. What is in work is waited for in any case: it will be
// built or fail.
bool AwaitsVision(const BlockId& block, const VisionLane& lane,
                  uint64_t vision_begun, uint32_t prefetch_steps);

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_VISION_FIRST_H_
