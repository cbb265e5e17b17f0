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
// images itself.
//
// Without this, language's stream runs ahead of vision's by what its clients
// hold, thousands of its small blocks, and every image is decoded twice.
//
// Nothing that is waited for waits for language in turn. What is in work will
// be built. What is to come begins as clients take blocks; where none has taken
// any for kPatience, its client may be the one that waits for language, and it
// is waited for no longer until it moves again.

// Whether language must know of images that fail.
bool ChecksImages(const v1::Config& config);

inline constexpr absl::Duration kPatience = absl::Seconds(5);

// A stream of vision that is further back than this is none of language's run,
// but of a client that goes over old steps. Far more than a client holds blocks
// of language.
inline constexpr uint64_t kSameRun = 16384;  // steps

// Whether `language`, which could be begun, waits for a stream of vision whose
// first block that is not built is `missing`.
bool AwaitsVision(const BlockId& language, const BlockId& missing);

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_VISION_FIRST_H_
