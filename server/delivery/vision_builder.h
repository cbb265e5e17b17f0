#ifndef BALLAST_SERVER_DELIVERY_VISION_BUILDER_H_
#define BALLAST_SERVER_DELIVERY_VISION_BUILDER_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "server/corpus/data_fault.h"
#include "server/delivery/image_check_cache.h"
#include "server/delivery/sample_builder.h"
#include "server/delivery/sample_reader.h"

namespace ballast {

// Builds vision payloads: reads the images, and decodes and resizes them
// straight into the payload; files of those that travel encoded are read there.
// Records for language whether all of them are good.
// Thread-safe.
class VisionBuilder {
 public:
  // Neither is owned.
  VisionBuilder(const SampleReader* reader, ImageCheckCache* image_checks)
      : reader_(reader), image_checks_(image_checks) {}

  // Fills the payload, or returns the data fault that prevented it. Non-OK
  // statuses are transient faults. Blocks on the disk.
  absl::StatusOr<std::optional<DataFault>> Build(const SampleRequest& request,
                                                 SampleWork* work);

  // Images with faults that were skipped, as Pillow does.
  uint64_t images_with_warnings() const { return images_with_warnings_; }

 private:
  const SampleReader* const reader_;
  ImageCheckCache* const image_checks_;
  std::atomic<uint64_t> images_with_warnings_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_VISION_BUILDER_H_
