#include "server/storage/entry_file.h"

#include <algorithm>
#include <cstring>

#include "common/status_macros.h"
#include "server/storage/span_checksum.h"

namespace ballast {
namespace {

// Ends with the version of the format.
constexpr char kMagic[8] = {'B', 'L', 'S', 'T', 'S', 'P', 'A', '2'};

// At the beginning of the file.
struct Header {
  char magic[8];
  SpanKey key;
  uint64_t size;
};
static_assert(sizeof(Header) == 32);

constexpr uint64_t kBlock = EntryFile::kBlock;
// Checksums that are read together: for 2 MiB.
constexpr uint64_t kChecksums = 512;
// Blocks that are read together: they are still in the processor's cache when
// they are compared.
constexpr uint64_t kRun = 32;

uint64_t NumBlocks(uint64_t size) { return (size + kBlock - 1) / kBlock; }

// The place in the file where the bytes begin.
uint64_t BytesBegin(uint64_t size) {
  return sizeof(Header) + NumBlocks(size) * sizeof(uint64_t);
}

Header GetHeader(const SpanKey& key, uint64_t size) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.key = key;
  header.size = size;
  return header;
}

uint64_t BlockChecksum(const SpanKey& key, uint64_t number,
                       absl::string_view block) {
  // An odd factor, so that every block of an entry has a different term.
  const uint64_t place = key.low + number * 0x9E3779B97F4A7C15u;
  return SpanChecksum(block) ^ place;
}

}  // namespace

uint64_t EntryFile::FileBytes(uint64_t size) { return BytesBegin(size) + size; }

std::string EntryFile::Head(const SpanKey& key, absl::string_view bytes) {
  const Header header = GetHeader(key, bytes.size());
  std::string head(BytesBegin(bytes.size()), '\0');
  std::memcpy(head.data(), &header, sizeof(header));
  char* to = head.data() + sizeof(header);
  for (uint64_t number = 0; number < NumBlocks(bytes.size()); ++number) {
    const uint64_t checksum =
        BlockChecksum(key, number, bytes.substr(number * kBlock, kBlock));
    std::memcpy(to, &checksum, sizeof(checksum));
    to += sizeof(checksum);
  }
  return head;
}

absl::StatusOr<std::shared_ptr<const EntryFile>> EntryFile::Open(
    File file, const SpanKey& key, uint64_t size, ReadFrom from) {
  std::shared_ptr<EntryFile> entry(new EntryFile(std::move(file), key, size));
  // The first checksums with the header, in one call.
  const uint64_t count = std::min(NumBlocks(size), kChecksums);
  std::string& head = entry->checksums_;
  head.resize(sizeof(Header) + count * sizeof(uint64_t));
  BALLAST_RETURN_IF_ERROR(entry->Read(0, head.size(), head.data(), from));
  const Header wanted = GetHeader(key, size);
  if (std::memcmp(head.data(), &wanted, sizeof(wanted)) != 0) {
    return absl::DataLossError("another header");
  }
  head.erase(0, sizeof(Header));
  return entry;
}

absl::Status EntryFile::Read(uint64_t offset, uint64_t size, char* out,
                             ReadFrom from) const {
  const absl::Status read = file_.ReadAt(offset, size, out, from);
  if (read.ok() || absl::IsAborted(read)) return read;
  // Also if the disk fails: the bytes are still in the store.
  return absl::DataLossError(read.message());
}

uint64_t EntryFile::BlockBytes(uint64_t first, uint64_t count) const {
  return std::min((first + count) * kBlock, size_) - first * kBlock;
}

absl::StatusOr<uint64_t> EntryReader::GetChecksum(uint64_t block) {
  constexpr uint64_t kSize = sizeof(uint64_t);
  uint64_t checksum = 0;
  if (block < kChecksums) {
    std::memcpy(&checksum, &file_->checksums_[block * kSize], kSize);
    return checksum;
  }
  if (block < first_checksum_ ||
      block - first_checksum_ >= checksums_.size() / kSize) {
    first_checksum_ = block / kChecksums * kChecksums;
    const uint64_t count =
        std::min(NumBlocks(file_->size_) - first_checksum_, kChecksums);
    checksums_.resize(count * kSize);
    const absl::Status read =
        file_->Read(sizeof(Header) + first_checksum_ * kSize, count * kSize,
                    checksums_.data(), from_);
    if (!read.ok()) {
      checksums_.clear();
      return read;
    }
  }
  std::memcpy(&checksum, &checksums_[(block - first_checksum_) * kSize], kSize);
  return checksum;
}

absl::Status EntryReader::ReadBlocks(uint64_t first, uint64_t count,
                                     char* out) {
  BALLAST_RETURN_IF_ERROR(file_->Read(BytesBegin(file_->size_) + first * kBlock,
                                      file_->BlockBytes(first, count), out,
                                      from_));
  for (uint64_t number = first; number < first + count; ++number) {
    const uint64_t size = file_->BlockBytes(number, 1);
    BALLAST_ASSIGN_OR_RETURN(const uint64_t wanted, GetChecksum(number));
    if (BlockChecksum(file_->key_, number, {out, size}) != wanted) {
      return absl::DataLossError("a block of another checksum");
    }
    out += size;
  }
  return absl::OkStatus();
}

const char* EntryReader::FindKept(uint64_t number) const {
  for (const KeptBlock& block : kept_) {
    if (block.number == number) return block.bytes.get();
  }
  return nullptr;
}

absl::StatusOr<const char*> EntryReader::Keep(uint64_t number) {
  KeptBlock& block = kept_[oldest_];
  block.number.reset();
  if (block.bytes == nullptr) {
    block.bytes.reset(new char[std::min(kBlock, file_->size_)]);
  }
  BALLAST_RETURN_IF_ERROR(ReadBlocks(number, 1, block.bytes.get()));
  block.number = number;
  oldest_ = (oldest_ + 1) % kKept;
  return block.bytes.get();
}

absl::Status EntryReader::ReadAt(uint64_t offset, uint64_t size, char* out) {
  if (offset > file_->size_ || size > file_->size_ - offset) {
    return absl::InternalError("bytes outside of an entry of the cache");
  }
  while (size > 0) {
    const uint64_t number = offset / kBlock;
    const uint64_t within = offset % kBlock;
    const uint64_t length = file_->BlockBytes(number, 1);
    const char* block = FindKept(number);
    uint64_t taken = 0;
    if (within == 0 && size >= length && block == nullptr) {
      uint64_t count = std::clamp(size / kBlock, uint64_t{1}, kRun);
      taken = file_->BlockBytes(number, count);
      BALLAST_RETURN_IF_ERROR(ReadBlocks(number, count, out));
    } else {
      if (block == nullptr) {
        BALLAST_ASSIGN_OR_RETURN(block, Keep(number));
      }
      taken = std::min(size, length - within);
      std::memcpy(out, block + within, taken);
    }
    offset += taken;
    size -= taken;
    out += taken;
  }
  return absl::OkStatus();
}

void EntryReader::ReadSoon(uint64_t offset, uint64_t size) const {
  file_->file_.ReadSoon({BytesBegin(file_->size_) + offset, size});
}

}  // namespace ballast
