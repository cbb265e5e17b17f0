#include "server/files/storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "absl/strings/match.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Objects in memory. Counts requests; `before_read` runs before each read.
class MemoryStore : public ObjectStore {
 public:
  struct Object {
    std::string bytes;
    int64_t version = 1;
  };

  void Put(const std::string& path, std::string bytes) {
    MutexLock lock(&mutex_);
    Object& object = objects_[path];
    object.bytes = std::move(bytes);
    object.version = ++versions_;
  }

  void Remove(const std::string& path) {
    MutexLock lock(&mutex_);
    objects_.erase(path);
  }

  absl::StatusOr<std::vector<StoreEntry>> List(const std::string& folder,
                                               bool recursive) override {
    ++requests;
    MutexLock lock(&mutex_);
    std::vector<StoreEntry> entries;
    std::set<std::string> folders;
    for (const auto& [path, object] : objects_) {
      if (!absl::StartsWith(path, folder + "/")) continue;
      const size_t slash = path.find('/', folder.size() + 1);
      if (!recursive && slash != path.npos) {
        folders.insert(path.substr(0, slash));
      } else {
        entries.insert(entries.begin(),
                       {.path = path, .size = object.bytes.size()});
      }
    }
    for (const std::string& path : folders) {
      entries.push_back({.path = path, .is_folder = true});
    }
    return entries;
  }

  absl::StatusOr<FileStamp> Stat(const std::string& path) override {
    ++requests;
    MutexLock lock(&mutex_);
    const auto found = objects_.find(path);
    if (found == objects_.end()) return absl::NotFoundError(path);
    return FileStamp{found->second.bytes.size(), found->second.version};
  }

  absl::Status Read(const std::string& path, uint64_t /*object_size*/,
                    uint64_t offset, uint64_t size, char* out) override {
    ++requests;
    ++reads;
    if (before_read) before_read();
    MutexLock lock(&mutex_);
    const auto found = objects_.find(path);
    if (found == objects_.end()) return absl::NotFoundError(path);
    if (offset + size > found->second.bytes.size()) {
      return absl::UnavailableError("shorter");
    }
    std::memcpy(out, found->second.bytes.data() + offset, size);
    return absl::OkStatus();
  }

  std::atomic<int> requests{0};
  std::atomic<int> reads{0};
  std::function<void()> before_read;

 private:
  Mutex mutex_;
  int64_t versions_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Object> objects_ ABSL_GUARDED_BY(mutex_);
};

std::string MakePattern(size_t size, int seed) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<char>((i * 131 + i / 257 + seed) & 0xFF);
  }
  return bytes;
}

class StorageTest : public ::testing::Test {
 protected:
  StorageTest() {
    v1::Storage settings;
    settings.set_memory(64 << 20);
    settings.set_connections(8);
    EXPECT_TRUE(storage_.Configure(settings).ok());
    AddStoreTo(storage_);
  }
  ~StorageTest() override {
    if (!dir_.empty()) std::filesystem::remove_all(dir_);
  }

  // Both stores hold the same objects.
  void AddStoreTo(Storage& storage) {
    class Forward : public ObjectStore {
     public:
      explicit Forward(MemoryStore* to) : to_(to) {}
      absl::StatusOr<std::vector<StoreEntry>> List(const std::string& folder,
                                                   bool recursive) override {
        return to_->List(folder, recursive);
      }
      absl::StatusOr<FileStamp> Stat(const std::string& path) override {
        return to_->Stat(path);
      }
      absl::Status Read(const std::string& path, uint64_t whole,
                        uint64_t offset, uint64_t size, char* out) override {
        return to_->Read(path, whole, offset, size, out);
      }

     private:
      MemoryStore* to_;
    };
    storage.AddStore("s3", std::make_unique<Forward>(&store_));
  }

  v1::Storage WithCache() {
    std::string name = ::testing::TempDir() + "storageXXXXXX";
    dir_ = mkdtemp(name.data());
    v1::Storage settings;
    settings.set_memory(1 << 20);
    settings.set_connections(8);
    settings.mutable_cache()->set_dir(dir_);
    settings.mutable_cache()->set_size(64 << 20);
    return settings;
  }

  MemoryStore store_;
  Storage storage_;
  std::string dir_;
};

