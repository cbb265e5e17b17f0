// What clients of Google's and Azure's stores are made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>

#include "server/files/storage.h"
#include "server/files/store_access.h"
#include "server/files/store_reader.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Variables = std::map<std::string, std::string>;

GetVariable Of(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

std::string Write(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(SplitEndpointTest, TellsSchemeAndAuthority) {
  EXPECT_EQ(SplitEndpoint("").authority, "");
  EXPECT_EQ(SplitEndpoint("").scheme, "https");
  EXPECT_EQ(SplitEndpoint("http://h:1/").authority, "h:1");
  EXPECT_EQ(SplitEndpoint("http://h:1/").scheme, "http");
  EXPECT_EQ(SplitEndpoint("https://h").scheme, "https");
  EXPECT_EQ(SplitEndpoint("https://h").authority, "h");
}

absl::StatusOr<GcsAccess> Gcs(const std::string& credentials,
                              const Variables& variables = {}) {
  v1::Storage::Gcs gcs;
  gcs.set_endpoint("http://store:1");
  gcs.set_credentials(credentials);
  return ResolveGcsAccess(gcs, Of(variables));
}

TEST(GcsAccessTest, FollowsTheConfiguration) {
  const auto anonymous = Gcs("anonymous");
  ASSERT_TRUE(anonymous.ok()) << anonymous.status();
  EXPECT_EQ(anonymous->kind, GcsAccess::Kind::kAnonymous);
  EXPECT_EQ(anonymous->endpoint.authority, "store:1");
  EXPECT_EQ(anonymous->endpoint.scheme, "http");
  EXPECT_EQ(Gcs("instance")->kind, GcsAccess::Kind::kDefault);
  const std::string text =
      R"({"type": "service_account", "private_key": "HIDDEN"})";
  const auto file = Gcs(Write("key.json", text));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->kind, GcsAccess::Kind::kServiceAccount);
  EXPECT_EQ(file->key, text);
}

// Without them the library would ask for the machine's role, for minutes.
TEST(GcsAccessTest, TheEnvironmentMustHoldCredentials) {
  const auto none = Gcs("environment", {{"HOME", "/nowhere"}});
  EXPECT_TRUE(absl::IsFailedPrecondition(none.status())) << none.status();
  EXPECT_THAT(none.status().message(),
              AllOf(HasSubstr("storage.gcs.credentials is environment"),
                    HasSubstr("GOOGLE_APPLICATION_CREDENTIALS"),
                    HasSubstr("anonymous")));
  const auto missing =
      Gcs("environment", {{"GOOGLE_APPLICATION_CREDENTIALS", "/no/key.json"}});
  EXPECT_THAT(missing.status().message(), HasSubstr("/no/key.json"));
  EXPECT_TRUE(Gcs("environment",
                  {{"GOOGLE_APPLICATION_CREDENTIALS", Write("any.json", "{}")}})
                  .ok());
  const std::string home = ::testing::TempDir() + "/home";
  std::filesystem::create_directories(home + "/.config/gcloud");
  std::ofstream(home + "/.config/gcloud/application_default_credentials.json")
      << "{}";
  EXPECT_EQ(Gcs("environment", {{"HOME", home}})->kind,
            GcsAccess::Kind::kDefault);
}

TEST(GcsAccessTest, RefusesOtherFilesWithoutTheirText) {
  for (const char* text :
       {"", "HIDDEN", "[1]", R"({"type": "authorized_user", "x": "HIDDEN"})",
        R"({"type": "service_account", "private_key": 1, "x": "HIDDEN"})"}) {
    const absl::Status status = Gcs(Write("other.json", text)).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << text;
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("other.json"), Not(HasSubstr("HIDDEN"))));
  }
}

absl::StatusOr<AzureAccess> Azure(const std::string& credentials,
                                  const Variables& variables = {},
                                  const std::string& account = "",
                                  const std::string& endpoint = "") {
  v1::Storage::Azure azure;
  azure.set_credentials(credentials);
  azure.set_account(account);
  azure.set_endpoint(endpoint);
  return ResolveAzureAccess(azure, Of(variables));
}

