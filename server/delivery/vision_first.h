#ifndef BALLAST_SERVER_DELIVERY_VISION_FIRST_H_
#define BALLAST_SERVER_DELIVERY_VISION_FIRST_H_

#include <cstdint>

#include "proto/config.pb.h"
#include "server/delivery/stream_progress.h"

namespace ballast {

// Language is not supervised where the images of a sample cannot be decoded
// (serve.on_bad_sample: placeholder), so whoever builds its block must know.
// Vision's blocks of the same samples find out by the way. Language's therefore
// wait for those that this server has in work; what is not known then, because
// vision is built elsewhere, language finds out by decoding the images itself.
//
// Without this, language's stream runs ahead of vision's by what its clients
// hold, and every image is decoded twice.

// Whether language must know of images that fail.
bool ChecksImages(const v1::Config& config);

// Whether `language`, which could be begun, waits for `vision`, which is being
// planned or built: where that comes no later, and no more than
// `prefetch_steps` steps before. What is further back is none of this
// language's run, but of a client that goes over old steps.
//
// Nothing that is waited for waits for language in turn: it has its memory, or
// will be refused or put off, and either ends the wait.
bool AwaitsVision(const BlockId& language, const BlockId& vision,
                  uint32_t prefetch_steps);

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_VISION_FIRST_H_
