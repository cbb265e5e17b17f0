#ifndef BALLAST_TESTS_FAKES_TINY_BLOCK_H_
#define BALLAST_TESTS_FAKES_TINY_BLOCK_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "proto/block/block_layout.h"

namespace ballast {

// A block of `bytes` bytes (at least a header's) with a valid header and no
// sample, which is all that a stream of blocks looks at. Every byte after the
// header is `fill`.
inline std::vector<uint8_t> TinyBlock(uint64_t step, uint32_t micro_batch,
                                      uint32_t micro_batches, size_t bytes,
                                      uint8_t fill = 0) {
  BlockHeader header = {};
  header.magic = kBlockMagic;
  header.version = kBlockVersion;
  header.step = step;
  header.micro_batch = micro_batch;
  header.micro_batches = micro_batches;
  header.sample_table = header.image_table = header.payload = sizeof(header);
  header.total_bytes = bytes;
  std::vector<uint8_t> block(bytes, fill);
  std::memcpy(block.data(), &header, sizeof(header));
  return block;
}

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_TINY_BLOCK_H_
