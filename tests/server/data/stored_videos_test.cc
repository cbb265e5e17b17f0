// Videos of objects in a store: fetched once, ahead of their use, and in one
// version.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/python_helper.h"
#include "server/data/index/index_builder.h"
#include "server/data/open_source.h"
#include "server/files/storage.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/data/corpus_testing.h"
#include "tests/server/data/fake_videos.h"

namespace ballast {
namespace {

constexpr uint64_t kVideoBytes = 3'000'000;
constexpr uint64_t kMemory = 8 << 20;

class StoredVideosTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    v1::Storage settings;
    settings.set_memory(kMemory);
    settings.set_connections(4);
    ASSERT_TRUE(Storage::OfProcess().Configure(settings).ok());
  }

  std::unique_ptr<FileSource> Open(v1::Source source) {
    source.set_path(absl::StrCat("file://", folder_, "/", source.path()));
    const auto report = BuildIndex(source, folder_, FakeVideoOptions());
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->media[MediumKind::kVideo], 1u);
    ForgetWhatWasIndexed();
    auto opened = OpenSource(source, folder_, FakeKey());
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }

  // Fills the memory of objects with another one.
  void ForgetWhatWasIndexed() {
    WriteFile(folder_ + "/other", std::string(kMemory, 'o'));
    const auto other =
        Storage::OfProcess().Open(absl::StrCat("file://", folder_, "/other"));
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_TRUE(other->object()->Fetch({0, kMemory}, 0, ReadFrom::kDisk).ok());
  }

  // Fetches the only sample ahead and reads it: nothing is left to fetch.
  void ExpectFetchedOnce(const FileSource& source) {
    const StorageCounters& counters = Storage::OfProcess().counters();
    const uint64_t before = counters.fetched_bytes.value();
    const auto ahead = source.FetchAhead(0, [](uint64_t) { return true; });
    ASSERT_TRUE(ahead.ok()) << ahead.status();
    EXPECT_GE(*ahead, kVideoBytes);
    EXPECT_LE(counters.fetched_bytes.value() - before, kVideoBytes + 200'000);
    const uint64_t requests = counters.requests.value();
    const auto sample = ReadSample(source, 0, {});
    ASSERT_TRUE(sample.ok()) << sample.status();
    ASSERT_EQ(Videos(*sample).size(), 1u);
    EXPECT_EQ(GetBytes(Videos(*sample)[0]), FakeVideo(7, kVideoBytes));
    EXPECT_EQ(counters.requests.value(), requests);
  }

  const std::string folder_ = TestFolder();
};

TEST_F(StoredVideosTest, OfTars) {
  WriteFile(folder_ + "/docs.tar",
            TarEntry("a.json", R"({"messages": []})") +
                TarEntry("a.mp4", FakeVideo(7, kVideoBytes)) + TarEnd());
  const auto source =
      Open(MakeSource(v1::Source::FORMAT_WEBDATASET, "docs.tar"));
  ASSERT_NE(source, nullptr);
  ExpectFetchedOnce(*source);
}

TEST_F(StoredVideosTest, NamedByLines) {
  WriteFile(folder_ + "/a.mp4", FakeVideo(7, kVideoBytes));
  WriteFile(folder_ + "/chat.jsonl", R"({"video": "a.mp4", "messages": []})");
  v1::Source lines = MakeSource(v1::Source::FORMAT_JSONL, "chat.jsonl");
  lines.add_media_root(absl::StrCat("file://", folder_));
  const auto source = Open(lines);
  ASSERT_NE(source, nullptr);
  ExpectFetchedOnce(*source);
}

// The names are known once the record is cooked.
TEST_F(StoredVideosTest, NamedByRecipes) {
  if (FindPythons().empty()) GTEST_SKIP() << "there is no python3";
  WriteFile(folder_ + "/a.mp4", FakeVideo(7, kVideoBytes));
  WriteFile(folder_ + "/chat.jsonl", R"({"clip": "a"})");
  WriteFile(folder_ + "/my_recipe.py",
            "import ballast.recipe as recipe\n"
            "@recipe.cook\n"
            "def cook(record):\n"
            "    if not record.name.endswith('chat.jsonl:1'): raise "
            "ValueError(record.name)\n"
            "    return recipe.Sample([{'role': 'user', 'content': '<video>'}],"
            " videos=[record.json()['clip'] + '.mp4'])\n");
  v1::Source lines = MakeSource(v1::Source::FORMAT_JSONL, "chat.jsonl");
  lines.add_media_root(absl::StrCat("file://", folder_));
  lines.set_recipe("my_recipe.py");
  const auto source = Open(lines);
  ASSERT_NE(source, nullptr);
  ExpectFetchedOnce(*source);
  EXPECT_TRUE(source->IsHere(0));
}

}  // namespace
}  // namespace ballast
