// Sources of objects whose bytes are in the cache: what is read from its
// entries, also when these are damaged or gone.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/data/index/index_builder.h"
#include "server/data/open_source.h"
#include "server/data/parquet/parquet_file.h"
#include "server/data/parquet/parquet_tables.h"
#include "server/files/storage.h"
#include "tests/fakes/read_file.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSamples = 6;
// In each of two row groups.
constexpr uint64_t kRows = 3;

// Bytes that nothing compresses, behind an image's size.
std::string GetImage(uint64_t sample) {
  std::string bytes = FakeImage(4, 4);
  uint64_t state = sample + 1;
  while (bytes.size() < 100'000 + sample * 777) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    bytes += static_cast<char>(state >> 56);
  }
  return bytes;
}

// Of the sample's text, so that it can be found in an entry.
std::string MarkOf(uint64_t sample) {
  return absl::StrCat("the text of sample ", sample);
}

class CachedSourceTest : public ::testing::TestWithParam<v1::Source::Format> {
 protected:
  static void SetUpTestSuite() {
    // Memory keeps one range, the last one.
    v1::Storage settings;
    settings.set_memory(1);
    settings.set_connections(4);
    ASSERT_TRUE(Storage::OfProcess().Configure(settings).ok());
  }

  void SetUp() override {
    if (IsParquet() && !CheckParquetIsBuiltIn().ok()) {
      GTEST_SKIP() << "this build has no Parquet";
    }
    v1::Storage settings;
    settings.set_memory(1);
    settings.set_connections(4);
    settings.mutable_cache()->set_dir(folder_ + "/cache");
    settings.mutable_cache()->set_size(64 << 20);
    ASSERT_TRUE(Storage::OfProcess().Configure(settings).ok());
    IsParquet() ? WriteParquet() : WriteTars();
    source_ = MakeSource(GetParam(),
                         absl::StrCat("file://", folder_, "/docs.", Ending()));
    const auto report = BuildIndex(source_, folder_, FakeOptions());
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_TRUE(report->bad.empty()) << report->bad[0].reason;
  }

  bool IsParquet() const { return GetParam() == v1::Source::FORMAT_PARQUET; }
  std::string Ending() const { return IsParquet() ? "parquet" : "tar"; }

  void WriteTars() {
    std::string tar;
    for (uint64_t i = 0; i < kSamples; ++i) {
      tar += TarEntry(absl::StrCat("s", i, ".txt"), MarkOf(i));
      tar += TarEntry(absl::StrCat("s", i, ".jpg"), GetImage(i));
    }
    WriteFile(folder_ + "/docs.tar", tar + TarEnd());
  }

  void WriteParquet() {
    const auto writer = ParquetWriter::Create(folder_ + "/docs.parquet");
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (uint64_t begin = 0; begin < kSamples; begin += kRows) {
      std::vector<std::string> images;
      std::vector<ParquetWriter::Row> rows;
      for (uint64_t i = begin; i < begin + kRows; ++i) {
        images.push_back(GetImage(i));
      }
      for (uint64_t i = begin; i < begin + kRows; ++i) {
        rows.push_back({{{"x.jpg", images[i - begin]}},
                        {{"human", absl::StrCat("<image>", MarkOf(i))}}});
      }
      ASSERT_TRUE((*writer)->WriteGroup(rows).ok());
    }
    ASSERT_TRUE((*writer)->Finish().ok());
  }

  // The source as another process opens it: with nothing of it decoded.
  std::unique_ptr<FileSource> Open() {
    auto opened = OpenSource(source_, folder_, FakeKey());
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }

  // Fetches all of it ahead, then reads the one range that memory keeps away.
  void FillCache(const FileSource& source) {
    for (uint64_t i = 0; i < kSamples; ++i) {
      const auto fetched = source.FetchAhead(i, [](uint64_t) { return true; });
      ASSERT_TRUE(fetched.ok()) << fetched.status();
    }
    ForgetMemory();
  }
  // Reads an object that the cache does not have.
  void ForgetMemory() {
    const std::string path = absl::StrCat(folder_, "/other", ++others_);
    WriteFile(path, "o");
    const auto other = Storage::OfProcess().Open(absl::StrCat("file://", path));
    ASSERT_TRUE(other.ok()) << other.status();
    ASSERT_TRUE(other->object()->Fetch({0, 1}, 0, ReadFrom::kDisk).ok());
  }