TEST(AzureAccessTest, FollowsTheConfiguration) {
  const auto anonymous = Azure("anonymous", {}, "mine");
  ASSERT_TRUE(anonymous.ok()) << anonymous.status();
  EXPECT_EQ(anonymous->kind, AzureAccess::Kind::kAnonymous);
  EXPECT_EQ(anonymous->account, "mine");
  EXPECT_EQ(anonymous->blob_authority, ".blob.core.windows.net");
  EXPECT_EQ(anonymous->dfs_authority, ".dfs.core.windows.net");
  EXPECT_EQ(anonymous->scheme, "https");
  const auto own = Azure("instance", {{"AZURE_STORAGE_ACCOUNT", "other"}}, "",
                         "http://127.0.0.1:10000/");
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->kind, AzureAccess::Kind::kInstance);
  EXPECT_EQ(own->account, "other");
  EXPECT_EQ(own->scheme, "http");
  EXPECT_EQ(own->blob_authority, "127.0.0.1:10000");
  EXPECT_EQ(own->dfs_authority, "127.0.0.1:10000");
}

TEST(AzureAccessTest, TakesTheFirstOfTheEnvironment) {
  Variables variables = {{"AZURE_TENANT_ID", "t"}, {"AZURE_CLIENT_ID", "c"}};
  const auto kind = [&] {
    const auto access = Azure("environment", variables, "mine");
    EXPECT_TRUE(access.ok()) << access.status();
    return access->kind;
  };
  EXPECT_EQ(kind(), AzureAccess::Kind::kPrincipal);
  variables["AZURE_STORAGE_SAS_TOKEN"] = "sv=1&sig=x";
  EXPECT_EQ(kind(), AzureAccess::Kind::kSas);
  variables["AZURE_STORAGE_KEY"] = "S2V5";
  EXPECT_EQ(kind(), AzureAccess::Kind::kKey);
  variables["AZURE_STORAGE_CONNECTION_STRING"] =
      "AccountName=mine;SharedAccessSignature=sv=2&sig=y";
  EXPECT_EQ(kind(), AzureAccess::Kind::kSas);
  EXPECT_EQ(Azure("environment", variables)->secret, "sv=2&sig=y");
}

TEST(AzureAccessTest, SaysWhatIsMissing) {
  const absl::Status none = Azure("environment", {}, "mine").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(none));
  EXPECT_THAT(none.message(), AllOf(HasSubstr("AZURE_STORAGE_KEY"),
                                    HasSubstr("storage.azure.credentials")));
  const absl::Status no_account = Azure("anonymous").status();
  EXPECT_THAT(no_account.message(), HasSubstr("storage.azure.account"));
}

TEST(AzureAccessTest, ReadsConnectionStrings) {
  const auto portal = Azure(Write(
      "portal.txt",
      "DefaultEndpointsProtocol=https;AccountName=mine;AccountKey=a2V5+/==;"
      "EndpointSuffix=core.chinacloudapi.cn\n"));
  ASSERT_TRUE(portal.ok()) << portal.status();
  EXPECT_EQ(portal->kind, AzureAccess::Kind::kKey);
  EXPECT_EQ(portal->secret, "a2V5+/==");
  EXPECT_EQ(portal->account, "mine");
  EXPECT_EQ(portal->blob_authority, ".blob.core.chinacloudapi.cn");
  EXPECT_EQ(portal->dfs_authority, ".dfs.core.chinacloudapi.cn");
  // A variable that is set to nothing names no account.
  EXPECT_EQ(Azure(Write("string.txt", "AccountName=mine;AccountKey=k"),
                  {{"AZURE_STORAGE_ACCOUNT", ""}}, "")
                ->account,
            "mine");
  const auto emulator = ParseConnectionString(
      "x",
      "AccountName=dev;AccountKey=k;BlobEndpoint=http://127.0.0.1:10000/"
      "dev;");
  ASSERT_TRUE(emulator.ok()) << emulator.status();
  EXPECT_EQ(emulator->scheme, "http");
  EXPECT_EQ(emulator->blob_authority, "127.0.0.1:10000");
  const auto sas =
      ParseConnectionString("x",
                            "BlobEndpoint=https://mine.blob.core.windows.net/;"
                            "SharedAccessSignature=sv=3&sig=z");
  ASSERT_TRUE(sas.ok()) << sas.status();
  EXPECT_EQ(sas->account, "mine");
  EXPECT_EQ(sas->blob_authority, ".blob.core.windows.net");
  EXPECT_EQ(sas->dfs_authority, ".dfs.core.windows.net");
}

TEST(AzureAccessTest, RefusesOtherTextsWithoutThem) {
  for (const char* text : {"", "HIDDEN", "AccountName=mine;Key=HIDDEN"}) {
    const absl::Status status = ParseConnectionString("there", text).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << text;
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("there: "), Not(HasSubstr("HIDDEN"))));
  }
  const absl::Status other = Azure("environment",
                                   {{"AZURE_STORAGE_CONNECTION_STRING",
                                     "AccountName=mine;AccountKey=HIDDEN"}},
                                   "yours")
                                 .status();
  EXPECT_THAT(other.message(), AllOf(HasSubstr("mine"), HasSubstr("yours"),
                                     Not(HasSubstr("HIDDEN"))));
}

