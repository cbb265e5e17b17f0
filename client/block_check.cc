#include "client/block_check.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "proto/block/block_view.h"
#include "proto/schedule/split.h"

namespace ballast {

std::string DescribeBlock(uint64_t step, uint32_t micro_batch) {
  return absl::StrCat("step ", step, " micro-batch ", micro_batch);
}

absl::StatusOr<uint32_t> CheckBlockHeader(const FetchedBlock& block,
                                          const FetchRequest& wanted,
                                          absl::string_view where) {
  const absl::StatusOr<BlockHeader> header = ReadBlockHeader(block.bytes());
  if (!header.ok()) {
    BALLAST_RETURN_IF_ERROR(CheckIntact(block));
    return absl::InternalError(
        absl::StrCat(where, ": ", header.status().message(),
                     "; is the server of another version?"));
  }
  if (header->step != wanted.step ||
      header->micro_batch != wanted.micro_batch ||
      header->micro_batches <= header->micro_batch) {
    return absl::InternalError(absl::StrCat(
        where, ": the block's header says ",
        DescribeBlock(header->step, header->micro_batch), " of ",
        header->micro_batches, " micro-batches; the server is at fault"));
  }
  const auto split = static_cast<v1::Split>(header->split);
  if (split != wanted.role.split()) {
    return absl::InternalError(absl::StrCat(
        where, ": the block's header says split ", SplitName(split),
        ", wanted ", SplitName(wanted.role.split())));
  }
  return header->micro_batches;
}

}  // namespace ballast
