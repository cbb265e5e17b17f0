#include "server/image/scratch_arena.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/corpus/data_fault.h"

namespace ballast {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kSmallestBlock = uint64_t{64} << 10;

}  // namespace

void ScratchArena::Free::operator()(uint8_t* memory) const {
  ::operator delete (memory, std::align_val_t{kAlignment});
}

void* ScratchArena::Allocate(uint64_t bytes) {
  if (bytes > limit_ - std::min(used_, limit_)) return nullptr;
  bytes =
      (std::max<uint64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  if (blocks_.empty() || blocks_.back().size - blocks_.back().used < bytes) {
    if (!AddBlock(std::max(bytes, kSmallestBlock))) return nullptr;
  }
  Block& block = blocks_.back();
  void* piece = block.memory.get() + block.used;
  block.used += bytes;
  used_ += bytes;
  return piece;
}

bool ScratchArena::AddBlock(uint64_t size) {
  void* memory =
      ::operator new (size, std::align_val_t{kAlignment}, std::nothrow);
  if (memory == nullptr) {
    is_system_out_ = true;
    return false;
  }
  ++system_allocations_;
  Block block;
  block.memory.reset(static_cast<uint8_t*>(memory));
  block.size = size;
  blocks_.push_back(std::move(block));
  return true;
}

absl::Status ScratchArena::Refusal(absl::string_view work) const {
  if (is_system_out_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(work, ": the machine is out of memory"));
  }
  return DataFaultError(absl::StrCat(work, " needs more than the ", limit_,
                                     " bytes of memory that it may take"));
}

void ScratchArena::Reset() {
  const uint64_t wanted = used_;
  used_ = 0;
  is_system_out_ = false;
  if (blocks_.size() == 1 && blocks_[0].size <= keep_) {
    blocks_[0].used = 0;
    return;
  }
  // Replaces several blocks by one that would have been enough for this image.
  blocks_.clear();
  if (wanted > 0 && wanted <= keep_) {
    AddBlock(std::max(wanted, kSmallestBlock));
  }
}

uint64_t ScratchArena::held() const {
  uint64_t held = 0;
  for (const Block& block : blocks_) held += block.size;
  return held;
}

}  // namespace ballast
