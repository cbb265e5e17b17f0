#include "server/video/listed_frame.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/image/resample_weights.h"
#include "server/corpus/data_fault.h"
#include "server/image/resize_sink.h"

namespace ballast {

absl::Status MakeListedFrame(absl::string_view picture, uint32_t width,
                             uint32_t height, const VideoPlan& plan,
                             ImageDecoder* decoder, absl::Span<uint8_t> out) {
  BALLAST_ASSIGN_OR_RETURN(RgbImage image, decoder->Decode(picture));
  if (image.width != width || image.height != height) {
    return DataFaultError(absl::StrCat(image.width, "x", image.height,
                                       " pixels instead of ", width, "x",
                                       height));
  }
  const Resampling& last = decoder->options().resampling;
  if (plan.first_width != 0) {
    Resampling pillow;
    if (last.library != ResampleLibrary::kTorchvision) {
      pillow.library = last.library;
    }
    RgbImage first = {plan.first_width, plan.first_height, {}};
    first.pixels.resize(size_t{first.width} * first.height * 3);
    BALLAST_RETURN_IF_ERROR(Resize(image, pillow, first.width, first.height,
                                   absl::MakeSpan(first.pixels)));
    image = std::move(first);
  }
  return Resize(image, last, plan.width, plan.height, out);
}

uint64_t ListedFrameBytes(uint32_t width, uint32_t height,
                          const VideoPlan& plan, const Resampling& resampling) {
  return uint64_t{plan.first_width} * plan.first_height * 3 +
         ResizeSink::MostBytes(resampling, width, height, plan.width,
                               plan.height) +
         (plan.first_width == 0
              ? 0
              : ResizeSink::MostBytes(Resampling(), width, height,
                                      plan.first_width, plan.first_height));
}

}  // namespace ballast
