#include "client/batch_fetcher.h"

#include <cstring>

#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "proto/transport.h"

namespace ballast {

BlockAssembler::BlockAssembler(uint64_t max_block_bytes, BufferPool* pool)
    : max_block_bytes_(max_block_bytes),
      pool_(pool),
      hash_(XXH3_createState()) {}

BlockAssembler::~BlockAssembler() {
  if (in_block_ || complete_) pool_->Return(std::move(block_.buffer));
}

absl::Status BlockAssembler::Begin(const v1::PullResponse::Begin& begin,
                                   uint64_t allowance) {
  const std::string name =
      absl::StrCat("step ", begin.step(), " micro-batch ", begin.micro_batch());
  if (in_block_) {
    return absl::InternalError(
        absl::StrCat("the server began ", name, " within ", Describe()));
  }
  if (begin.bytes() == 0 || begin.bytes() > max_block_bytes_) {
    return absl::InternalError(
        absl::StrCat("the server announced ", begin.bytes(), " bytes for ",
                     name, ", wanted 1 to ", max_block_bytes_));
  }
  if (begin.bytes() > allowance) {
    return absl::InternalError(
        absl::StrCat("the server began ", name, " of ", begin.bytes(),
                     " bytes without the credit for it, which is ", allowance));
  }
  absl::StatusOr<BufferPool::Buffer> buffer = pool_->Take(begin.bytes());
  if (!buffer.ok()) return Annotate(buffer.status(), name);
  block_ = {begin.step(), begin.micro_batch(), begin.bytes(),
            *std::move(buffer)};
  checksum_ = begin.checksum();
  filled_ = 0;
  in_block_ = true;
  XXH3_64bits_reset(hash_.get());
  return absl::OkStatus();
}

absl::Status BlockAssembler::AddChunk(
    absl::Span<const absl::Span<const uint8_t>> pieces) {
  if (!in_block_) {
    return absl::InternalError("the server sent a chunk before any block");
  }
  uint64_t size = 0;
  for (const absl::Span<const uint8_t> piece : pieces) size += piece.size();
  if (size == 0 || size > kMaxChunkBytes) {
    return absl::InternalError(absl::StrCat("the server sent a chunk of ", size,
                                            " bytes in ", Describe(),
                                            ", wanted 1 to ", kMaxChunkBytes));
  }
  if (size > block_.bytes - filled_) {
    return absl::InternalError(absl::StrCat("the server sent a chunk of ", size,
                                            " bytes in ", Describe(),
                                            ", which is too many"));
  }
  for (const absl::Span<const uint8_t> piece : pieces) {
    if (piece.empty()) continue;
    std::memcpy(block_.buffer.bytes.data() + filled_, piece.data(),
                piece.size());
    XXH3_64bits_update(hash_.get(), piece.data(), piece.size());
    filled_ += piece.size();
  }
  if (filled_ < block_.bytes) return absl::OkStatus();

  const uint64_t checksum = XXH3_64bits_digest(hash_.get());
  if (checksum != checksum_) {
    return absl::DataLossError(absl::StrFormat(
        "%s has checksum %016x, wanted %016x: it was damaged on its way",
        Describe(), checksum, checksum_));
  }
  in_block_ = false;
  complete_ = true;
  return absl::OkStatus();
}

AssembledBlock BlockAssembler::Take() {
  complete_ = false;
  return std::move(block_);
}

std::string BlockAssembler::Describe() const {
  return absl::StrCat("step ", block_.step, " micro-batch ", block_.micro_batch,
                      ", byte ", filled_, " of ", block_.bytes);
}

absl::Status OverwriteCount::Note(const FetchedBlock& block) {
  if (!status_.ok()) return status_;
  const std::pair<uint64_t, uint32_t> id(block.step(), block.micro_batch());
  count_ = last_ == id ? count_ + 1 : 1;
  last_ = id;
  if (count_ == kMaxFetches) status_ = CheckIntact(block);
  return status_;
}

}  // namespace ballast
