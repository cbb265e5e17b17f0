#ifndef BALLAST_PROTO_BLOCK_ARENA_LAYOUT_H_
#define BALLAST_PROTO_BLOCK_ARENA_LAYOUT_H_

#include <cstdint>

namespace ballast {

// The arena as bytes: a file that the server maps to write and clients map to
// read. A header, then anywhere at multiples of a page a stamp and the block
// that it belongs to. docs/block.md is its specification.
//
//   0        4096            ...   offset-256   offset
//   | header | ........ free ..... | stamp      | block .............. | free

inline constexpr uint64_t kArenaMagic = 0x414E524154534C42;  // "BLSTARNA"
inline constexpr uint32_t kArenaVersion = 1;

// Of an arena, its header included, and of the places of blocks.
inline constexpr uint64_t kArenaPage = 4096;
// From a stamp to its block.
inline constexpr uint64_t kArenaStampBytes = 256;

inline constexpr int kArenaIdDigits = 32;
inline constexpr int kArenaNonceBytes = 16;

struct ArenaHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t reserved;  // zero
  uint64_t bytes;     // of the file
  char id[kArenaIdDigits];
  // Random; known to those who can read the file, and sent nowhere but to the
  // server.
  uint8_t nonce[kArenaNonceBytes];
};
static_assert(sizeof(ArenaHeader) == 72);

// What lies before a block. The server sets it before the block is announced
// and clears it before the memory is used for anything else. Whoever has read a
// block and then still finds its generation has read that block and nothing
// else.
struct ArenaStamp {
  uint64_t generation;
};

#pragma GCC diagnostic push
// GCC says that TSan does not follow fences. It follows no two mappings of a
// file either, which is where these are needed.
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wtsan"

// Reader's side. To be called after the block has been read.
inline bool StampHolds(const ArenaStamp* stamp, uint64_t generation) {
  // What was read before must not be read after.
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return __atomic_load_n(&stamp->generation, __ATOMIC_RELAXED) == generation;
}

// Writer's side. To be called before the memory is written for another purpose.
inline void SetStamp(ArenaStamp* stamp, uint64_t generation) {
  __atomic_store_n(&stamp->generation, generation, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
}

#pragma GCC diagnostic pop

}  // namespace ballast

#endif  // BALLAST_PROTO_BLOCK_ARENA_LAYOUT_H_
