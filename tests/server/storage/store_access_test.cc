// What clients of Google's and Azure's stores are made of.
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/storage/store_access.h"

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

}  // namespace
}  // namespace ballast