TEST_F(StorageTest, ListsByBracesAndGlobs) {
  for (const char* path : {"b/d/p-2.tar", "b/d/p-1.tar", "b/d/other",
                           "b/d/.p-3.tar", "b/d/sub/p-4.tar", "b/e/p-1.tar"}) {
    store_.Put(path, "x");
  }
  EXPECT_THAT(*storage_.ListFiles("/dir", "s3://b/d/*.tar"),
              ElementsAre("s3://b/d/p-1.tar", "s3://b/d/p-2.tar"));
  EXPECT_THAT(
      *storage_.ListFiles("/dir", "s3://b/{e,d}/p-[12].tar"),
      ElementsAre("s3://b/e/p-1.tar", "s3://b/d/p-1.tar", "s3://b/d/p-2.tar"));
  EXPECT_THAT(*storage_.ListFiles("/dir", "s3://b/*/*/p-?.tar"),
              ElementsAre("s3://b/d/sub/p-4.tar"));
  EXPECT_THAT(
      *storage_.ListFiles("/dir", "s3://b/p-{000..002}.tar"),
      ElementsAre("s3://b/p-000.tar", "s3://b/p-001.tar", "s3://b/p-002.tar"));
  const absl::Status none =
      storage_.ListFiles("/dir", "s3://b/d/*.gz").status();
  EXPECT_TRUE(absl::IsNotFound(none));
  EXPECT_THAT(none.message(), HasSubstr("no object matches \"s3://b/d/*.gz\""));
  EXPECT_TRUE(absl::IsInvalidArgument(
      storage_.ListFiles("/dir", "s3://b*/x").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      storage_.ListFiles("/dir", "ftp://b/x").status()));
}

TEST_F(StorageTest, ListsAFolderWithWhatLiesDirectlyInIt) {
  store_.Put("b/d/p-1.tar", "123");
  store_.Put("b/d/e/q.tar", "1");
  store_.Put("b/d/e/f/r.tar", "1");
  store_.Put("b/other.tar", "1");
  const auto entries = storage_.ListFolder("s3://b/d/");
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ(entries->at(0).path, "s3://b/d/e");
  EXPECT_TRUE(entries->at(0).is_folder);
  EXPECT_EQ(entries->at(1).path, "s3://b/d/p-1.tar");
  EXPECT_FALSE(entries->at(1).is_folder);
  EXPECT_EQ(entries->at(1).size, 3u);
  EXPECT_EQ(storage_.ListFolder("s3://b/none")->size(), 0u);
  EXPECT_TRUE(
      absl::IsInvalidArgument(storage_.ListFolder("ftp://b/x").status()));
}

TEST_F(StorageTest, ReadsAnyRange) {
  const std::string bytes = MakePattern(3 * kPartBytes + 12345, 1);
  store_.Put("b/k", bytes);
  const auto file = storage_.Open("s3://b/k");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->path(), "s3://b/k");
  EXPECT_EQ(file->stamp().size, bytes.size());
  for (const auto& [offset, size] :
       std::vector<std::pair<uint64_t, uint64_t>>{{0, 10},
                                                  {5, 100'000},
                                                  {bytes.size() - 1, 1},
                                                  {1000, 0},
                                                  {7, 2 * kPartBytes}}) {
    EXPECT_TRUE(*file->ReadAt(offset, size) == bytes.substr(offset, size));
    FileView view(&*file);
    ASSERT_TRUE(view.Load({{offset, size}}).ok());
    EXPECT_TRUE(*view.ReadAt(offset, size) == bytes.substr(offset, size));
    EXPECT_TRUE(view.CheckUnchanged().ok());
  }
  EXPECT_TRUE(absl::IsDataLoss(file->ReadAt(bytes.size(), 1).status()));
  // Nothing waits for a request that reads from memory.
  const FileView memory(&*file, ReadFrom::kMemory);
  EXPECT_TRUE(absl::IsAborted(memory.ReadAt(3 * kPartBytes, 5).status()));
}

TEST_F(StorageTest, ScansReadLittleAndInFewRequests) {
  store_.Put("b/k", MakePattern(20 << 20, 2));
  const auto file = storage_.Open("s3://b/k");
  // Headers of images a megabyte long.
  for (uint64_t at = 0; at + 8192 < (20 << 20); at += 1 << 20) {
    ASSERT_TRUE(file->ReadAt(at, 512).ok());
    ASSERT_TRUE(file->ReadAt(at + 512, 4096).ok());
  }
  EXPECT_EQ(store_.reads, 20);
  EXPECT_LE(storage_.counters().fetched_bytes.value(), 20 * kMinWindow);
  // Everything in order: windows grow.
  store_.reads = 0;
  const auto again = storage_.Open("s3://b/k");
  for (uint64_t at = 0; at < (20 << 20); at += 4096) {
    ASSERT_TRUE(again->ReadAt(at, 4096).ok());
  }
  EXPECT_LE(store_.reads, 12);
}

