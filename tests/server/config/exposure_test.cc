#include "server/config/exposure.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

TEST(ParseConfiguredAddressTest, WantsAbsolutePaths) {
  EXPECT_EQ(ParseConfiguredAddress("unix:/run/a.sock").value().path,
            "/run/a.sock");
  EXPECT_TRUE(ParseConfiguredAddress("unix:/" + std::string(106, 'a')).ok());
  for (const std::string& text :
       {std::string("unix:a.sock"), std::string("unix:"),
        "unix:/" + std::string(107, 'a')}) {
    EXPECT_THAT(
        std::string(ParseConfiguredAddress(text).status().message()),
        HasSubstr("; wanted unix: and an absolute path of at most 107 bytes"));
  }
}

TEST(ParseConfiguredAddressTest, SaysWhatWasFoundAndWanted) {
  EXPECT_EQ(ParseConfiguredAddress("10.0.0.1:7070").value().port, 7070);
  EXPECT_EQ(
      ParseConfiguredAddress("node").status(),
      absl::InvalidArgumentError("found node; wanted unix:/path or host:port"));
}

// The status of serve.http at `text` with these settings.
absl::Status HttpAt(const std::string& text, const v1::Security& security) {
  return CheckHttpExposure(ParseConfiguredAddress(text).value(), text,
                           security);
}

TEST(CheckHttpExposureTest, LoopbackIsAlwaysAllowed) {
  v1::Security tokens;
  tokens.set_tokens_file("tokens");
  for (const char* text : {"127.0.0.1:1", "localhost:1", "[::1]:1"}) {
    EXPECT_TRUE(HttpAt(text, {}).ok()) << text;
    EXPECT_TRUE(HttpAt(text, tokens).ok()) << text;
  }
}

TEST(CheckHttpExposureTest, OtherMachinesWantTlsAndAProof) {
  for (const char* text : {"0.0.0.0:1", "[::]:1", "node-a:1"}) {
    v1::Security security;
    EXPECT_THAT(std::string(HttpAt(text, security).message()),
                HasSubstr("security.tls, since other machines reach it"));
    security.mutable_tls()->set_cert("cert.pem");
    EXPECT_THAT(std::string(HttpAt(text, security).message()),
                HasSubstr("client_ca or security.tokens_file"));
    v1::Security tokens = security;
    tokens.set_tokens_file("tokens");
    EXPECT_TRUE(HttpAt(text, tokens).ok()) << text;
    security.mutable_tls()->set_client_ca("ca.pem");
    EXPECT_TRUE(HttpAt(text, security).ok()) << text;
    v1::Security insecure;
    insecure.set_insecure(true);
    EXPECT_TRUE(HttpAt(text, insecure).ok()) << text;
  }
}

TEST(CheckHttpExposureTest, HasNoUnixSocket) {
  EXPECT_THAT(std::string(HttpAt("unix:/a", {}).message()),
              HasSubstr("wanted host:port"));
}

}  // namespace
}  // namespace ballast
