#include "client/buffer_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kMaxBytes = uint64_t{1} << 40;

uint64_t RegionBytes(uint64_t wanted) {
  return AlignUp(std::min(wanted, kMaxBytes), kPage);
}

}  // namespace

class BufferPool::Region final : public MemoryRegion {
 public:
  // Null if the system refuses to map the memory.
  static std::shared_ptr<const Region> Map(uint64_t bytes) {
    // Extra space, so that the region can begin at a huge page.
    const uint64_t mapped = bytes + kHugePage;
    void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    const auto first = reinterpret_cast<uintptr_t>(mapping);
    const uint64_t skipped = AlignUp(uint64_t{first}, kHugePage) - first;
    auto* const base = static_cast<uint8_t*>(mapping) + skipped;
    // One page fault per 2 MiB instead of 512, if the system has huge pages;
    // harmless if not.
    madvise(base, bytes, MADV_HUGEPAGE);
    return std::shared_ptr<const Region>(
        new Region({mapping, mapped}, base, bytes));
  }
  ~Region() override { munmap(mapping_.first, mapping_.second); }

  absl::Span<const uint8_t> bytes() const override { return {base_, bytes_}; }
  bool read_only() const override { return false; }
  uint8_t* base() const { return base_; }

 private:
  using Mapping = std::pair<void*, uint64_t>;
  Region(Mapping mapping, uint8_t* base, uint64_t bytes)
      : mapping_(mapping), base_(base), bytes_(bytes) {}

  const Mapping mapping_;
  uint8_t* const base_;
  const uint64_t bytes_;
};

BufferPool::BufferPool(uint64_t region_bytes)
    : places_(0, RegionBytes(region_bytes)),
      region_bytes_(RegionBytes(region_bytes)) {}

absl::StatusOr<BufferPool::Buffer> BufferPool::Take(uint64_t bytes) {
  Buffer buffer;
  if (bytes <= region_bytes_) {
    MutexLock lock(&mutex_);
    if (!std::exchange(tried_, true)) region_ = Region::Map(region_bytes_);
    const std::optional<uint64_t> place =
        region_ == nullptr
            ? std::nullopt
            : places_.Allocate(AlignUp(std::max<uint64_t>(bytes, 1), kPage));
    if (place.has_value()) {
      buffer.bytes = {region_->base() + *place, bytes};
      return buffer;
    }
  }
  BALLAST_ASSIGN_OR_RETURN(buffer.own, AlignedBuffer::Create(bytes));
  buffer.bytes = buffer.own.bytes();
  return buffer;
}

void BufferPool::Return(Buffer buffer) {
  if (GetRegion(buffer) == nullptr) return;
  MutexLock lock(&mutex_);
  places_.Free(buffer.bytes.data() - region_->base());
}

std::shared_ptr<const MemoryRegion> BufferPool::GetRegion(
    const Buffer& buffer) const {
  if (buffer.bytes.data() == nullptr || buffer.own.size() != 0) return nullptr;
  MutexLock lock(&mutex_);
  return region_;
}

BufferPools::BufferPools() : idle_(std::make_shared<Idle>()) {}

std::shared_ptr<BufferPool> BufferPools::Take(uint64_t region_bytes) {
  std::unique_ptr<BufferPool> pool;
  {
    MutexLock lock(&idle_->mutex);
    auto& pools = idle_->pools;
    const auto found =
        std::find_if(pools.begin(), pools.end(), [&](const auto& idle) {
          return idle->region_bytes() == RegionBytes(region_bytes);
        });
    if (found != pools.end()) {
      pool = std::move(*found);
      pools.erase(found);
    }
  }
  if (pool == nullptr) pool = std::make_unique<BufferPool>(region_bytes);
  return {pool.release(), [weak = std::weak_ptr<Idle>(idle_)](BufferPool* p) {
            std::unique_ptr<BufferPool> back(p);
            std::unique_ptr<BufferPool> oldest;  // destroyed outside the lock
            const std::shared_ptr<Idle> idle = weak.lock();
            if (idle == nullptr) return;
            MutexLock lock(&idle->mutex);
            idle->pools.push_back(std::move(back));
            if (idle->pools.size() <= kMaxIdle) return;
            oldest = std::move(idle->pools.front());
            idle->pools.pop_front();
          }};
}

HeldBytes::Share::Share(std::shared_ptr<HeldBytes> account, uint64_t fetcher,
                        uint64_t bytes)
    : account_(std::move(account)), fetcher_(fetcher), bytes_(bytes) {
  MutexLock lock(&account_->mutex_);
  account_->held_ += bytes_;
  if (fetcher_ == account_->fetcher_) account_->held_of_fetcher_ += bytes_;
  account_->largest_block_ = std::max(account_->largest_block_, bytes_);
}

void HeldBytes::Share::Release() {
  const std::shared_ptr<HeldBytes> account = std::move(account_);
  if (account == nullptr) return;
  MutexLock lock(&account->mutex_);
  account->held_ -= bytes_;
  if (fetcher_ == account->fetcher_) account->held_of_fetcher_ -= bytes_;
  account->changed_.NotifyAll();
}

