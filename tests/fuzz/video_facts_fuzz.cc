#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "server/media/video/decoder/decoder_process.h"

// Whatever the decoder says, the server takes only what makes sense.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto facts = ballast::ParseFacts(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!facts.ok()) {
    if (facts.status().message().empty()) std::abort();
    return 0;
  }
  if (facts->frames() == 0 || !(facts->fps > 0) || facts->width == 0 ||
      facts->height == 0 || facts->rotation % 90 != 0) {
    std::abort();
  }
  int64_t last = INT64_MIN;
  for (const ballast::VideoFrame& frame : facts->table.frames) {
    if (frame.start > frame.packet || frame.time < last) std::abort();
    last = facts->table.is_timed ? frame.time : last;
  }
  const auto& times = facts->times;
  if (times.size() != (facts->is_variable ? facts->frames() + size_t{1} : 0) ||
      !std::is_sorted(times.begin(), times.end())) {
    std::abort();
  }
  if (ballast::PacketsToDecode(facts->table, {0}) == 0) std::abort();
  return 0;
}
