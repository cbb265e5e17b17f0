#include "common/sha256.h"

#include <openssl/sha.h>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace ballast {

std::string Sha256Hex(absl::Span<const uint8_t> bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(bytes.data(), bytes.size(), digest);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest)));
}

}  // namespace ballast