  // Reads sample `i` as a server does: from memory or else the disk; its image
  // as `encoded`: to a place of its own.
  void ExpectSample(const FileSource& source, uint64_t i, bool encoded) {
    std::string place;
    const auto place_of = [&](size_t, size_t, uint64_t size) {
      place.assign(size, '?');
      return place.data();
    };
    const ImagePlaces places = place_of;
    ReadParts parts = {.text = false, .images = true};
    if (encoded) parts.places = &places;
    parts.from = ReadFrom::kMemory;
    auto sample = source.Read(i, parts);
    if (!sample.ok() || !sample->ok()) {
      parts.from = ReadFrom::kDisk;
      sample = source.Read(i, parts);
    }
    ASSERT_TRUE(sample.ok()) << sample.status();
    ASSERT_TRUE(sample->ok()) << sample->fault().reason();
    EXPECT_TRUE((*sample)->media[0].file() == GetImage(i)) << i;
    EXPECT_EQ((*sample)->media[0].file().data() == place.data(), encoded);
  }
  void ExpectText(const FileSource& source, uint64_t i) {
    const auto sample = source.Read(i, {.text = true, .images = false});
    ASSERT_TRUE(sample.ok()) << sample.status();
    ASSERT_TRUE(sample->ok()) << sample->fault().reason();
    EXPECT_NE((*sample)->text.find(MarkOf(i)), std::string::npos) << i;
  }

  // The entries of the cache.
  std::vector<fs::path> Entries() {
    std::vector<fs::path> found;
    for (const auto& entry :
         fs::recursive_directory_iterator(folder_ + "/cache")) {
      if (entry.is_regular_file() &&
          entry.path().parent_path() != folder_ + "/cache") {
        found.push_back(entry.path());
      }
    }
    return found;
  }
  // Those that hold `bytes`.
  std::vector<fs::path> EntriesWith(const std::string& bytes) {
    std::vector<fs::path> found;
    for (const fs::path& entry : Entries()) {
      if (ReadFile(entry).find(bytes) != std::string::npos) {
        found.push_back(entry);
      }
    }
    return found;
  }
  static void ChangeByte(const fs::path& path, uint64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 1));
  }
  // Changes a byte of `bytes` in each entry that holds them: the one that was
  // fetched, and what is left of indexing.
  void Damage(const std::string& bytes) {
    const std::vector<fs::path> entries = EntriesWith(bytes);
    ASSERT_FALSE(entries.empty());
    for (const fs::path& entry : entries) {
      ChangeByte(entry, ReadFile(entry).find(bytes) + bytes.size() / 2);
    }
  }
  // Changes a byte of each block of each entry.
  void DamageAll() {
    for (const fs::path& entry : Entries()) {
      const uint64_t size = fs::file_size(entry);
      for (uint64_t back = 1; back <= size; back += 4096) {
        ChangeByte(entry, size - back);
      }
    }
  }

  // Removes entries as another process of the node does.
  void RemoveElsewhere(const std::vector<fs::path>& entries) {
    StorageCounters counters;
    const auto other = DiskCache::Open(folder_ + "/cache", 64 << 20, &counters);
    ASSERT_TRUE(other.ok()) << other.status();
    for (const fs::path& entry : entries) {
      // KEY-OWNER-SIZE-FORMAT
      const std::string name = entry.filename().string();
      const SpanKey key = {std::stoull(name.substr(0, 16), nullptr, 16),
                           std::stoull(name.substr(16, 16), nullptr, 16)};
      (*other)->RemoveDamaged(key,
                              std::stoull(name.substr(33, 16), nullptr, 16),
                              std::stoull(name.substr(50)));
      EXPECT_FALSE(fs::exists(entry)) << entry;
    }
  }

  static const StorageCounters& Counters() {
    return Storage::OfProcess().counters();
  }

  const std::string folder_ = TestFolder();
  v1::Source source_;
  int others_ = 0;
};

// 64 bytes from the midst of an image: no two places have the same.
std::string Inside(uint64_t sample) {
  return GetImage(sample).substr(60000, 64);
}

TEST_P(CachedSourceTest, ReadsImagesToTheirPlaceWithoutARequest) {
  FillCache(*Open());
  const auto source = Open();
  ASSERT_NE(source, nullptr);
  for (const bool encoded : {true, false}) {
    // Footers are in the cache once they have been read.
    ExpectSample(*source, 0, encoded);
    const uint64_t requests = Counters().requests.value();
    for (uint64_t i = 0; i < kSamples; ++i) {
      ExpectSample(*source, i, encoded);
      ExpectText(*source, i);
    }
    EXPECT_EQ(Counters().requests.value(), requests);
  }
}

