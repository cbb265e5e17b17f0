#ifndef BALLAST_SERVER_FILES_SPAN_CHECKSUM_H_
#define BALLAST_SERVER_FILES_SPAN_CHECKSUM_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace ballast {

// XXH3-64 of `bytes`, as Checksum of server/sample/index_format.h, but twice as
// fast on long ones where the processor has AVX2: Debian's library is built for
// any x86-64.
uint64_t SpanChecksum(absl::string_view bytes);

// Whether this build and this processor have SpanChecksumAvx2.
bool HasSpanChecksumAvx2();
// XXH3-64; only if HasSpanChecksumAvx2.
uint64_t SpanChecksumAvx2(const char* bytes, size_t size);

}  // namespace ballast

#endif  // BALLAST_SERVER_FILES_SPAN_CHECKSUM_H_
