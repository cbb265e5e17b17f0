// What a configuration says of an S3 server, against real ones: credentials,
// certificates, and servers that make no ETags. Credentials are read once a
// process, so all of these have storages of their own.
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/corpus/parquet/parquet_file.h"
#include "server/storage/storage.h"
#include "tests/fakes/test_certificates.h"
#include "tests/integration/storage/s3_process.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