// The bytes of a span are of the version that was opened, whenever the object
// is replaced.
TEST_F(StorageTest, ASpanNeverHasAnotherVersion) {
  store_.Put("b/k", MakePattern(1000, 1));
  const auto file = storage_.Open("s3://b/k");
  ASSERT_TRUE(file.ok());
  store_.before_read = [&] {
    store_.before_read = nullptr;
    store_.Put("b/k", MakePattern(1000, 2));
  };
  FileView view(&*file);
  const absl::Status changed = view.Load({{0, 1000}});
  EXPECT_TRUE(absl::IsUnavailable(changed)) << changed;
  EXPECT_THAT(changed.message(), HasSubstr("s3://b/k: changed in the store"));
  EXPECT_TRUE(absl::IsUnavailable(FileView(&*file).CheckUnchanged()));
  // Opened again, it has the new version.
  const auto again = storage_.Open("s3://b/k");
  FileView second(&*again);
  ASSERT_TRUE(second.Load({{0, 1000}}).ok());
  EXPECT_TRUE(*second.ReadAt(0, 1000) == MakePattern(1000, 2));
  EXPECT_FALSE(again->stamp() == file->stamp());
}

TEST_F(StorageTest, OpensWithoutARequestWhatItHasSeen) {
  store_.Put("b/k", "x");
  EXPECT_TRUE(storage_.Stamp("s3://b/k").ok());
  store_.requests = 0;
  EXPECT_TRUE(storage_.Open("s3://b/k", ReadFrom::kMemory).ok());
  EXPECT_EQ(store_.requests, 0);
  EXPECT_TRUE(absl::IsAborted(
      storage_.Open("s3://b/other", ReadFrom::kMemory).status()));
  EXPECT_TRUE(absl::IsNotFound(storage_.Open("s3://b/other").status()));
}

TEST_F(StorageTest, ReadersOfOneRangeShareItsRequest) {
  store_.Put("b/k", MakePattern(1 << 20, 3));
  const auto file = storage_.Open("s3://b/k");
  std::vector<std::thread> readers;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&] {
      FileView view(&*file);
      EXPECT_TRUE(view.Load({{100'000, 500'000}}).ok());
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(store_.reads, 1);
}

TEST_F(StorageTest, ASecondProcessReadsFromTheCache) {
  const std::string bytes = MakePattern(3 << 20, 4);
  store_.Put("b/k", bytes);
  const v1::Storage settings = WithCache();
  for (int process = 0; process < 2; ++process) {
    Storage storage;
    ASSERT_TRUE(storage.Configure(settings).ok());
    AddStoreTo(storage);
    const auto file = storage.Open("s3://b/k");
    store_.requests = 0;
    for (uint64_t at = 0; at < bytes.size(); at += 1 << 20) {
      FileView view(&*file, ReadFrom::kDisk, /*owner=*/at);
      ASSERT_TRUE(view.Load({{at, 1 << 20}}).ok());
      EXPECT_TRUE(*view.ReadAt(at, 1 << 20) == bytes.substr(at, 1 << 20));
    }
    EXPECT_EQ(store_.requests, process == 0 ? 6 : 0);
    EXPECT_EQ(storage.counters().cache_hits.value(), process == 0 ? 0u : 3u);
  }
  // Another version is another entry.
  store_.Put("b/k", MakePattern(3 << 20, 5));
  Storage storage;
  ASSERT_TRUE(storage.Configure(settings).ok());
  AddStoreTo(storage);
  const auto file = storage.Open("s3://b/k");
  FileView view(&*file, ReadFrom::kDisk, 0);
  ASSERT_TRUE(view.Load({{0, 1 << 20}}).ok());
  EXPECT_TRUE(*view.ReadAt(0, 100) == MakePattern(3 << 20, 5).substr(0, 100));
}

