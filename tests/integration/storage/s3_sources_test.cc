// Sources in a real S3 server against the same files on disk, within one
// process: what is read, to the byte.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/command/draw/dataset.h"
#include "server/config/config_loader.h"
#include "server/data/parquet/parquet_file.h"
#include "server/files/storage.h"
#include "server/job/index_sources.h"
#include "server/job/job_setup.h"
#include "tests/fakes/read_sample.h"
#include "tests/fakes/test_certificates.h"
#include "tests/integration/storage/s3_process.h"

namespace ballast {
namespace {

// What a configuration says of an S3 server, against real ones: credentials,
// certificates, and servers that make no ETags. Credentials are read once a
// process, so all of these have storages of their own.

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kSamples = 24;

constexpr char kConfig[] = R"(
sources: [{name: docs, format: FORMAT, path: "WHERE"}]
model: {tokenizer: bytes, max_pixels: 50176}
batch: {global: 8, micro: 8, max_tokens: 8192}
topology: {modules: {vision: {dp: 2}, language: {dp: 1}}}
storage: {s3: {endpoint: "http://ADDRESS"}, memory: 1MiB MORE}
)";

class S3SourcesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (S3Process::Program().empty() || !CheckParquetIsBuiltIn().ok()) return;
    std::string name = ::testing::TempDir() + "s3XXXXXX";
    folder_ = new std::string(mkdtemp(name.data()));
    for (const DatasetFormat format :
         {DatasetFormat::kWebDataset, DatasetFormat::kParquet}) {
      DatasetOptions options;
      options.directory = absl::StrCat(
          *folder_, "/root/bucket/",
          format == DatasetFormat::kParquet ? "parquet" : "webdataset");
      options.samples = kSamples;
      options.shard_samples = 16;
      options.format = format;
      const auto written = WriteDataset(options);
      ASSERT_TRUE(written.ok()) << written.status();
    }
    setenv("AWS_ACCESS_KEY_ID", S3Process::kId, 1);
    setenv("AWS_SECRET_ACCESS_KEY", S3Process::kSecret, 1);
    server_ = new S3Process(*folder_ + "/root");
    ASSERT_TRUE(server_->Start());
  }
  static void TearDownTestSuite() {
    delete server_;
    if (folder_ != nullptr) fs::remove_all(*folder_);
  }

  void SetUp() override {
    if (S3Process::Program().empty()) {
      GTEST_SKIP() << "no rclone; deploy/setup.sh --tests unpacks it";
    }
    if (folder_ == nullptr) GTEST_SKIP() << "this build has no Arrow";
  }

  static std::string Bucket() { return *folder_ + "/root/bucket"; }

  // A copy of the bucket, which nobody has read.
  static std::string NewBucket(const std::string& name) {
    fs::copy(Bucket(), absl::StrCat(*folder_, "/root/", name),
             fs::copy_options::recursive);
    return absl::StrCat("s3://", name);
  }

  // A job over `where`, "s3://bucket" or a folder, with a folder of its own.
  static LoadedConfig Load(const std::string& name, const std::string& format,
                           const std::string& where,
                           const std::string& more = "") {
    const std::string directory = absl::StrCat(*folder_, "/", name);
    fs::create_directories(directory);
    const std::string extension = format == "parquet" ? "parquet" : "tar";
    const auto config = ParseConfig(
        absl::StrReplaceAll(
            kConfig,
            {{"FORMAT", format},
             {"WHERE", absl::StrCat(where, "/", format, "/docs-*.", extension)},
             {"ADDRESS", server_->address()},
             {"MORE", more}}),
        "job.yaml", directory);
    EXPECT_TRUE(config.ok()) << config.status();
    return *config;
  }

  static OpenedJob Open(const LoadedConfig& config) {
    const auto indexed = IndexSources(config, {});
    EXPECT_TRUE(indexed.ok()) << indexed.status();
    for (const SourceIndexing& source : *indexed) {
      EXPECT_TRUE(source.report.bad.empty());
      EXPECT_EQ(source.report.samples, kSamples);
    }
    auto job = OpenJob(config);
    EXPECT_TRUE(job.ok()) << job.status();
    return *std::move(job);
  }

  // Everything of all samples, in the order of the index.
  static std::vector<std::string> ReadAll(const SampleSource& source) {
    std::vector<std::string> samples;
    for (uint64_t i = 0; i < source.index().size(); ++i) {
      const auto sample = source.Read(i, ReadParts());
      if (!sample.ok()) {
        samples.push_back(sample.status().ToString());
      } else if (!sample->ok()) {
        samples.push_back("fault: " + sample->fault().reason());
      } else {
        std::string all = (*sample)->text;
        for (const std::string& image : Images(**sample)) {
          absl::StrAppend(&all, "\n", image.size(), "\n", image);
        }
        samples.push_back(std::move(all));
      }
    }
    return samples;
  }

  static uint64_t Requests() {
    return Storage::OfProcess().counters().requests.value();
  }

  static std::string* folder_;
  static S3Process* server_;
};

