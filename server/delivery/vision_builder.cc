#include "server/delivery/vision_builder.h"

#include <algorithm>

#include "common/status_macros.h"
#include "server/delivery/payload.h"

namespace ballast {

absl::StatusOr<std::optional<DataFault>> VisionBuilder::Build(
    const SampleRequest& request, SampleWork* work) {
  std::optional<DataFault> fault;
  // A sample without images has nothing to read.
  if (!request.images.empty()) {
    BuildInstruments* const instruments = reader_->instruments();
    BALLAST_ASSIGN_OR_RETURN(
        const FaultOr<uint32_t> warnings,
        reader_->ReadImages(
            request,
            [&request](size_t i) {
              return ImageData(request.images[i], request.payload);
            },
            instruments ? &instruments->vision : nullptr, work));
    if (warnings.ok()) {
      images_with_warnings_.fetch_add(*warnings, std::memory_order_relaxed);
      if (instruments != nullptr) {
        instruments->images_encoded.Add(std::count_if(
            request.images.begin(), request.images.end(),
            [](const ImageRecord& image) { return image.encoded_bytes != 0; }));
      }
    } else {
      fault = warnings.fault();
    }
  }
  image_checks_->Put(request.split, request.record.position, {fault});
  if (!fault.has_value()) ClearVisionPadding(request);
  return fault;
}

}  // namespace ballast
