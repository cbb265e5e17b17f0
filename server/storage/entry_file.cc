#include "server/storage/entry_file.h"

#include <algorithm>
#include <cstring>

#include "common/status_macros.h"
#include "server/storage/span_checksum.h"

namespace ballast {
namespace {

// Ends with the version of the format.
constexpr char kMagic[8] = {'B', 'L', 'S', 'T', 'S', 'P', 'A', '2'};

// At the begin of the file.
struct Header {
  char magic[8];
  SpanKey key;
  uint64_t size;
};
static_assert(sizeof(Header) == 32);

constexpr uint64_t kBlock = EntryFile::kBlock;
// Checksums that are read at once: of 2 MiB.
constexpr uint64_t kChecksums = 512;
// Blocks that are read at once: they are still in the processor's cache when
// they are compared.
constexpr uint64_t kRun = 32;

uint64_t NumBlocks(uint64_t size) { return (size + kBlock - 1) / kBlock; }

// Where the bytes begin in the file.
uint64_t BytesBegin(uint64_t size) {
  return sizeof(Header) + NumBlocks(size) * sizeof(uint64_t);
}

Header HeaderOf(const SpanKey& key, uint64_t size) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.key = key;
  header.size = size;
  return header;
}

uint64_t BlockChecksum(const SpanKey& key, uint64_t number,
                       absl::string_view block) {
  // An odd factor, so that every block of an entry has another term.
  const uint64_t place = key.low + number * 0x9E3779B97F4A7C15u;
  return SpanChecksum(block) ^ place;
}

}  // namespace

uint64_t EntryFile::FileBytes(uint64_t size) { return BytesBegin(size) + size; }

std::string EntryFile::Head(const SpanKey& key, absl::string_view bytes) {
  const Header header = HeaderOf(key, bytes.size());
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

absl::StatusOr<std::unique_ptr<EntryFile>> EntryFile::Open(File file,
                                                           const SpanKey& key,
                                                           uint64_t size,
                                                           ReadFrom from) {
  std::unique_ptr<EntryFile> entry(
      new EntryFile(std::move(file), key, size, from));
  // The first checksums with the header, in one call.
  const uint64_t count = std::min(NumBlocks(size), kChecksums);
  std::string& head = entry->checksums_;
  head.resize(sizeof(Header) + count * sizeof(uint64_t));
  BALLAST_RETURN_IF_ERROR(entry->ReadFile(0, head.size(), head.data()));
  const Header wanted = HeaderOf(key, size);
  if (std::memcmp(head.data(), &wanted, sizeof(wanted)) != 0) {
    return absl::DataLossError("another header");
  }
  head.erase(0, sizeof(Header));
  return entry;
}

absl::Status EntryFile::ReadFile(uint64_t offset, uint64_t size,
                                 char* out) const {
  const absl::Status read = file_.ReadAt(offset, size, out, from_);
  if (read.ok() || absl::IsAborted(read)) return read;
  // Also if the disk fails: the store has the bytes.
  return absl::DataLossError(read.message());
}

uint64_t EntryFile::BlockBytes(uint64_t first, uint64_t count) const {
  return std::min((first + count) * kBlock, size_) - first * kBlock;
}

absl::StatusOr<uint64_t> EntryFile::ChecksumOf(uint64_t block) {
  constexpr uint64_t kSize = sizeof(uint64_t);
  if (block < first_checksum_ ||
      block - first_checksum_ >= checksums_.size() / kSize) {
    first_checksum_ = block / kChecksums * kChecksums;
    const uint64_t count =
        std::min(NumBlocks(size_) - first_checksum_, kChecksums);
    checksums_.resize(count * kSize);
    const absl::Status read = ReadFile(sizeof(Header) + first_checksum_ * kSize,
                                       count * kSize, checksums_.data());
    if (!read.ok()) {
      checksums_.clear();
      return read;
    }
  }
  uint64_t checksum = 0;
  std::memcpy(&checksum, &checksums_[(block - first_checksum_) * kSize], kSize);
  return checksum;
}

absl::Status EntryFile::ReadBlocks(uint64_t first, uint64_t count, char* out) {
  BALLAST_RETURN_IF_ERROR(ReadFile(BytesBegin(size_) + first * kBlock,
                                   BlockBytes(first, count), out));
  for (uint64_t number = first; number < first + count; ++number) {
    const uint64_t size = BlockBytes(number, 1);
    BALLAST_ASSIGN_OR_RETURN(const uint64_t wanted, ChecksumOf(number));
    if (BlockChecksum(key_, number, {out, size}) != wanted) {
      return absl::DataLossError("a block of another checksum");
    }
    out += size;
  }
  return absl::OkStatus();
}

absl::Status EntryFile::ReadAt(uint64_t offset, uint64_t size, char* out) {
  if (offset > size_ || size > size_ - offset) {
    return absl::InternalError("bytes outside of an entry of the cache");
  }
  while (size > 0) {
    const uint64_t number = offset / kBlock;
    const uint64_t within = offset % kBlock;
    const uint64_t length = BlockBytes(number, 1);
    uint64_t taken = 0;
    if (within == 0 && size >= length && block_number_ != number) {
      uint64_t count = std::clamp(size / kBlock, uint64_t{1}, kRun);
      taken = BlockBytes(number, count);
      BALLAST_RETURN_IF_ERROR(ReadBlocks(number, count, out));
    } else {
      if (block_number_ != number) {
        block_number_.reset();
        if (block_ == nullptr) {
          block_.reset(new char[std::min(kBlock, size_)]);
        }
        BALLAST_RETURN_IF_ERROR(ReadBlocks(number, 1, block_.get()));
        block_number_ = number;
      }
      taken = std::min(size, length - within);
      std::memcpy(out, block_.get() + within, taken);
    }
    offset += taken;
    size -= taken;
    out += taken;
  }
  return absl::OkStatus();
}

void EntryFile::ReadSoon(uint64_t offset, uint64_t size) const {
  file_.ReadSoon({BytesBegin(size_) + offset, size});
}

}  // namespace ballast