TEST_P(CachedSourceTest, DamagedImagesComeFromTheStore) {
  for (const bool encoded : {true, false}) {
    FillCache(*Open());
    const auto source = Open();
    ASSERT_NE(source, nullptr);
    // Rows are decoded before the damage, or by the first read after it.
    if (encoded) ExpectText(*source, 0);
    const uint64_t damaged = Counters().cache_damaged.value();
    const uint64_t fetched = Counters().fetched_bytes.value();
    Damage(Inside(1));
    for (uint64_t i = 0; i < kSamples; ++i) ExpectSample(*source, i, encoded);
    EXPECT_EQ(Counters().cache_damaged.value(), damaged + 1);
    EXPECT_GE(Counters().fetched_bytes.value(), fetched + GetImage(1).size());
    // The new entry is whole.
    EXPECT_FALSE(EntriesWith(Inside(1)).empty());
    ForgetMemory();
    const auto again = Open();
    const uint64_t requests = Counters().requests.value();
    for (uint64_t i = 0; i < kSamples; ++i) ExpectSample(*again, i, encoded);
    EXPECT_EQ(Counters().cache_damaged.value(), damaged + 1);
    EXPECT_EQ(Counters().requests.value(), requests);
  }
}

TEST_P(CachedSourceTest, DamagedTextComesFromTheStore) {
  FillCache(*Open());
  const auto source = Open();
  ASSERT_NE(source, nullptr);
  const uint64_t damaged = Counters().cache_damaged.value();
  DamageAll();
  for (uint64_t i = 0; i < kSamples; ++i) ExpectText(*source, i);
  EXPECT_GE(Counters().cache_damaged.value(), damaged + 2);
}

// What the cache has given up is fetched once, however many samples are read of
// it: a row group stays in memory then.
TEST_P(CachedSourceTest, WhatTheCacheHasLostIsFetchedOnce) {
  FillCache(*Open());
  const auto source = Open();
  ASSERT_NE(source, nullptr);
  for (uint64_t i = 0; i < kSamples; ++i) ExpectSample(*source, i, true);
  RemoveElsewhere(Entries());
  // The folders of its entries are gone: nothing can be stored from now on.
  for (const auto& folder : fs::directory_iterator(folder_ + "/cache")) {
    if (folder.is_directory()) fs::remove_all(folder.path());
  }
  const uint64_t all = fs::file_size(folder_ + "/docs." + Ending());
  uint64_t fetched = Counters().fetched_bytes.value();
  for (uint64_t i = 0; i < kSamples; ++i) ExpectSample(*source, i, true);
  EXPECT_GE(Counters().fetched_bytes.value() - fetched, all / 2);
  EXPECT_LE(Counters().fetched_bytes.value() - fetched, all + 1000);
  if (!IsParquet()) return;
  ForgetMemory();
  fetched = Counters().fetched_bytes.value();
  for (uint64_t i = 0; i < kSamples; ++i) ExpectSample(*source, i, true);
  EXPECT_EQ(Counters().fetched_bytes.value(), fetched);
}

TEST_P(CachedSourceTest, KnowsWhatIsHere) {
  const auto source = Open();
  ASSERT_NE(source, nullptr);
  EXPECT_FALSE(source->IsHere(0));
  EXPECT_TRUE(source->IsHere(kSamples));  // there is no such sample
  FillCache(*source);
  const uint64_t requests = Counters().requests.value();
  for (uint64_t i = 0; i < kSamples; ++i) EXPECT_TRUE(source->IsHere(i)) << i;
  RemoveElsewhere(EntriesWith(Inside(1)));
  for (uint64_t i = 0; i < kSamples; ++i) {
    const bool lost = IsParquet() ? i < kRows : i == 1;
    EXPECT_EQ(source->IsHere(i), !lost) << i;
  }
  EXPECT_EQ(Counters().requests.value(), requests);
}

