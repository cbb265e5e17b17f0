#ifndef BALLAST_TESTS_FUZZ_SEED_REQUESTS_H_
#define BALLAST_TESTS_FUZZ_SEED_REQUESTS_H_

namespace ballast {

// Values shared by pull_request_fuzz's server and its seed: the fingerprint's
// hash and the arena's nonce.
inline constexpr char kSeedHash[] = "00112233445566778899aabbccddeeff";
inline constexpr char kSeedNonce[] = "0123456789abcdef";

}  // namespace ballast

#endif  // BALLAST_TESTS_FUZZ_SEED_REQUESTS_H_
