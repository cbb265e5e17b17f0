#include "server/files/span_checksum.h"

// The library's header holds its code, too, which is compiled here once more:
// for AVX2, and for this file alone.
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
// Its XXH_AVX2: the header does not see the pragma.
#define XXH_VECTOR 2
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ballast {

uint64_t SpanChecksumAvx2(const char* bytes, size_t size) {
  return XXH3_64bits(bytes, size);
}

}  // namespace ballast

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace ballast {

bool HasSpanChecksumAvx2() { return __builtin_cpu_supports("avx2") != 0; }

}  // namespace ballast

#else

namespace ballast {

bool HasSpanChecksumAvx2() { return false; }
uint64_t SpanChecksumAvx2(const char*, size_t) { return 0; }

}  // namespace ballast

#endif
