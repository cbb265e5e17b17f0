#include "server/media/image/row_sink.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/sample/data_fault.h"

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

absl::Status OrientingSink::Begin(uint32_t width, uint32_t height) {
  width_ = width;
  height_ = height;
  done_ = 0;
  pixels_ = arena_->AllocateArray<uint8_t>(uint64_t{width} * height * 3);
  if (pixels_ == nullptr) {
    return arena_->Refusal(
        absl::StrCat("turning ", width, "x", height, " pixels as EXIF says"));
  }
  next_row_ = pixels_;
  return SwapsSides(orientation_) ? sink_->Begin(height, width)
                                  : sink_->Begin(width, height);
}

absl::Span<uint8_t* const> OrientingSink::NextRows() {
  return {&next_row_, done_ < height_ ? 1u : 0u};
}

void OrientingSink::RowsDone(size_t count) {
  done_ += count;
  next_row_ += count * width_ * 3;
}

absl::Status OrientingSink::Finish() {
  const uint32_t rows = SwapsSides(orientation_) ? width_ : height_;
  for (uint32_t y = 0; y < rows; ++y) {
    WriteRow(y, sink_->NextRows()[0]);
    sink_->RowsDone(1);
  }
  return sink_->Finish();
}

// Writes row `y` of the turned image: steps from its first pixel through the
// stored image along a row or a column, forwards or backwards.
void OrientingSink::WriteRow(uint32_t y, uint8_t* out) const {
  const bool swaps = SwapsSides(orientation_);
  const Orientation o = orientation_;
  const bool from_right = o == 2 || o == 3 || o == 7 || o == 8;
  const bool from_bottom = o == 3 || o == 4 || o == 6 || o == 7;
  const size_t along = swaps ? height_ : width_;
  const size_t x0 =
      swaps ? (from_right ? width_ - 1 - y : y) : (from_right ? width_ - 1 : 0);
  const size_t y0 = swaps ? (from_bottom ? height_ - 1 : 0)
                          : (from_bottom ? height_ - 1 - y : y);
  const ptrdiff_t stride = ptrdiff_t{3} * width_;
  const ptrdiff_t step =
      swaps ? (from_bottom ? -stride : stride) : (from_right ? -3 : 3);
  const uint8_t* from = pixels_ + y0 * stride + x0 * 3;
  for (size_t i = 0; i < along; ++i, out += 3) {
    std::memcpy(out, from + static_cast<ptrdiff_t>(i) * step, 3);
  }
}

}  // namespace ballast
