#include "server/files/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/log.h"
#include "common/machine.h"
#include "common/status_macros.h"
#include "server/files/file.h"

namespace ballast {
namespace {

// In the file DIR/usage.
constexpr char kMagic[8] = {'B', 'L', 'S', 'T', 'S', 'P', 'A', '1'};
constexpr char kUnfinished[] = "new-";
// Follows the names of entries: the version of their format (entry_file.h).
// Names of the first version had no suffix.
constexpr char kFormat[] = "2";
// Bytes of the header of an entry of the first version.
constexpr uint64_t kFirstHeader = 40;
// Limit of known entries; they take ten megabytes.
constexpr size_t kMaxKnown = size_t{1} << 19;

// A file descriptor that is closed by the destructor.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int operator*() const { return number_; }

 private:
  const int number_;
};

bool WriteAll(int file, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

size_t PoolCapacity() {
  return std::clamp<uint64_t>(RaiseDescriptorLimit() / 4, 1,
                              DiskCache::kMaxOpen);
}

// The name of an entry in KnownEntries.
uint64_t NameHash(const SpanKey& key, uint64_t owner) {
  return key.low ^ owner * 0x9E3779B97F4A7C15u;
}

absl::Status CacheError(int number, absl::string_view action,
                        const std::string& path) {
  return Annotate(FileError(number, action, path), "storage.cache.dir");
}

}  // namespace

// The mapped file DIR/usage.
struct DiskCache::Usage {
  char magic[8];
  std::atomic<uint64_t> bytes;
};

// The mapped file DIR/removals.
struct DiskCache::Removals {
  std::atomic<uint64_t> count;
};

DiskCache::DiskCache(std::string dir, uint64_t size, StorageCounters* counters)
    : dir_(std::move(dir)),
      size_(size),
      counters_(counters),
      pool_(std::make_unique<EntryPool>(PoolCapacity())),
      known_(std::make_unique<KnownEntries>(kMaxKnown)) {}

absl::StatusOr<std::shared_ptr<DiskCache>> DiskCache::Open(
    const std::string& dir, uint64_t size, StorageCounters* counters) {
  std::shared_ptr<DiskCache> cache(new DiskCache(dir, size, counters));
  BALLAST_RETURN_IF_ERROR(cache->Prepare());
  return cache;
}

absl::Status DiskCache::Prepare() {
  std::error_code error;
  std::filesystem::create_directories(dir_, error);
  if (error) return CacheError(error.value(), "make the folder", dir_);
  const auto open_file = [&](const char* name, int* descriptor) {
    const std::string path = absl::StrCat(dir_, "/", name);
    *descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    return *descriptor >= 0 ? absl::OkStatus()
                            : CacheError(errno, "open", path);
  };
  BALLAST_RETURN_IF_ERROR(open_file("lock", &lock_));
  BALLAST_RETURN_IF_ERROR(open_file("evict", &evict_));
  folder_ = open(dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_ < 0) return CacheError(errno, "open", dir_);
  if (!OpensAlone(folder_)) {
    close(folder_);
    folder_ = -1;
  }
  int usage = -1;
  BALLAST_RETURN_IF_ERROR(open_file("usage", &usage));
  const Descriptor closes_usage(usage);
  const bool alone = flock(lock_, LOCK_EX | LOCK_NB) == 0;
  // Other processes hold it shared; while one counts the entries, this waits
  // for it.
  if (!alone && flock(lock_, LOCK_SH) != 0) {
    return CacheError(errno, "lock", absl::StrCat(dir_, "/lock"));
  }
  struct stat info;
  if (fstat(usage, &info) != 0) return CacheError(errno, "stat", dir_);
  if (info.st_size != 0 && info.st_size != sizeof(Usage)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "storage.cache.dir: ", dir_,
        " holds files of another program or version; wanted a folder of its "
        "own"));
  }
  // A write to a page that a full disk has no block for would be a SIGBUS.
  const auto map_file = [&](int file, size_t bytes, auto** mapped) {
    if (const int error = posix_fallocate(file, 0, bytes); error != 0) {
      return CacheError(error, "write", dir_);
    }
    void* const found =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (found == MAP_FAILED) return CacheError(errno, "map", dir_);
    *mapped = static_cast<std::remove_reference_t<decltype(*mapped)>>(found);
    return absl::OkStatus();
  };
  BALLAST_RETURN_IF_ERROR(map_file(usage, sizeof(Usage), &usage_));
  int removals = -1;
  BALLAST_RETURN_IF_ERROR(open_file("removals", &removals));
  const Descriptor closes_removals(removals);
  BALLAST_RETURN_IF_ERROR(map_file(removals, sizeof(Removals), &removals_));
  if (!alone) return absl::OkStatus();
  for (int i = 0; i < 256; ++i) {
    std::filesystem::create_directory(
        absl::StrCat(dir_, "/", absl::StrFormat("%02x", i)), error);
    if (error) return CacheError(error.value(), "make a folder in", dir_);
  }
  uint64_t bytes = 0;
  for (const Listed& entry : List(/*clean=*/true)) {
    bytes += entry.bytes;
  }
  std::memcpy(usage_->magic, kMagic, sizeof(kMagic));
  usage_->bytes.store(bytes, std::memory_order_relaxed);
  if (flock(lock_, LOCK_SH) != 0) {
    return CacheError(errno, "lock", absl::StrCat(dir_, "/lock"));
  }
  return absl::OkStatus();
}