// Another version that was seen, and is in the cache, does not stay the one
// that is read.
TEST_P(CachedSourceTest, ReadsAnObjectThatWasRestored) {
  const std::string path = folder_ + "/docs." + Ending();
  const std::string bytes = ReadFile(path);
  const fs::file_time_type time = fs::last_write_time(path);
  const ReadParts images = {.text = false, .images = true};
  for (const bool has_other_text : {false, true}) {
    const auto source = Open();
    ASSERT_NE(source, nullptr);
    const std::string changed = has_other_text ? MarkOf(1) : Inside(1);
    std::string other = bytes;
    for (size_t at = 0; (at = other.find(changed, at)) != other.npos; ++at) {
      other[at] ^= 1;
    }
    WriteFile(path, other);
    fs::last_write_time(path, time + std::chrono::seconds(2));
    for (const fs::path& entry : Entries()) fs::remove(entry);
    ForgetMemory();
    EXPECT_FALSE(source->Read(1, images).ok());  // finds out
    FillCache(*source);
    const auto sample = source->Read(1, images);
    ASSERT_FALSE(sample.ok() && sample->ok());
    if (sample.ok()) FillCache(*source);  // a data fault closed the file
    WriteFile(path, bytes);
    fs::last_write_time(path, time);
    for (uint64_t i = 0; i < kSamples; ++i) {
      const auto first = source->Read(i, images);
      EXPECT_TRUE(!first.ok() || first->ok()) << first->fault().reason();
      ExpectSample(*source, i, /*encoded=*/false);
    }
  }
}

// Of media the index has no version, only length and head.
TEST(MediaInStoreTest, ReadsMediaThatWereRestored) {
  const std::string folder = TestFolder();
  v1::Storage settings;
  settings.set_memory(1);
  settings.set_connections(4);
  settings.mutable_cache()->set_dir(folder + "/cache");
  settings.mutable_cache()->set_size(64 << 20);
  ASSERT_TRUE(Storage::OfProcess().Configure(settings).ok());
  const std::string media = folder + "/media/a.jpg";
  WriteFile(media, FakeImage(4, 4));
  WriteFile(folder + "/chat.jsonl", "{\"image\": \"a.jpg\"}\n");
  v1::Source lines = MakeSource(v1::Source::FORMAT_JSONL,
                                absl::StrCat("file://", folder, "/chat.jsonl"));
  lines.add_media_root(absl::StrCat("file://", folder, "/media"));
  const auto report = BuildIndex(lines, folder, FakeOptions());
  ASSERT_TRUE(report.ok()) << report.status();
  const auto source = OpenSource(lines, folder, FakeKey());
  ASSERT_TRUE(source.ok()) << source.status();
  const fs::file_time_type time = fs::last_write_time(media);
  WriteFile(media, FakeImage(5, 5));
  fs::last_write_time(media, time + std::chrono::seconds(2));
  const auto read = [&] { return (*source)->Read(0, ReadParts()); };
  (void)read();  // finds out
  const auto other = read();
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_FALSE(other->ok());
  WriteFile(media, FakeImage(4, 4));
  fs::last_write_time(media, time);
  const auto first = read();
  EXPECT_TRUE(!first.ok() || first->ok()) << first->fault().reason();
  const auto sample = read();
  ASSERT_TRUE(sample.ok()) << sample.status();
  ASSERT_TRUE(sample->ok()) << sample->fault().reason();
  EXPECT_EQ((*sample)->media[0].file(), FakeImage(4, 4));
}

// What was removed by hand seems to be here. Nobody fetches it ahead, and who
// reads it fetches it.
TEST_P(CachedSourceTest, BeingWrongAboutWhatIsHereCostsAFetch) {
  const auto source = Open();
  ASSERT_NE(source, nullptr);
  FillCache(*source);
  for (uint64_t i = 0; i < kSamples; ++i) EXPECT_TRUE(source->IsHere(i)) << i;
  for (const fs::path& entry : Entries()) fs::remove(entry);
  const uint64_t fetched = Counters().fetched_bytes.value();
  for (uint64_t i = 0; i < kSamples; ++i) {
    EXPECT_TRUE(source->IsHere(i)) << i;
    const auto ahead = source->FetchAhead(i, [](uint64_t) { return true; });
    ASSERT_TRUE(ahead.ok()) << ahead.status();
    EXPECT_EQ(*ahead, 0u);
  }
  for (uint64_t i = 0; i < kSamples; ++i) ExpectSample(*source, i, true);
  EXPECT_GT(Counters().fetched_bytes.value(), fetched);
  ForgetMemory();
  const uint64_t requests = Counters().requests.value();
  for (uint64_t i = 0; i < kSamples; ++i) {
    EXPECT_TRUE(source->IsHere(i)) << i;
    ExpectSample(*source, i, true);
  }
  EXPECT_EQ(Counters().requests.value(), requests);
  EXPECT_FALSE(EntriesWith(Inside(1)).empty());
}

INSTANTIATE_TEST_SUITE_P(Formats, CachedSourceTest,
                         ::testing::Values(v1::Source::FORMAT_WEBDATASET,
                                           v1::Source::FORMAT_PARQUET));

}  // namespace
}  // namespace ballast