using ::testing::ElementsAre;

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(CoalesceTest, JoinsAcrossSmallGapsAlone) {
  EXPECT_THAT(
      Coalesce({{10 * kMiB, 5}, {0, 100}, {100 + kGapBytes, 10}, {50, 20}}),
      ElementsAre(ByteRange{0, 110 + kGapBytes}, ByteRange{10 * kMiB, 5}));
  EXPECT_THAT(Coalesce({{0, 1}, {2 + kGapBytes, 1}}),
              ElementsAre(ByteRange{0, 1}, ByteRange{2 + kGapBytes, 1}));
}

TEST(SplitIntoPartsTest, CoversTheRangeOnce) {
  EXPECT_THAT(SplitIntoParts({3, 2 * kPartBytes + 1}),
              ElementsAre(ByteRange{3, kPartBytes},
                          ByteRange{3 + kPartBytes, kPartBytes},
                          ByteRange{3 + 2 * kPartBytes, 1}));
  EXPECT_THAT(SplitIntoParts({3, 0}), ElementsAre());
}

TEST(RangeToKeepTest, GivesSmallRangesTheirBlocks) {
  const uint64_t size = 10 * kBlockBytes + 7;
  EXPECT_EQ(RangeToKeep({5, kSmallBytes}, size), (ByteRange{5, kSmallBytes}));
  EXPECT_EQ(RangeToKeep({kBlockBytes + 5, 10}, size),
            (ByteRange{kBlockBytes, kBlockBytes}));
  // Across a border, and up to the object's end.
  EXPECT_EQ(RangeToKeep({kBlockBytes - 1, 2}, size),
            (ByteRange{0, 2 * kBlockBytes}));
  EXPECT_EQ(RangeToKeep({size - 1, 1}, size), (ByteRange{10 * kBlockBytes, 7}));
}

TEST(NextWindowTest, GrowsWhileReadsFollowEachOther) {
  const uint64_t size = 100 * kMiB;
  ByteRange window = NextWindow({}, {0, 512}, size);
  EXPECT_EQ(window, (ByteRange{0, kMinWindow}));
  window = NextWindow(window, {kMinWindow, 512}, size);
  EXPECT_EQ(window, (ByteRange{kMinWindow, 2 * kMinWindow}));
  // A jump over an image: as little as possible again.
  window = NextWindow(window, {50 * kMiB, 512}, size);
  EXPECT_EQ(window, (ByteRange{50 * kMiB, kMinWindow}));
  EXPECT_EQ(NextWindow(window, {10, 3 * kMiB}, size),
            (ByteRange{10, 3 * kMiB}));
  EXPECT_EQ(NextWindow({}, {size - 1, 1}, size), (ByteRange{size - 1, 1}));
}

TEST(StoreFaultTest, TellsMissingFromUnavailable) {
  const char* const url = "s3://b/k";
  EXPECT_TRUE(absl::IsNotFound(StoreFault("stat", url, "no", true)));
  EXPECT_TRUE(absl::IsNotFound(StoreFault(
      "read", url, "AWS Error NO_SUCH_KEY during GetObject", false)));
  const absl::Status bucket =
      StoreFault("list", url, "AWS Error NO_SUCH_BUCKET during List", false);
  EXPECT_TRUE(absl::IsNotFound(bucket));
  EXPECT_THAT(bucket.message(), HasSubstr("storage.s3.endpoint"));
}

// Refused credentials must never look like a data fault or a missing image.
TEST(StoreFaultTest, RefusedKeysAreTransientAndSayWhatToDo) {
  for (const char* message :
       {"AWS Error ACCESS_DENIED during HeadObject operation",
        "AWS Error SIGNATURE_DOES_NOT_MATCH during ListObjectsV2 operation",
        "HTTP status 403"}) {
    const absl::Status status = StoreFault("stat", "s3://b/k", message, false);
    EXPECT_TRUE(absl::IsUnavailable(status)) << message;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("s3://b/k: cannot stat"),
                                        HasSubstr("storage.s3.credentials")));
  }
  EXPECT_TRUE(absl::IsUnavailable(
      StoreFault("read", "s3://b/k", "curlCode: 28, Timeout", false)));
}

