#ifndef BALLAST_SERVER_STORAGE_SPAN_CHECKSUM_AVX2_H_
#define BALLAST_SERVER_STORAGE_SPAN_CHECKSUM_AVX2_H_

#include <cstddef>
#include <cstdint>

namespace ballast {

// Whether this build and this processor have SpanChecksumAvx2.
bool HasSpanChecksumAvx2();
// XXH3-64; only if HasSpanChecksumAvx2.
uint64_t SpanChecksumAvx2(const char* bytes, size_t size);

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_SPAN_CHECKSUM_AVX2_H_
