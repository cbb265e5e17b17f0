#ifndef BALLAST_PROTO_IMAGE_PLANE_FORM_H_
#define BALLAST_PROTO_IMAGE_PLANE_FORM_H_

#include <array>
#include <cstdint>

namespace ballast {

// How many planes a JPEG decodes to, and how many pixels share a chroma sample.
enum class ChromaSampling : uint8_t {
  kGrey,  // one plane
  k444,   // chroma for each pixel
  k422,   // for each two pixels of a row
  k420,   // for each square of two by two pixels
};

// The planes that a JPEG decodes to, before upsampling and colour conversion:
// Y, or Y, Cb and Cr, 8 bits a sample.
struct PlaneForm {
  uint32_t width = 0;  // of the picture and of plane 0
  uint32_t height = 0;
  ChromaSampling sampling = ChromaSampling::kGrey;

  int planes() const { return sampling == ChromaSampling::kGrey ? 1 : 3; }
  // Sides of a plane; chroma's are rounded up.
  uint32_t plane_width(int plane) const;
  uint32_t plane_height(int plane) const;

  friend bool operator==(const PlaneForm&, const PlaneForm&) = default;
};

// Places of an image's planes in its memory. Rows of a plane are `pitch`
// bytes apart, a multiple of kPlaneAlignment, and so is each plane's offset.
inline constexpr uint64_t kPlaneAlignment = 64;
struct PlaneLayout {
  std::array<uint64_t, 3> offset = {};
  std::array<uint32_t, 3> pitch = {};
  uint64_t bytes = 0;  // of all planes
};
PlaneLayout LayOutPlanes(const PlaneForm& form);

}  // namespace ballast

#endif  // BALLAST_PROTO_IMAGE_PLANE_FORM_H_