DiskCache::~DiskCache() {
  if (usage_ != nullptr) munmap(usage_, sizeof(Usage));
  if (removals_ != nullptr) munmap(removals_, sizeof(Removals));
  if (folder_ >= 0) close(folder_);
  if (evict_ >= 0) close(evict_);
  if (lock_ >= 0) close(lock_);
}

std::vector<DiskCache::Listed> DiskCache::List(bool clean) const {
  std::vector<Listed> entries;
  for (int i = 0; i < 256; ++i) {
    const std::string folder =
        absl::StrCat(dir_, "/", absl::StrFormat("%02x", i));
    DIR* const open = opendir(folder.c_str());
    if (open == nullptr) continue;
    while (const dirent* entry = readdir(open)) {
      const absl::string_view name = entry->d_name;
      const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
      Listed listed;
      listed.path = absl::StrCat(folder, "/", name);
      uint64_t size = 0;
      const bool is_entry = parts.size() >= 3 && parts[0].size() == 32 &&
                            absl::SimpleHexAtoi(parts[1], &listed.owner) &&
                            absl::SimpleAtoi(parts[2], &size);
      const bool is_ours = parts.size() == 4 && parts[3] == kFormat;
      if (clean &&
          ((is_entry && !is_ours) || absl::StartsWith(name, kUnfinished))) {
        unlink(listed.path.c_str());
      } else if (is_entry) {
        // A process of another version may use the folder at the same time.
        listed.bytes =
            is_ours ? EntryFile::FileBytes(size) : kFirstHeader + size;
        entries.push_back(std::move(listed));
      }
    }
    closedir(open);
  }
  return entries;
}

std::string DiskCache::GetName(const SpanKey& key, uint64_t owner,
                               uint64_t size) {
  const absl::Hex high(key.high, absl::kZeroPad16);
  return absl::StrCat(absl::Hex(key.high >> 56, absl::kZeroPad2), "/", high,
                      absl::Hex(key.low, absl::kZeroPad16), "-",
                      absl::Hex(owner, absl::kZeroPad16), "-", size, "-",
                      kFormat);
}

std::string DiskCache::GetPath(const SpanKey& key, uint64_t owner,
                               uint64_t size) const {
  return absl::StrCat(dir_, "/", GetName(key, owner, size));
}

bool DiskCache::Remove(const std::string& path, uint64_t bytes) const {
  // The process that removes the file also accounts for it.
  if (unlink(path.c_str()) != 0) return errno != ENOENT;
  usage_->bytes.fetch_sub(bytes, std::memory_order_relaxed);
  // After the removal: a process that counts now does not see the file any
  // more.
  removals_->count.fetch_add(1, std::memory_order_release);
  return true;
}

uint64_t DiskCache::CountRemovals() const {
  return removals_->count.load(std::memory_order_acquire);
}

