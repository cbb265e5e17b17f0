#ifndef BALLAST_COMMON_SHA256_H_
#define BALLAST_COMMON_SHA256_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace ballast {

// SHA-256 of `bytes` as 64 lower-case hexadecimal digits. Thread-safe.
std::string Sha256Hex(absl::Span<const uint8_t> bytes);

}  // namespace ballast

#endif  // BALLAST_COMMON_SHA256_H_
