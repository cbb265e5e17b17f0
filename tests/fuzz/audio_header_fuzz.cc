// The headers of an audio file are untrusted bytes: whatever they are, the
// reader asks for bytes that the file has, ends, and finds facts or a data
// fault.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "server/media/audio/audio_header.h"
#include "server/sample/data_fault.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  uint64_t read = 0;
  const auto header = ballast::ReadAudioHeader(
      size,
      [&](uint64_t offset, uint64_t count) -> absl::StatusOr<std::string> {
        if (offset > size || count > size - offset) std::abort();
        read += count;
        return std::string(bytes.substr(offset, count));
      });
  // A thousand chunks' heads, and some pages.
  if (read > (uint64_t{1} << 19)) std::abort();
  if (!header.ok()) {
    if (!ballast::IsDataFault(header.status())) std::abort();
    return 0;
  }
  if (header->format == ballast::AudioFormat::kM4a) return 0;
  if (header->rate == 0 || header->channels == 0 || header->samples == 0 ||
      (!header->samples.has_value() && header->scan.empty())) {
    std::abort();
  }
  return 0;
}
