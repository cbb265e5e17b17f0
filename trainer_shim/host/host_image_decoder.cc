#include "trainer_shim/host/host_image_decoder.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "trainer_shim/host/plane_pixels.h"

namespace ballast {
namespace {

uint8_t* AtLeast(uint64_t size, std::vector<uint8_t>* buffer) {
  if (buffer->size() < size) buffer->resize(size);
  return buffer->data();
}

}  // namespace

absl::Status HostImageDecoder::DecodeResized(absl::string_view bytes,
                                             const PlaneForm& form,
                                             uint32_t width, uint32_t height,
                                             absl::Span<uint8_t> out) {
  if (out.size() != uint64_t{width} * height * 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("resizing to ", width, "x", height, " pixels in ",
                     out.size(), " bytes; a pixel takes 3"));
  }
  const ResampleRequest request = {form, width, height, 0, 0};
  BALLAST_RETURN_IF_ERROR(planner_.Plan({&request, 1}));
  const ResamplePlan& plan = planner_.plan();
  uint8_t* planes = AtLeast(LayOutPlanes(form).bytes, &planes_);
  BALLAST_RETURN_IF_ERROR(engine_.DecodeOne({bytes, form, planes}));
  AtLeast(uint64_t{3} * plan.most_width, &row_);
  uint8_t* narrow = AtLeast(plan.narrow_bytes, &narrow_);
  NarrowRows(plan, planes, absl::MakeSpan(row_), narrow);
  ShortenColumns(plan, narrow, out.data());
  return absl::OkStatus();
}

}  // namespace ballast
