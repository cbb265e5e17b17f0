#include "common/channel_security.h"

#include <cstdio>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/test_certificates.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kToken[] = "0123456789abcdef-._~+/=";

std::string Message(const SecurityFiles& files) {
  return std::string(LoadChannelSecurity(files).status().message());
}

TEST(LoadChannelSecurity, NoFilesMeanNoSecurity) {
  const auto security = LoadChannelSecurity({});
  ASSERT_TRUE(security.ok()) << security.status();
  EXPECT_EQ(security->ca, "");
  EXPECT_EQ(security->token, "");
  EXPECT_TRUE(ChannelCredentialsFor(*security, "node:1").ok());
}

TEST(LoadChannelSecurity, NamesTheOptionThatIsMissing) {
  SecurityFiles files;
  files.tls_cert = "a";
  EXPECT_THAT(Message(files), HasSubstr("--tls-cert needs --tls-key"));
  files.tls_key = "b";
  EXPECT_THAT(Message(files), HasSubstr("--tls-cert needs --tls-ca"));
  files = {};
  files.tls_key = "b";
  EXPECT_THAT(Message(files), HasSubstr("--tls-key needs --tls-cert"));
  files = {};
  files.tls_server_name = "node";
  EXPECT_THAT(Message(files), HasSubstr("--tls-server-name needs --tls-ca"));
}

TEST(LoadChannelSecurity, NamesTheOptionWhoseFileIsFaulty) {
  SecurityFiles files;
  files.tls_ca = "/no/ca.pem";
  EXPECT_THAT(Message(files), HasSubstr("--tls-ca: /no/ca.pem: "));
  files = {};
  files.token_file = "/no/token";
  EXPECT_THAT(Message(files), HasSubstr("--token-file: /no/token: "));
}

TEST(LoadChannelSecurity, TheTokenIsTheFirstLine) {
  SecurityFiles files;
  files.token_file =
      WriteTestFile("token", std::string(kToken) + " \r\nmore\n");
  const auto security = LoadChannelSecurity(files);
  ASSERT_TRUE(security.ok()) << security.status();
  EXPECT_EQ(security->token, kToken);
}

// A rank lives as long as its training, and its token does not.
TEST(LoadChannelSecurity, EachCallHasTheTokenThatTheFileHoldsThen) {
  const std::string next = "the-token-after-it";
  SecurityFiles files;
  files.token_file = WriteTestFile("token", std::string(kToken) + "\n");
  const auto security = LoadChannelSecurity(files);
  ASSERT_TRUE(security.ok()) << security.status();
  EXPECT_EQ(security->current_token(), kToken);
  WriteTestFile("token", "short");
  EXPECT_EQ(security->current_token(), kToken);
  WriteTestFile("token", next + "\n");
  EXPECT_EQ(security->current_token(), next);
  remove(files.token_file.c_str());
  EXPECT_EQ(security->current_token(), next);
}

TEST(LoadChannelSecurity, AFaultyTokenIsNotRepeated) {
  for (const std::string token :
       {"short-secret", "sixteen bytes or more with spaces",
        "secret-with-control-\x01-bytes"}) {
    SecurityFiles files;
    files.token_file = WriteTestFile("token", token + "\n");
    EXPECT_THAT(Message(files), AllOf(HasSubstr("/token:1: found a token"),
                                      Not(HasSubstr(token))));
  }
}

TEST(ChannelCredentialsFor, ATokenGoesOnlyOverTlsOrAUnixSocket) {
  ChannelSecurity security;
  security.token = kToken;
  EXPECT_TRUE(ChannelCredentialsFor(security, "unix:/a.sock").ok());
  const auto plain = ChannelCredentialsFor(security, "127.0.0.1:7070");
  EXPECT_EQ(plain.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(plain.status().message()),
              AllOf(HasSubstr("127.0.0.1:7070"), HasSubstr("--tls-ca"),
                    Not(HasSubstr(kToken))));
  security.ca = TestAuthority("ca").cert();
  EXPECT_TRUE(ChannelCredentialsFor(security, "127.0.0.1:7070").ok());
}

}  // namespace
}  // namespace ballast
