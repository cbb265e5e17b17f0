#include "server/data/file_source.h"

#include <sys/resource.h>

#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/data/index/index_builder.h"
#include "server/data/open_source.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

std::shared_ptr<const File> OpenNew(const std::string& name) {
  const std::string path = absl::StrCat(TestFolder(), "/", name);
  WriteFile(path, name);
  return std::make_shared<const File>(*File::Open(path));
}

TEST(OpenFileCacheTest, ClosesTheLeastRecentlyUsed) {
  OpenFileCache cache(2);
  OpenFileCache::Slot a, b, c;
  cache.Put(&a, OpenNew("a"));
  cache.Put(&b, OpenNew("b"));
  EXPECT_NE(a.Get(cache), nullptr);
  cache.Put(&c, OpenNew("c"));
  EXPECT_NE(a.Get(cache), nullptr);
  EXPECT_EQ(b.Get(cache), nullptr);
  EXPECT_NE(c.Get(cache), nullptr);
  cache.CloseHalf();
  EXPECT_EQ(a.Get(cache), nullptr);
  EXPECT_NE(c.Get(cache), nullptr);
}

TEST(OpenFileCacheTest, RemovesOnlyTheGivenFile) {
  OpenFileCache cache(2);
  OpenFileCache::Slot slot;
  const auto first = OpenNew("a");
  const auto second = OpenNew("b");
  cache.Put(&slot, first);
  cache.Put(&slot, second);
  cache.Remove(&slot, first.get());
  EXPECT_EQ(slot.Get(cache), second);
  cache.Remove(&slot, second.get());
  EXPECT_EQ(slot.Get(cache), nullptr);
  EXPECT_EQ(second.use_count(), 1);
}

// As under `ulimit -n 100`. This test is last because the hard limit cannot be
// raised again.
TEST(OpenFileCacheTest, SourcesStayWithinTheLimitOfDescriptors) {
  constexpr int kSources = 3;
  constexpr int kFiles = 120;
  // A soft limit that is too low is raised.
  const rlimit limit = {60, 100};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  const std::string folder = TestFolder();
  std::vector<v1::Source> sources;
  for (int s = 0; s < kSources; ++s) {
    sources.push_back(MakeSource(v1::Source::FORMAT_WEBDATASET,
                                 absl::StrCat("s", s, "-*.tar")));
    sources[s].set_index(absl::StrCat("s", s, ".index"));
    for (int i = 0; i < kFiles; ++i) {
      WriteTar(absl::StrCat(folder, "/s", s, "-", 1000 + i, ".tar"),
               {{"a.txt", absl::StrCat("text ", s, " ", i)}});
    }
    const auto report = BuildIndex(sources[s], folder, FakeOptions());
    ASSERT_TRUE(report.ok()) << report.status();
  }
  std::vector<std::unique_ptr<SampleSource>> opened;
  for (const v1::Source& source : sources) {
    auto one = OpenSource(source, folder, FakeKey());
    ASSERT_TRUE(one.ok()) << one.status();
    opened.push_back(*std::move(one));
  }
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kFiles; ++i) {
      for (int s = 0; s < kSources; ++s) {
        const auto sample = ReadSample(*opened[s], i);
        ASSERT_TRUE(sample.ok()) << sample.status();
        EXPECT_EQ(sample->text, absl::StrCat("text ", s, " ", i));
      }
    }
  }
  rlimit now;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
  EXPECT_EQ(now.rlim_cur, 100u);
}

}  // namespace
}  // namespace ballast
