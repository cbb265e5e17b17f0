#ifndef BALLAST_SERVER_MONITOR_ENCODED_IMAGES_H_
#define BALLAST_SERVER_MONITOR_ENCODED_IMAGES_H_

#include <string>

#include "proto/metrics_service.pb.h"
#include "server/corpus/index/image_mark.h"

namespace ballast {

// The counts of a source's index for GetStatus. Pure.
v1::GetStatusResponse::EncodedImages EncodedImagesOf(
    const std::string& source, const ImageMarkCounts& counts);

}  // namespace ballast

#endif  // BALLAST_SERVER_MONITOR_ENCODED_IMAGES_H_
