#include "server/files/span_checksum.h"

#include <xxhash.h>

namespace ballast {

uint64_t SpanChecksum(absl::string_view bytes) {
  static const bool has_avx2 = HasSpanChecksumAvx2();
  return has_avx2 ? SpanChecksumAvx2(bytes.data(), bytes.size())
                  : XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace ballast
