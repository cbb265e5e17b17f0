#ifndef BALLAST_TESTS_FUZZ_SEED_REQUESTS_H_
#define BALLAST_TESTS_FUZZ_SEED_REQUESTS_H_

namespace ballast {

// What the server of pull_request_fuzz says of itself, and its seed's messages
// know: the fingerprint's hash and the arena's nonce.
inline constexpr char kSeedHash[] = "00112233445566778899aabbccddeeff";
inline constexpr char kSeedNonce[] = "0123456789abcdef";

}  // namespace ballast

#endif  // BALLAST_TESTS_FUZZ_SEED_REQUESTS_H_
