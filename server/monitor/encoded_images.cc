#include "server/monitor/encoded_images.h"

#include <cstddef>

#include "proto/image/engine_jpeg.h"

namespace ballast {

v1::GetStatusResponse::EncodedImages EncodedImagesOf(
    const std::string& source, const ImageMarkCounts& counts) {
  v1::GetStatusResponse::EncodedImages images;
  images.set_source(source);
  images.set_images(counts.images);
  images.set_clean(counts.with(ImageCheckResult::kClean));
  images.set_unsound(counts.with(ImageCheckResult::kUnsound));
  images.set_changed(counts.with(ImageCheckResult::kChanged));
  images.set_unchecked(counts.with(ImageCheckResult::kUnchecked));
  for (size_t i = 0; i < counts.refusals.size(); ++i) {
    if (counts.refusals[i] == 0) continue;
    auto* const refusal = images.add_refusals();
    refusal->set_reason(
        i == 0 ? "not judged"
               : std::string(EngineRefusalText(static_cast<EngineRefusal>(i))));
    refusal->set_images(counts.refusals[i]);
  }
  return images;
}

}  // namespace ballast