uint64_t HeldBytes::NextFetcher() {
  MutexLock lock(&mutex_);
  held_of_fetcher_ = 0;
  return ++fetcher_;
}

uint64_t HeldBytes::Allowance() {
  MutexLock lock(&mutex_);
  return AllowanceLocked();
}

bool HeldBytes::MaySend() {
  MutexLock lock(&mutex_);
  return largest_block_ <= AllowanceLocked();
}

bool HeldBytes::AwaitRoom() {
  MutexLock lock(&mutex_);
  while (!cancelled_ && held_ != held_of_fetcher_ && held_ >= max_bytes_) {
    changed_.Wait(&mutex_);
  }
  return !cancelled_;
}

void HeldBytes::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  changed_.NotifyAll();
}

uint64_t HeldBytes::AllowanceLocked() const {
  if (held_of_fetcher_ == 0) return UINT64_MAX;
  return held_of_fetcher_ < max_bytes_ ? max_bytes_ - held_of_fetcher_ : 0;
}

namespace {

absl::Status OpenError(const std::string& path) {
  const int error = errno;
  const std::string message =
      absl::StrCat("cannot open ", path, ": ", strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(absl::StrCat(
          message,
          " (the server is on another machine, or its directory is not mounted "
          "here at the same path: see serve.arena)"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          absl::StrCat(message, " (wanted: the server's user, or its group)"));
  }
  return absl::UnavailableError(message);
}

absl::Status SomethingElse(const std::string& path, absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is not the server's arena: ", what,
                   " (is the server on another machine?)"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ArenaMapping>> ArenaMapping::Open(
    const std::string& path, uint64_t bytes, const std::string& id) {
  // Checked before opening: opening some devices has effects.
  struct stat file;
  if (lstat(path.c_str(), &file) != 0) return OpenError(path);
  if (!S_ISREG(file.st_mode)) return SomethingElse(path, "it is no file");
  const int descriptor =
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return OpenError(path);
  const absl::Cleanup close_it = [descriptor] { close(descriptor); };
  if (fstat(descriptor, &file) != 0) return OpenError(path);
  if (!S_ISREG(file.st_mode) || file.st_size < 0 ||
      static_cast<uint64_t>(file.st_size) != bytes || bytes < kArenaPage) {
    return SomethingElse(
        path, absl::StrCat("it has ", file.st_size, " bytes, wanted ", bytes));
  }
  void* base =
      mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, /*offset=*/0);
  if (base == MAP_FAILED) {
    return absl::UnavailableError(
        absl::StrCat("cannot map ", path, ": ", strerror(errno)));
  }
  std::shared_ptr<ArenaMapping> mapping(new ArenaMapping);
  mapping->base_ = static_cast<const uint8_t*>(base);
  mapping->bytes_ = bytes;
  ArenaHeader header;
  std::memcpy(&header, base, sizeof(header));
  mapping->id_.assign(header.id, sizeof(header.id));
  mapping->nonce_.assign(reinterpret_cast<const char*>(header.nonce),
                         sizeof(header.nonce));
  if (header.magic != kArenaMagic || header.version != kArenaVersion ||
      header.bytes != bytes) {
    return SomethingElse(path, "its header is no arena's of this version");
  }
  if (mapping->id_ != id) return SomethingElse(path, "it has another id");
  return mapping;
}

ArenaMapping::~ArenaMapping() {
  if (base_ != nullptr) munmap(const_cast<uint8_t*>(base_), bytes_);
}

absl::StatusOr<absl::Span<const uint8_t>> ArenaMapping::Block(
    uint64_t offset, uint64_t bytes) const {
  if (offset % kArenaStampBytes != 0 || offset > bytes_ ||
      offset < kArenaPage + kArenaStampBytes || bytes == 0 ||
      bytes > bytes_ - offset) {
    return absl::InternalError(absl::StrCat("the server placed ", bytes,
                                            " bytes at ", offset,
                                            " of an arena of ", bytes_));
  }
  return this->bytes().subspan(offset, bytes);
}

std::shared_ptr<const ArenaMapping> ArenaCache::Get(const std::string& server,
                                                    const std::string& path,
                                                    uint64_t bytes,
                                                    const std::string& id) {
  MutexLock lock(&mutex_);
  std::shared_ptr<const ArenaMapping> mapping = mapping_.lock();
  if (mapping != nullptr && mapping->id() == id) return mapping;
  absl::StatusOr<std::shared_ptr<const ArenaMapping>> opened =
      ArenaMapping::Open(path, bytes, id);
  if (opened.ok()) {
    mapping_ = *opened;
    return *std::move(opened);
  }
  if (std::exchange(failed_id_, id) != id) {
    LogInfo(server, ": blocks come over the stream and not in shared memory: ",
            opened.status().message());
  }
  return nullptr;
}

}  // namespace ballast
