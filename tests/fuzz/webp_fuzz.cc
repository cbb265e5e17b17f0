#include <cstddef>
#include <cstdint>

#include "tests/fuzz/decode_twice.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ballast::DecodeTwice(ballast::ImageFormat::kWebp,
                       {reinterpret_cast<const char*>(data), size});
  return 0;
}
