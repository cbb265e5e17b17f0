#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <grpcpp/support/byte_buffer.h>

#include "proto/schedule.pb.h"
#include "server/delivery/arena.h"
#include "server/serve/pull/pull_session.h"
#include "tests/fuzz/seeds.h"

// The input is a sequence of client messages, each preceded by a byte with its
// length.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;  // NOLINT: one function
  static const ArenaIdentity* const arena = new ArenaIdentity{
      "/dev/shm/arena", 1 << 20, std::string(32, '0'), kSeedNonce};
  v1::Fingerprint fingerprint;
  fingerprint.set_hash(kSeedHash);
  PullSession session(fingerprint, arena);
  while (size > 0) {
    const size_t length = std::min<size_t>(data[0], size - 1);
    const grpc::Slice slice(data + 1, length);
    data += 1 + length;
    size -= 1 + length;
    const auto request = DecodeRequest(grpc::ByteBuffer(&slice, 1));
    if (!request.ok()) continue;
    const bool opened = session.open() != nullptr;
    const absl::Status status = session.OnRequest(*request);
    if (status.ok() && !opened && session.open() == nullptr) std::abort();
    // Nothing may be sent before the client has sent Open.
    if (session.open() == nullptr && session.NextMessage().has_value()) {
      std::abort();
    }
    while (session.NextMessage().has_value()) {
    }
    if (session.lent() != 0) std::abort();  // there was no block to lend
  }
  return 0;
}
