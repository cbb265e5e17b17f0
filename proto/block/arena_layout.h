#ifndef BALLAST_PROTO_BLOCK_ARENA_LAYOUT_H_
#define BALLAST_PROTO_BLOCK_ARENA_LAYOUT_H_

#include <cstdint>

namespace ballast {

// The arena as bytes: a file that the server maps to write and clients map to
// read. A header, then blocks at multiples of a page, each after its stamp.
// docs/block.md is its specification.
//
//   0        4096            ...   offset-256   offset
//   | header | ........ free ..... | stamp      | block .............. | free

inline constexpr uint64_t kArenaMagic = 0x414E524154534C42;  // "BLSTARNA"
inline constexpr uint32_t kArenaVersion = 1;

// Alignment of blocks in an arena; its size and header are multiples of it.
inline constexpr uint64_t kArenaPage = 4096;
// Distance from a stamp to its block.
inline constexpr uint64_t kArenaStampBytes = 256;

inline constexpr int kArenaIdDigits = 32;
inline constexpr int kArenaNonceBytes = 16;

struct ArenaHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t reserved;  // zero
  uint64_t bytes;     // the file's size
  char id[kArenaIdDigits];
  // Random. Only processes that can read the file know it; they send it to the
  // server alone.
  uint8_t nonce[kArenaNonceBytes];
};
static_assert(sizeof(ArenaHeader) == 72);

// Precedes a block. The server sets it before it announces the block and clears
// it before it reuses the memory. A reader that still finds the same generation
// after reading has read that block and nothing else.
struct ArenaStamp {
  uint64_t generation;
};

#pragma GCC diagnostic push
// GCC warns that TSan does not follow fences. These fences order accesses
// through two mappings of one file, which TSan does not follow anyway.
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wtsan"

// Reader's side. Call after the block has been read.
inline bool StampHolds(const ArenaStamp* stamp, uint64_t generation) {
  // Reads before the fence must not move after it.
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return __atomic_load_n(&stamp->generation, __ATOMIC_RELAXED) == generation;
}

// Writer's side. Call before the memory is reused.
inline void SetStamp(ArenaStamp* stamp, uint64_t generation) {
  __atomic_store_n(&stamp->generation, generation, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
}

#pragma GCC diagnostic pop

}  // namespace ballast

#endif  // BALLAST_PROTO_BLOCK_ARENA_LAYOUT_H_
