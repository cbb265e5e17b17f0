// A file with a sound scan is one that libjpeg decodes without a warning.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "server/media/image/image.h"
#include "server/media/image/sound_scan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (!ballast::CheckScan(bytes).ok()) return 0;
  ballast::ImageDecoder decoder;
  if (!decoder.Decode(bytes).ok() || decoder.warnings() != 0) std::abort();
  return 0;
}