// A view goes on with the store's bytes where it finds damage: what it gave
// before was compared.
TEST_F(StorageTest, ReadsADamagedEntryAnewFromTheStore) {
  const std::string bytes = MakePattern(1 << 20, 4);
  store_.Put("b/k", bytes);
  Storage storage;
  ASSERT_TRUE(storage.Configure(WithCache()).ok());
  AddStoreTo(storage);
  const auto file = storage.Open("s3://b/k");
  const MakeRoom room = [](uint64_t) { return true; };
  ASSERT_TRUE(file->object()->FetchAhead({0, 500'000}, 1, room).ok());
  // Memory holds a megabyte.
  ASSERT_TRUE(file->object()->FetchAhead({0, 1 << 20}, 1, room).ok());
  EXPECT_TRUE(file->object()->IsHere({0, 500'000}, 1));
  EXPECT_FALSE(file->object()->IsHere({0, 500'001}, 1));
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(dir_)) {
    if (!entry.is_regular_file() || entry.file_size() < 500'000) continue;
    std::fstream entry_file(entry.path(), std::ios::in | std::ios::out);
    entry_file.seekp(static_cast<std::streamoff>(
        entry.file_size() - (entry.file_size() < 600'000 ? 250'000 : 800'000)));
    entry_file.put('!');
    entry_file.put('?');
  }
  store_.reads = 0;
  FileView view(&*file, ReadFrom::kDisk, 1);
  ASSERT_TRUE(view.Load({{0, 500'000}}).ok());
  EXPECT_TRUE(view.IsInCache());
  EXPECT_TRUE(*view.ReadAt(0, 1000) == bytes.substr(0, 1000));
  EXPECT_EQ(store_.reads, 0);
  EXPECT_EQ(storage.counters().cache_damaged.value(), 0u);
  EXPECT_TRUE(*view.ReadAt(0, 500'000) == bytes.substr(0, 500'000));
  EXPECT_EQ(store_.reads, 1);
  EXPECT_EQ(storage.counters().cache_damaged.value(), 1u);
  EXPECT_FALSE(view.IsInCache());
  EXPECT_TRUE(*view.ReadAt(499'000, 1000) == bytes.substr(499'000, 1000));
  EXPECT_EQ(store_.reads, 1);
  // From memory alone damage is no reason to remove anything, or to wait.
  FileView memory(&*file, ReadFrom::kMemory, 1);
  const absl::Status loaded = memory.Load({{0, 1 << 20}});
  if (loaded.ok()) {
    EXPECT_TRUE(absl::IsAborted(memory.ReadAt(0, 1 << 20).status()));
  } else {
    EXPECT_TRUE(absl::IsAborted(loaded)) << loaded;
  }
  EXPECT_EQ(store_.reads, 1);
  EXPECT_EQ(storage.counters().cache_damaged.value(), 1u);
  // The store fails meanwhile: a transient fault, not one of the data.
  store_.before_read = [&] { store_.Remove("b/k"); };
  FileView disk(&*file, ReadFrom::kDisk, 1);
  ASSERT_TRUE(disk.Load({{0, 1 << 20}}).ok());
  const absl::Status gone = disk.ReadAt(0, 1 << 20).status();
  EXPECT_TRUE(absl::IsNotFound(gone)) << gone;
  EXPECT_EQ(storage.counters().cache_damaged.value(), 2u);
}

TEST_F(StorageTest, FetchesAheadOnlyWithRoom) {
  store_.Put("b/k", MakePattern(3 << 20, 6));
  const auto file = storage_.Open("s3://b/k");
  const auto object = file->object();
  store_.requests = 0;
  EXPECT_TRUE(absl::IsResourceExhausted(
      object->FetchAhead({0, 1 << 20}, 1, [](uint64_t) { return false; })
          .status()));
  EXPECT_EQ(store_.requests, 0);
  const MakeRoom room = [](uint64_t bytes) { return bytes == 1 << 20; };
  EXPECT_EQ(*object->FetchAhead({0, 1 << 20}, 1, room), uint64_t{1} << 20);
  EXPECT_EQ(*object->FetchAhead({0, 1 << 20}, 1, room), 0u);
  EXPECT_EQ(store_.reads, 1);
  FileView view(&*file, ReadFrom::kMemory, 1);
  EXPECT_TRUE(view.Load({{0, 1 << 20}}).ok());
}

TEST_F(StorageTest, LocalPathsAndUrlsOfFilesGiveTheSameBytes) {
  WithCache();
  const std::string path = dir_ + "/x.bin";
  {
    auto file = File::Create(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Write("0123456789").ok());
  }
  EXPECT_EQ(*storage_.Open(path)->ReadAt(2, 3), "234");
  EXPECT_EQ(*storage_.Open("file://" + path)->ReadAt(2, 3), "234");
  EXPECT_EQ(*storage_.Stamp(path), *storage_.Stamp("file://" + path));
  EXPECT_THAT(*storage_.ListFiles(dir_, "file://" + dir_ + "/*.bin"),
              ElementsAre("file://" + path));
}

bool Exists(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0;
}

TEST(LocalCopyTest, IsThereAsLongAsItLives) {
  const std::string folder = ::testing::TempDir();
  auto copy = LocalCopy::Create(folder);
  ASSERT_TRUE(copy.ok()) << copy.status();
  const std::string path = (*copy)->path();
  ASSERT_TRUE((*copy)->Write("one").ok());
  ASSERT_TRUE((*copy)->Write("two").ok());
  // Others do not take it for one that was left.
  RemoveLeftCopies(folder);
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "onetwo");
  *copy = nullptr;
  EXPECT_FALSE(Exists(path));
}

TEST(LocalCopyTest, RemovesWhatKilledProcessesLeft) {
  const std::string folder = ::testing::TempDir();
  const std::string left = folder + "/ballast-copy.Abc123";
  const std::string other = folder + "/ballast-copyright";
  std::ofstream(left) << "left";
  std::ofstream(other) << "other";
  RemoveLeftCopies(folder);
  EXPECT_FALSE(Exists(left));
  EXPECT_TRUE(Exists(other));
  EXPECT_FALSE(LocalCopy::Create(folder + "/none").ok());
}

}  // namespace
}  // namespace ballast