std::string* S3SourcesTest::folder_ = nullptr;
S3Process* S3SourcesTest::server_ = nullptr;

TEST_F(S3SourcesTest, HasTheSamplesOfLocalFiles) {
  for (const char* format : {"webdataset", "parquet"}) {
    const OpenedJob local =
        Open(Load(absl::StrCat("local_", format), format, Bucket()));
    const OpenedJob remote =
        Open(Load(absl::StrCat("remote_", format), format, "s3://bucket"));
    EXPECT_EQ(remote.scheduler->fingerprint().hash(),
              local.scheduler->fingerprint().hash());
    EXPECT_TRUE(ReadAll(*remote.sources[0]) == ReadAll(*local.sources[0]));
    EXPECT_TRUE(remote.sources[0]->InStore());
    EXPECT_FALSE(local.sources[0]->InStore());
  }
}

TEST_F(S3SourcesTest, AnIndexOfTarsReadsNoWholeImages) {
  const LoadedConfig config = Load("little", "webdataset", "s3://bucket");
  uint64_t all = 0;
  for (const auto& file : fs::directory_iterator(Bucket() + "/webdataset")) {
    if (file.path().extension() == ".tar") all += file.file_size();
  }
  const auto& fetched = Storage::OfProcess().counters().fetched_bytes;
  const uint64_t before = fetched.value();
  ASSERT_TRUE(IndexSources(config, {}).ok());
  EXPECT_LT(fetched.value() - before, all);
  RecordProperty("index_bytes", static_cast<int>(fetched.value() - before));
  RecordProperty("tar_bytes", static_cast<int>(all));
}

TEST_F(S3SourcesTest, ASecondEpochComesFromTheCacheAlone) {
  for (const char* format : {"webdataset", "parquet"}) {
    const std::string more =
        absl::StrCat(", cache: {dir: ", *folder_, "/cache, size: 1GiB}");
    const LoadedConfig config =
        Load(absl::StrCat("cached_", format), format, "s3://bucket", more);
    const OpenedJob local =
        Open(Load(absl::StrCat("local_", format), format, Bucket(), more));
    std::vector<std::string> epoch;
    {
      const OpenedJob job = Open(config);
      epoch = ReadAll(*job.sources[0]);
    }
    EXPECT_TRUE(epoch == ReadAll(*local.sources[0]));
    const OpenedJob again = Open(config);
    const uint64_t requests = Requests();
    const auto& hits = Storage::OfProcess().counters().cache_hits;
    const uint64_t hits_before = hits.value();
    EXPECT_TRUE(ReadAll(*again.sources[0]) == epoch);
    EXPECT_EQ(Requests(), requests) << format;
    EXPECT_GT(hits.value(), hits_before) << format;
  }
}

TEST_F(S3SourcesTest, FetchingAheadLeavesNothingToWaitFor) {
  const std::string more =
      absl::StrCat(", cache: {dir: ", *folder_, "/ahead, size: 1GiB}");
  const LoadedConfig config =
      Load("ahead", "webdataset", NewBucket("ahead-bucket"), more);
  const OpenedJob job = Open(config);
  const auto identity = IdentifyServer(job.config);
  ASSERT_TRUE(identity.ok()) << identity.status();
  const auto ahead = MakeAheadFetcher(job, *identity);
  ASSERT_TRUE(ahead.ok());
  ASSERT_NE(*ahead, nullptr);
  uint64_t bytes = 0;
  const absl::Status fetched =
      (*ahead)->Fetch(0, 3, [&](uint64_t, uint64_t so_far) { bytes = so_far; });
  ASSERT_TRUE(fetched.ok()) << fetched;
  EXPECT_GT(bytes, 0u);
  // An epoch has three steps: all samples are there.
  const uint64_t requests = Requests();
  const std::vector<std::string> samples = ReadAll(*job.sources[0]);
  EXPECT_EQ(Requests(), requests);
  for (const std::string& sample : samples) {
    EXPECT_THAT(sample, Not(HasSubstr("fault: ")));
  }
}

