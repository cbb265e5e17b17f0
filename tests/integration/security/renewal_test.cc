// Certificates that are replaced while a server runs: the clients accepted from
// then on, the connections that continue, and the effect of faulty files.

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/test_certificates.h"
#include "tests/integration/security/small_server.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A server whose certificate and clients are by `old_`, until a test replaces
// its files.
class RenewalTest : public ::testing::Test {
 protected:
  RenewalTest() {
    config_.mutable_serve()->set_read_attempts(3);
    config_.mutable_serve()->set_read_timeout(30);
    config_.mutable_serve()->set_stall_after(10);
    Write(old_);
  }

  void Start() {
    auto server = StartSmallServer("127.0.0.1:0", config_.security());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    address_ = server_->addresses()[0];
  }

  // Writes all three files, issued by `ca`.
  void Write(const TestAuthority& ca) {
    SetIdentity(ca.Issue({}), config_.mutable_security());
    config_.mutable_security()->mutable_tls()->set_client_ca(
        WriteTestFile("ca.pem", ca.cert()));
  }

  // A client whose certificate is by `of_client` and that trusts `of_server`.
  static ChannelSecurity Client(const TestAuthority& of_server,
                                const TestAuthority& of_client) {
    ChannelSecurity security;
    security.ca = of_server.cert();
    const TlsIdentity identity = of_client.Issue({});
    security.cert = identity.cert;
    security.key = identity.key;
    return security;
  }

  // Checks that the server uses the files of `ca` only.
  void ExpectOf(const TestAuthority& ca, const TestAuthority& other) {
    const absl::Status own = TryPull(address_, Client(ca, ca));
    EXPECT_TRUE(own.ok()) << own;
    EXPECT_THAT(std::string(TryAttach(address_, Client(other, ca)).message()),
                HasSubstr("the server's certificate is not by a CA of"));
    EXPECT_THAT(std::string(TryAttach(address_, Client(ca, other)).message()),
                HasSubstr("refuses the client's certificate"));
  }

  const TestAuthority old_{"old"};
  const TestAuthority new_{"new"};
  v1::Config config_;
  std::unique_ptr<LoaderServer> server_;
  std::string address_;
};

TEST_F(RenewalTest, HandshakesUseTheNewFilesAndStreamsContinue) {
  Start();
  ExpectOf(old_, new_);
  const auto client = LoaderClient::CreateSecure(address_, Client(old_, old_));
  const auto watcher = client->WatchSchedule(0, 3);
  ASSERT_TRUE(watcher.ok());
  EXPECT_TRUE((*watcher)->Next().ok());

  Write(new_);
  EXPECT_TRUE((*watcher)->Next().ok());
  ExpectOf(old_, new_);  // the server has not been told
  const absl::Status reloaded = server_->Reload(config_);
  ASSERT_TRUE(reloaded.ok()) << reloaded;
  ExpectOf(new_, old_);
  EXPECT_TRUE((*watcher)->Next().ok());
  // The connection is still there, also for further calls.
  EXPECT_TRUE(client->GetSchedule(0).ok());

  Write(old_);
  ASSERT_TRUE(server_->Reload(config_).ok());
  ExpectOf(old_, new_);
}

TEST_F(RenewalTest, RenewTlsFindsNewFilesOnce) {
  Start();
  EXPECT_EQ(*server_->RenewTls(), false);
  Write(new_);
  EXPECT_EQ(*server_->RenewTls(), true);
  EXPECT_EQ(*server_->RenewTls(), false);
  ExpectOf(new_, old_);
  // Replaces only the authorities.
  WriteTestFile("ca.pem", new_.cert() + old_.cert());
  EXPECT_EQ(*server_->RenewTls(), true);
  const absl::Status both = TryAttach(address_, Client(new_, old_));
  EXPECT_TRUE(both.ok()) << both;
}

TEST_F(RenewalTest, RenewTlsDoesNothingWithoutTls) {
  const auto server = StartSmallServer("127.0.0.1:0", v1::Security());
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(*(*server)->RenewTls(), false);
}

