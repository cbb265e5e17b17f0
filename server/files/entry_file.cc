#include "server/files/entry_file.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "common/status_macros.h"
#include "server/files/span_checksum.h"

namespace ballast {
namespace {

// Ends with the version of the format.
constexpr char kEntryMagic[8] = {'B', 'L', 'S', 'T', 'S', 'P', 'A', '2'};

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
  std::memcpy(header.magic, kEntryMagic, sizeof(kEntryMagic));
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

std::vector<uint64_t> NextUses(
    absl::Span<const uint64_t> owners, uint64_t from, uint64_t end,
    absl::FunctionRef<void(uint64_t position, std::vector<uint64_t>* owners)>
        add_owners) {
  absl::flat_hash_map<uint64_t, uint64_t> first;
  first.reserve(owners.size());
  for (const uint64_t owner : owners) first.try_emplace(owner, kNeverUsed);
  size_t missing = first.size();
  std::vector<uint64_t> used;
  for (uint64_t at = from; at < end && missing > 0; ++at) {
    used.clear();
    add_owners(at, &used);
    for (const uint64_t owner : used) {
      const auto found = first.find(owner);
      if (found == first.end() || found->second != kNeverUsed) continue;
      found->second = at;
      --missing;
    }
  }
  std::vector<uint64_t> uses;
  uses.reserve(owners.size());
  for (const uint64_t owner : owners) uses.push_back(first[owner]);
  return uses;
}

std::vector<size_t> ChooseVictims(absl::Span<const CacheEntry> entries,
                                  uint64_t wanted, uint64_t spare,
                                  uint64_t needed_at) {
  std::vector<size_t> order;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].next_use > needed_at) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (entries[a].next_use != entries[b].next_use) {
      return entries[a].next_use > entries[b].next_use;
    }
    if (entries[a].bytes != entries[b].bytes) {
      return entries[a].bytes > entries[b].bytes;
    }
    return a < b;
  });
  uint64_t freed = 0;
  size_t count = 0;
  while (count < order.size() && freed < wanted + spare) {
    freed += entries[order[count++]].bytes;
  }
  if (freed < wanted) return {};
  order.resize(count);
  return order;
}

void KnownEntries::Update(uint64_t removals) {
  if (removals <= removals_) return;
  removals_ = removals;
  entries_.clear();
}

bool KnownEntries::Has(uint64_t entry, uint64_t removals) {
  MutexLock lock(&mutex_);
  Update(removals);
  return entries_.contains(entry);
}

void KnownEntries::Add(uint64_t entry, uint64_t removals) {
  MutexLock lock(&mutex_);
  Update(removals);
  if (removals < removals_) return;
  if (entries_.size() >= capacity_) entries_.clear();
  entries_.insert(entry);
}

void KnownEntries::Drop(uint64_t entry) {
  MutexLock lock(&mutex_);
  entries_.erase(entry);
}

std::list<EntryPool::Open> EntryPool::UpdateLocked(uint64_t removals) {
  std::list<Open> closed;
  if (removals <= removals_) return closed;
  removals_ = removals;
  places_.clear();
  closed.swap(open_);
  return closed;
}

std::shared_ptr<const EntryFile> EntryPool::Find(const SpanKey& key,
                                                 uint64_t removals) {
  std::list<Open> closed;  // after the lock
  MutexLock lock(&mutex_);
  closed = UpdateLocked(removals);
  const auto found = places_.find(key);
  if (found == places_.end()) return nullptr;
  open_.splice(open_.begin(), open_, found->second);
  return found->second->second;
}

void EntryPool::Put(const SpanKey& key, std::shared_ptr<const EntryFile> entry,
                    uint64_t removals) {
  if (entry->size() > kMaxBytes) return;
  std::list<Open> closed;  // after the lock
  MutexLock lock(&mutex_);
  closed = UpdateLocked(removals);
  if (removals < removals_ || places_.contains(key)) return;
  open_.emplace_front(key, std::move(entry));
  places_[key] = open_.begin();
  if (open_.size() <= capacity_) return;
  places_.erase(open_.back().first);
  closed.splice(closed.begin(), open_, std::prev(open_.end()));
}

void EntryPool::Drop(const SpanKey& key) {
  std::list<Open> closed;  // after the lock
  MutexLock lock(&mutex_);
  const auto found = places_.find(key);
  if (found == places_.end()) return;
  closed.splice(closed.begin(), open_, found->second);
  places_.erase(found);
}

void EntryPool::Update(uint64_t removals) {
  std::list<Open> closed;  // after the lock
  MutexLock lock(&mutex_);
  closed = UpdateLocked(removals);
}

void EntryPool::Clear() {
  std::list<Open> closed;  // after the lock
  MutexLock lock(&mutex_);
  places_.clear();
  closed.swap(open_);
}

size_t EntryPool::size() const {
  MutexLock lock(&mutex_);
  return open_.size();
}

}  // namespace ballast
