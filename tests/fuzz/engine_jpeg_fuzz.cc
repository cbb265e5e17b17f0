// A judgement does not depend on the bytes after the header: the one on a
// prefix is the one on the whole file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "proto/image/engine_jpeg.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto whole = ballast::JudgeForEngines(bytes);
  for (size_t length = size; length > 0; length -= length / 3 + 1) {
    const auto part = ballast::JudgeForEngines(bytes.substr(0, length - 1));
    // A prefix may need more bytes, whatever the result for the whole file.
    if (!part.ok()) continue;
    if (!whole.ok() || part->refusal != whole->refusal ||
        !(part->form == whole->form)) {
      std::abort();
    }
  }
  return 0;
}
