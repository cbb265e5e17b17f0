#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/storage/storage.h"
#include "server/storage/store_access.h"
#include "server/storage/store_answers.h"
#include "server/storage/store_reader.h"
#include "server/storage/store_url.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(ParseStoreUrlTest, TakesBucketAndKey) {
  const auto url = ParseStoreUrl("s3://bucket/a/b-000.tar");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->scheme, "s3");
  EXPECT_EQ(url->path, "bucket/a/b-000.tar");
  EXPECT_EQ(ParseStoreUrl("s3://bucket/media/")->path, "bucket/media");
  EXPECT_EQ(ParseStoreUrl("file:///data/x.tar")->path, "/data/x.tar");
}

TEST(ParseStoreUrlTest, RefusesWhatCannotBeOpened) {
  for (const char* url :
       {"http://host/x", "s3:///key", "s3://", "s3://b//k", "s3://b/../k",
        "s3://b/./k", "file://relative", "no scheme"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseStoreUrl(url).status())) << url;
  }
  const absl::Status keys = ParseStoreUrl("s3://ID:SECRET@bucket/k").status();
  EXPECT_TRUE(absl::IsInvalidArgument(keys));
  EXPECT_THAT(keys.message(), Not(HasSubstr("SECRET")));
  const absl::Status account =
      ParseStoreUrl("abfs://c@me.dfs.core.windows.net/k").status();
  EXPECT_THAT(account.message(), AllOf(HasSubstr("abfs://CONTAINER/KEY"),
                                       HasSubstr("storage.azure.account")));
}

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