TEST_F(RenewalTest, FaultyFilesLeaveTheOldOnesInUse) {
  Start();
  TestAuthority::Wanted wanted;
  wanted.from = -absl::Hours(2);
  wanted.until = -absl::Hours(1);
  const TlsIdentity good = new_.Issue({});
  const TlsIdentity expired = new_.Issue(wanted);
  const TlsIdentity other = new_.Issue({});
  const struct {
    std::string cert, key, ca, file, why;
  } kCases[] = {
      {good.cert, other.key, new_.cert(),
       "security.tls.key: ", "is not the key of the certificate"},
      {good.cert.substr(0, 99), good.key, new_.cert(),
       "security.tls.cert: ", "holds no certificate"},
      {expired.cert, expired.key, new_.cert(),
       "security.tls.cert: ", "expired at"},
      {good.cert, "", new_.cert(),
       "security.tls.key: ", "holds no private key"},
      {good.cert, good.key, "no PEM",
       "security.tls.client_ca: ", "holds no certificate"},
  };
  for (const auto& test : kCases) {
    WriteTestFile("server.pem", test.cert);
    WriteTestFile("server.key", test.key);
    WriteTestFile("ca.pem", test.ca);
    for (const absl::Status& status :
         {server_->RenewTls().status(), server_->Reload(config_)}) {
      EXPECT_THAT(std::string(status.message()),
                  AllOf(StartsWith(test.file), HasSubstr(test.why)));
    }
    ExpectOf(old_, new_);
  }
  // Files without faults are adopted again.
  Write(new_);
  EXPECT_EQ(*server_->RenewTls(), true);
  ExpectOf(new_, old_);
}

TEST_F(RenewalTest, TokensAndCertificatesChangeTogetherOrNotAtAll) {
  constexpr char kBefore[] = "the-token-of-yesterday";
  constexpr char kAfter[] = "the-token-of-tomorrow";
  config_.mutable_security()->set_tokens_file(WriteTestFile("tokens", kBefore));
  Start();
  const auto attach = [&](const TestAuthority& ca, const char* token) {
    ChannelSecurity client = Client(ca, ca);
    client.token = token;
    return TryAttach(address_, client).code();
  };
  const auto refused = absl::StatusCode::kUnauthenticated;
  EXPECT_EQ(attach(old_, kBefore), absl::StatusCode::kOk);
  EXPECT_EQ(attach(old_, kAfter), refused);

  Write(new_);
  WriteTestFile("tokens", "x");
  EXPECT_THAT(std::string(server_->Reload(config_).message()),
              HasSubstr("security.tokens_file: "));
  EXPECT_EQ(attach(old_, kBefore), absl::StatusCode::kOk);

  WriteTestFile("tokens", kAfter);
  WriteTestFile("server.key", "");
  EXPECT_THAT(std::string(server_->Reload(config_).message()),
              HasSubstr("security.tls.key: "));
  EXPECT_EQ(attach(old_, kBefore), absl::StatusCode::kOk);

  Write(new_);
  ASSERT_TRUE(server_->Reload(config_).ok());
  EXPECT_EQ(attach(new_, kAfter), absl::StatusCode::kOk);
  EXPECT_EQ(attach(new_, kBefore), refused);
  EXPECT_EQ(attach(old_, kAfter), refused);
}

// Each handshake uses one identity as a whole, not parts of two.
TEST_F(RenewalTest, ConcurrentHandshakesUseOneIdentity) {
  config_.mutable_security()->mutable_tls()->clear_client_ca();
  const std::string both = old_.cert() + new_.cert();
  Start();
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&] {
      ChannelSecurity client;
      client.ca = both;
      for (int round = 0; round < 5; ++round) {
        const absl::Status status = TryAttach(address_, client);
        EXPECT_TRUE(status.ok()) << status;
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    SetIdentity((round % 2 == 0 ? new_ : old_).Issue({}),
                config_.mutable_security());
    EXPECT_EQ(*server_->RenewTls(), true);
  }
  for (std::thread& client : clients) client.join();
}

}  // namespace
}  // namespace ballast
