#ifndef BALLAST_SERVER_MEDIA_IMAGE_PNG_FILTERS_H_
#define BALLAST_SERVER_MEDIA_IMAGE_PNG_FILTERS_H_

#include <cstddef>
#include <cstdint>

namespace ballast {

// Undoes the filter of a row of a PNG in place (PNG specification, chapter 9),
// Paeth's by vectors where pixels have three bytes or more: Debian's libpng
// does it byte by byte, in a third of the time of a photograph.
//
// `type`: of the filter. `row`: `size` filtered bytes, without the type.
// `above`: the `size` bytes of the row above, zeros for the first one. `pixel`:
// bytes of a pixel, from 1 to 8. Returns whether there is such a filter;
// otherwise the row is as it was.
bool Unfilter(uint8_t type, size_t pixel, uint8_t* row, const uint8_t* above,
              size_t size);

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_IMAGE_PNG_FILTERS_H_