TEST_F(S3SourcesTest, AStoreThatDiesIsATransientFault) {
  const OpenedJob job = Open(Load("dies", "webdataset", NewBucket("mortal")));
  const auto before = job.sources[0]->Read(0, ReadParts());
  ASSERT_TRUE(before.ok() && before->ok());
  server_->Stop();
  const auto during = job.sources[0]->Read(kSamples - 1, ReadParts());
  ASSERT_FALSE(during.ok());
  EXPECT_TRUE(absl::IsUnavailable(during.status())) << during.status();
  EXPECT_THAT(during.status().message(),
              AllOf(HasSubstr("s3://mortal/webdataset/docs-"),
                    Not(HasSubstr(S3Process::kSecret))));
  ASSERT_TRUE(server_->Start());
  const auto after = job.sources[0]->Read(kSamples - 1, ReadParts());
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE(after->ok());
}

TEST_F(S3SourcesTest, AnObjectThatChangesIsNeverServed) {
  const LoadedConfig config = Load("changes", "webdataset", NewBucket("mine"));
  const OpenedJob job = Open(config);
  const std::vector<std::string> good = ReadAll(*job.sources[0]);
  // Inside an image: text, lengths and the images' heads stay.
  std::vector<fs::path> tars;
  for (const auto& file :
       fs::directory_iterator(*folder_ + "/root/mine/webdataset")) {
    if (file.path().extension() == ".tar") tars.push_back(file.path());
  }
  for (const fs::path& tar : tars) {
    std::fstream bytes(tar, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(fs::file_size(tar) / 2);
    bytes.put('!');
  }
  // What was read before is in memory still; another process has nothing.
  const OpenedJob other = [&] {
    auto opened = OpenJob(config);
    EXPECT_TRUE(absl::IsFailedPrecondition(opened.status()));
    EXPECT_THAT(opened.status().message(),
                HasSubstr("is another version in the store"));
    return OpenedJob();
  }();
  for (const std::string& sample : ReadAll(*job.sources[0])) {
    EXPECT_TRUE(std::find(good.begin(), good.end(), sample) != good.end() ||
                sample.find("UNAVAILABLE") == 0)
        << sample.substr(0, 300);
  }
  const auto indexed = IndexSources(config, {});
  ASSERT_TRUE(indexed.ok()) << indexed.status();
  EXPECT_THAT((*indexed)[0].stale, HasSubstr("another version in the store"));
}

TEST_F(S3SourcesTest, ErrorsNameWhatIsMissing) {
  for (const char* where : {"s3://nobody", "s3://bucket/nothing"}) {
    const auto indexed = IndexSources(Load("none", "webdataset", where), {});
    EXPECT_FALSE(indexed.ok());
    EXPECT_THAT(indexed.status().message(),
                AllOf(HasSubstr("source docs"), HasSubstr(where)));
  }
}

namespace fs = std::filesystem;

class S3EndpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (S3Process::Program().empty()) {
      GTEST_SKIP() << "no rclone; deploy/setup.sh --tests unpacks it";
    }
    if (!CheckParquetIsBuiltIn().ok()) {
      GTEST_SKIP() << "this build has no Arrow";
    }
    std::string name = ::testing::TempDir() + "s3XXXXXX";
    folder_ = mkdtemp(name.data());
    fs::create_directories(folder_ + "/root/bucket");
    std::ofstream(folder_ + "/root/bucket/one.tar") << std::string(5000, 'x');
    setenv("AWS_ACCESS_KEY_ID", S3Process::kId, 1);
    setenv("AWS_SECRET_ACCESS_KEY", S3Process::kSecret, 1);
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  static v1::Storage Settings(const std::string& endpoint) {
    v1::Storage settings;
    settings.mutable_s3()->set_endpoint(endpoint);
    settings.mutable_s3()->set_region("us-east-1");
    settings.mutable_s3()->set_credentials("environment");
    settings.set_memory(1 << 20);
    settings.set_connections(4);
    return settings;
  }

  std::string folder_;
};

