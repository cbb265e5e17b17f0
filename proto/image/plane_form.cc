#include "proto/image/plane_form.h"

#include "common/align.h"

namespace ballast {

uint32_t PlaneForm::plane_width(int plane) const {
  const bool halved = plane > 0 && (sampling == ChromaSampling::k422 ||
                                    sampling == ChromaSampling::k420);
  return halved ? width / 2 + width % 2 : width;
}

uint32_t PlaneForm::plane_height(int plane) const {
  const bool halved = plane > 0 && sampling == ChromaSampling::k420;
  return halved ? height / 2 + height % 2 : height;
}

PlaneLayout LayOutPlanes(const PlaneForm& form) {
  PlaneLayout layout;
  for (int plane = 0; plane < form.planes(); ++plane) {
    layout.offset[plane] = layout.bytes;
    layout.pitch[plane] = static_cast<uint32_t>(
        AlignUp(form.plane_width(plane), kPlaneAlignment));
    layout.bytes += uint64_t{layout.pitch[plane]} * form.plane_height(plane);
  }
  return layout;
}

}  // namespace ballast
