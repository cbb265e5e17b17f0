#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "server/sample/image_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  // Tries every offset at which a block may begin, including those after the
  // names of segments and chunks.
  for (size_t at = 0; at < size; at += at < 64 ? 1 : size) {
    const int orientation = ballast::OrientationOfExif(bytes.substr(at));
    if (orientation < 1 || orientation > 8) std::abort();
  }
  return 0;
}