TEST_F(S3EndpointTest, AStoreWithoutETagsTellsVersionsByTime) {
  S3Process server(folder_ + "/root", {"--etag-hash="});
  ASSERT_TRUE(server.Start());
  const v1::Storage settings = Settings("http://" + server.address());
  const fs::path object = folder_ + "/root/bucket/untagged";
  const auto now = fs::last_write_time(folder_ + "/root/bucket/one.tar");
  const auto stamp = [&](const std::string& bytes, int days) {
    std::ofstream(object) << bytes;
    fs::last_write_time(object, now - std::chrono::hours(24) * days);
    Storage storage;
    EXPECT_TRUE(storage.Configure(settings).ok());
    const auto found = storage.Stamp("s3://bucket/untagged");
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? *found : FileStamp();
  };
  const FileStamp first = stamp("first", 2);
  EXPECT_TRUE(stamp("first", 2) == first);
  EXPECT_FALSE(stamp("other", 1) == first);
}

TEST_F(S3EndpointTest, TrustsTheAuthorityThatTheConfigurationNames) {
  const TestAuthority own("storage");
  const TlsIdentity identity = own.Issue({});
  const std::string cert =
      WriteTestFile("store.pem", absl::StrCat(identity.cert, own.cert()));
  const std::string key = WriteTestFile("store.key", identity.key);
  S3Process server(folder_ + "/root", {"--cert", cert, "--key", key});
  ASSERT_TRUE(server.Start());
  const auto stat = [&](const std::string& ca) {
    v1::Storage settings = Settings("https://" + server.address());
    settings.mutable_s3()->set_ca(ca);
    Storage storage;
    EXPECT_TRUE(storage.Configure(settings).ok());
    const auto listed = storage.ListFiles("", "s3://bucket/*.tar");
    if (!listed.ok()) return listed.status();
    const absl::StatusOr<File> file = storage.Open((*listed)[0]);
    if (!file.ok()) return file.status();
    FileView view(&*file);
    return view.Load({{0, file->stamp().size}});
  };
  const absl::Status trusted = stat(WriteTestFile("own.pem", own.cert()));
  EXPECT_TRUE(trusted.ok()) << trusted;
  const TestAuthority other("other");
  for (const std::string& ca :
       {std::string(), WriteTestFile("other.pem", other.cert())}) {
    const absl::Status refused = stat(ca);
    EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
    EXPECT_THAT(refused.message(), HasSubstr("does storage.s3.ca name the CA"))
        << ca;
  }
}

TEST_F(S3EndpointTest, WrongKeysSayWhatToDoWithoutTheSecret) {
  S3Process server(folder_ + "/root");
  ASSERT_TRUE(server.Start());
  v1::Storage settings = Settings("http://" + server.address());
  const std::string keys = folder_ + "/keys.ini";
  settings.mutable_s3()->set_credentials(keys);
  const auto stat = [&](const std::string& id, const std::string& secret) {
    std::ofstream(keys) << "[default]\naws_access_key_id = " << id
                        << "\naws_secret_access_key = " << secret << "\n";
    Storage storage;
    EXPECT_TRUE(storage.Configure(settings).ok());
    const auto listed = storage.ListFiles("", "s3://bucket/*.tar");
    if (!listed.ok()) return listed.status();
    return storage.Stamp((*listed)[0]).status();
  };
  EXPECT_TRUE(stat(S3Process::kId, S3Process::kSecret).ok());
  for (const auto& [id, secret] :
       std::vector<std::pair<std::string, std::string>>{
           {S3Process::kId, "WRONGSECRET"}, {"OTHERKEY", "WRONGSECRET"}}) {
    const absl::Status refused = stat(id, secret);
    EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
    EXPECT_THAT(refused.message(),
                AllOf(HasSubstr("storage.s3.credentials"),
                      Not(HasSubstr("WRONGSECRET")), Not(HasSubstr(id))));
  }
  fs::remove(keys);
  Storage storage;
  EXPECT_TRUE(storage.Configure(settings).ok());
  const absl::Status none = storage.Stamp("s3://bucket/x").status();
  EXPECT_THAT(none.message(), HasSubstr("keys.ini"));
}

}  // namespace

}  // namespace ballast