bool DiskCache::Reserve(uint64_t bytes) const {
  const uint64_t before =
      usage_->bytes.fetch_add(bytes, std::memory_order_relaxed);
  if (before + bytes <= size_) return true;
  usage_->bytes.fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

void DiskCache::WarnOnce(absl::string_view what) const {
  counters_->cache_failures.Add();
  if (warned_.exchange(true)) return;
  LogWarning("storage.cache.dir: ", what,
             "; samples are read from the store until that is mended");
}

std::shared_ptr<const EntryFile> DiskCache::OpenEntry(const SpanKey& key,
                                                      uint64_t owner,
                                                      uint64_t size,
                                                      ReadFrom from) const {
  if (from == ReadFrom::kMemory) {
    absl::StatusOr<File> file =
        File::OpenInMemory(folder_, dir_, GetName(key, owner, size));
    if (!file.ok()) return nullptr;
    auto entry = EntryFile::Open(*std::move(file), key, size, from);
    return entry.ok() ? *std::move(entry) : nullptr;
  }
  absl::StatusOr<File> file = File::Open(GetPath(key, owner, size));
  if (!file.ok()) {
    if (absl::IsNotFound(file.status())) {
      known_->Drop(NameHash(key, owner));
    } else {
      // The process may have no descriptors left.
      pool_->Clear();
      WarnOnce(file.status().message());
    }
    return nullptr;
  }
  auto entry = EntryFile::Open(*std::move(file), key, size, from);
  if (entry.ok()) return *std::move(entry);
  RemoveDamaged(key, owner, size);
  return nullptr;
}

std::unique_ptr<EntryReader> DiskCache::Find(const SpanKey& key, uint64_t owner,
                                             uint64_t size,
                                             ReadFrom from) const {
  if (from == ReadFrom::kMemory && folder_ < 0) return nullptr;
  const uint64_t removals = CountRemovals();
  std::shared_ptr<const EntryFile> entry = pool_->Find(key, removals);
  if (entry == nullptr || entry->size() != size) {
    entry = OpenEntry(key, owner, size, from);
    if (entry == nullptr) return nullptr;
    pool_->Put(key, entry, removals);
  }
  return std::make_unique<EntryReader>(std::move(entry), from);
}

void DiskCache::RemoveDamaged(const SpanKey& key, uint64_t owner,
                              uint64_t size) const {
  pool_->Drop(key);
  const std::string path = GetPath(key, owner, size);
  // Several readers may find the damage; it is counted once.
  if (!Remove(path, EntryFile::FileBytes(size))) return;
  counters_->cache_damaged.Add();
  LogWarning(path, ": a damaged entry of the cache is removed");
}

bool DiskCache::Has(const SpanKey& key, uint64_t owner, uint64_t size) const {
  const uint64_t removals = CountRemovals();
  pool_->Update(removals);
  if (known_->Has(NameHash(key, owner), removals)) return true;
  if (access(GetPath(key, owner, size).c_str(), F_OK) != 0) return false;
  known_->Add(NameHash(key, owner), removals);
  return true;
}

size_t DiskCache::open_entries() const { return pool_->size(); }

bool DiskCache::HasRoom(uint64_t bytes) const {
  return usage_->bytes.load(std::memory_order_relaxed) +
             EntryFile::FileBytes(bytes) <=
         size_;
}

bool DiskCache::Store(const SpanKey& key, uint64_t owner,
                      absl::string_view bytes) const {
  const std::string path = GetPath(key, owner, bytes.size());
  if (access(path.c_str(), F_OK) == 0) return true;
  const uint64_t file_bytes = EntryFile::FileBytes(bytes.size());
  if (!Reserve(file_bytes)) return false;
  const std::string unfinished = absl::StrCat(
      path.substr(0, path.rfind('/') + 1), kUnfinished, getpid(), "-",
      next_temporary_.fetch_add(1, std::memory_order_relaxed));
  const std::string head = EntryFile::Head(key, bytes);
  const Descriptor file(
      open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  bool stored = *file >= 0 && WriteAll(*file, head) && WriteAll(*file, bytes);
  if (!stored) WarnOnce(FileError(errno, "write", unfinished).message());
  if (stored && renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, path.c_str(),
                          RENAME_NOREPLACE) == 0) {
    return true;
  }
  // Another process may have stored the entry first, which is as good.
  if (stored && errno != EEXIST) {
    WarnOnce(FileError(errno, "rename", unfinished).message());
    stored = false;
  }
  if (*file >= 0) unlink(unfinished.c_str());
  usage_->bytes.fetch_sub(file_bytes, std::memory_order_relaxed);
  return stored;
}

bool DiskCache::MakeRoom(uint64_t bytes, uint64_t needed_at,
                         const NextUsesOf& next_uses) const {
  if (HasRoom(bytes)) return true;
  if (EntryFile::FileBytes(bytes) > size_) return false;
  if (flock(evict_, LOCK_EX | LOCK_NB) != 0) return false;
  const std::vector<Listed> listed = List(/*clean=*/false);
  std::vector<uint64_t> owners;
  owners.reserve(listed.size());
  for (const Listed& entry : listed) owners.push_back(entry.owner);
  const std::vector<uint64_t> uses = next_uses(owners);
  std::vector<CacheEntry> entries;
  entries.reserve(listed.size());
  for (size_t i = 0; i < listed.size(); ++i) {
    entries.push_back({listed[i].bytes, uses[i]});
  }
  const uint64_t over = usage_->bytes.load(std::memory_order_relaxed) +
                        EntryFile::FileBytes(bytes) - size_;
  for (const size_t i : ChooseVictims(entries, over, size_ / 32, needed_at)) {
    Remove(listed[i].path, listed[i].bytes);
    counters_->cache_evicted.Add();
  }
  pool_->Update(CountRemovals());
  flock(evict_, LOCK_UN);
  return HasRoom(bytes);
}

uint64_t DiskCache::bytes() const {
  return usage_->bytes.load(std::memory_order_relaxed);
}

}  // namespace ballast