TEST(StoreFaultTest, SpeaksOfTheSectionOfItsStore) {
  for (const auto& [url, section] : std::map<std::string, std::string>{
           {"gs://b/k", "storage.gcs"}, {"abfs://b/k", "storage.azure"}}) {
    for (const char* message :
         {"google::cloud::Status(PERMISSION_DENIED: Permanent error",
          "google::cloud::Status(UNAUTHENTICATED: Permanent error",
          "Azure Error: [AuthenticationFailed] 403 Server failed"}) {
      const absl::Status status = StoreFault("stat", url, message, false);
      EXPECT_TRUE(absl::IsUnavailable(status)) << message;
      EXPECT_THAT(status.message(), HasSubstr(section + ".credentials"));
    }
    for (const char* message :
         {"CURL error [7]=Could not connect to server",
          "Azure Error: [] Fail to get a new connection for: http://h."}) {
      const absl::Status status = StoreFault("stat", url, message, false);
      EXPECT_TRUE(absl::IsUnavailable(status)) << message;
      EXPECT_THAT(status.message(), HasSubstr(section + ".endpoint"));
    }
  }
}

// Entries of one folder, of a listing of all below it.
TEST(FolderListingTest, FoldsWhatLiesDeeper) {
  const std::vector<StoreEntry> found =
      FolderListing("b/a", {{.path = "b/a/x", .size = 3},
                            {.path = "b/a/sub/y", .size = 4},
                            {.path = "b/a/sub/deep/z", .size = 5},
                            {.path = "b/ab/no", .size = 6}});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].path, "b/a/x");
  EXPECT_EQ(found[0].size, 3u);
  EXPECT_EQ(found[1].path, "b/a/sub");
  EXPECT_TRUE(found[1].is_folder);
}

TEST(StoreCredentialsTest, ReadsTheEnvironment) {
  std::map<std::string, std::string> variables = {
      {"AWS_ACCESS_KEY_ID", "ID"}, {"AWS_SECRET_ACCESS_KEY", "S"}};
  const GetVariable get =
      [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  const auto keys = KeysOfEnvironment(get);
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(keys->id, "ID");
  EXPECT_EQ(keys->secret, "S");
  EXPECT_EQ(keys->session_token, "");
  variables.erase("AWS_SECRET_ACCESS_KEY");
  const absl::Status missing = KeysOfEnvironment(get).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(missing));
  EXPECT_THAT(missing.message(), HasSubstr("AWS_SECRET_ACCESS_KEY is not set"));
}

TEST(StoreCredentialsTest, ReadsTheDefaultSectionOfAFile) {
  const auto keys = ParseKeysFile("keys",
                                  "[other]\naws_access_key_id = X\n"
                                  "[default]\n# a comment\n"
                                  "aws_access_key_id = ID \n"
                                  "aws_secret_access_key=a=b/c+\r\n"
                                  "aws_session_token = T\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->id, "ID");
  EXPECT_EQ(keys->secret, "a=b/c+");
  EXPECT_EQ(keys->session_token, "T");
  const absl::Status none =
      ParseKeysFile("keys", "[default]\naws_access_key_id = ID\n").status();
  EXPECT_THAT(none.message(), AllOf(HasSubstr("keys: no aws_secret_access_key"),
                                    Not(HasSubstr("ID\n"))));
}

TEST(ObjectVersionTest, IsTheETagOrElseTheTime) {
  const auto version =
      [](std::vector<std::pair<std::string, std::string>> fields) {
        return VersionOfFields(fields);
      };
  const std::pair<std::string, std::string> time = {"Last-Modified", "Monday"};
  EXPECT_EQ(version({{"Content-Length", "5"}, {"ETag", "\"a\""}, time}),
            "ETag=\"a\"");
  EXPECT_EQ(version({time, {"etag", "a"}}), "etag=a");
  // Servers that make no ETags answer one that is the same for all.
  for (const char* none : {"", "\"\"", "W/\"\"", " \"\" "}) {
    EXPECT_EQ(version({{"ETag", none}, time}), "Last-Modified=Monday") << none;
  }
  EXPECT_EQ(version({{"ETag", "\"\""}}), "");
  EXPECT_EQ(version({}), "");
}

TEST(StoreCredentialsTest, MessagesHoldNoKey) {
  const StoreKeys keys = {"AKIA1", "s3cr3t", "token"};
  EXPECT_EQ(WithoutKeys("AKIA1 with s3cr3t and token, s3cr3t", keys),
            "*** with *** and ***, ***");
  EXPECT_EQ(WithoutKeys("nothing", StoreKeys()), "nothing");
}

}  // namespace
}  // namespace ballast
