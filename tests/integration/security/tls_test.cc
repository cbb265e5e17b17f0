// TLS on both sides: which clients are accepted, and the errors of those
// refused.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/serve/service/peer_check.h"
#include "tests/fakes/test_certificates.h"
#include "tests/integration/security/small_server.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TlsTest : public ::testing::Test {
 protected:
  // Settings of a server that accepts clients with certificates by `ca_`.
  v1::Security ServerSide(const TestAuthority::Wanted& wanted = {}) const {
    v1::Security security;
    SetIdentity(ca_.Issue(wanted), &security);
    security.mutable_tls()->set_client_ca(WriteTestFile("ca.pem", ca_.cert()));
    return security;
  }

  // Settings of a client with a certificate by `issuer`; none if null.
  ChannelSecurity ClientSide(const TestAuthority* issuer,
                             const TestAuthority::Wanted& wanted = {}) const {
    ChannelSecurity security;
    security.ca = ca_.cert();
    if (issuer != nullptr) {
      const TlsIdentity identity = issuer->Issue(wanted);
      security.cert = identity.cert;
      security.key = identity.key;
    }
    return security;
  }

  static std::unique_ptr<LoaderServer> Start(
      const v1::Security& security,
      const std::string& address = "127.0.0.1:0") {
    auto server = StartSmallServer(address, security);
    EXPECT_TRUE(server.ok()) << server.status();
    return server.ok() ? *std::move(server) : nullptr;
  }

  // Checks for UNAUTHENTICATED with `why` and the server's address.
  static void ExpectRefused(const absl::Status& status,
                            const std::string& address,
                            const std::string& why) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr(absl::StrCat("server ", address)), HasSubstr(why)));
  }

  const TestAuthority ca_{"cluster"};
  const TestAuthority other_ca_{"elsewhere"};
};

TEST_F(TlsTest, AcceptsClientsWithACertificate) {
  const auto server = Start(ServerSide());
  ASSERT_NE(server, nullptr);
  const std::string address = server->addresses()[0];
  EXPECT_TRUE(TryAttach(address, ClientSide(&ca_)).ok());
  const absl::Status pulled = TryPull(address, ClientSide(&ca_));
  EXPECT_TRUE(pulled.ok()) << pulled;
  const auto client = LoaderClient::CreateSecure(address, ClientSide(&ca_));
  EXPECT_TRUE(client->CheckHealth().ok());
}

TEST_F(TlsTest, RefusesClientsWithoutACertificate) {
  const auto server = Start(ServerSide());
  ASSERT_NE(server, nullptr);
  const std::string address = server->addresses()[0];
  ExpectRefused(TryAttach(address, ClientSide(nullptr)), address,
                "give --tls-cert and --tls-key");
  EXPECT_FALSE(TryPull(address, ClientSide(nullptr)).ok());
  const auto client = LoaderClient::CreateSecure(address, ClientSide(nullptr));
  ExpectRefused(client->CheckHealth(), address, "--tls-cert");
  ExpectRefused(client->GetSchedule(0).status(), address, "--tls-cert");
}

TEST_F(TlsTest, RefusesClientsOfAnotherAuthority) {
  const auto server = Start(ServerSide());
  ASSERT_NE(server, nullptr);
  ExpectRefused(
      TryAttach(server->addresses()[0], ClientSide(&other_ca_)),
      server->addresses()[0],
      "refuses the client's certificate: it is not by a CA of the server's "
      "security.tls.client_ca");
}

TEST_F(TlsTest, RefusesClientsWithAnExpiredCertificate) {
  const auto server = Start(ServerSide());
  ASSERT_NE(server, nullptr);
  TestAuthority::Wanted wanted;
  wanted.from = -absl::Hours(2);
  wanted.until = -absl::Hours(1);
  ExpectRefused(TryAttach(server->addresses()[0], ClientSide(&ca_, wanted)),
                server->addresses()[0],
                "refuses the client's certificate: it has expired");
}

TEST_F(TlsTest, ClientsRefuseAServerOfAnotherAuthority) {
  const auto server = Start(ServerSide());
  ASSERT_NE(server, nullptr);
  ChannelSecurity client = ClientSide(&ca_);
  client.ca = other_ca_.cert();
  ExpectRefused(TryAttach(server->addresses()[0], client),
                server->addresses()[0],
                "the server's certificate is not by a CA of --tls-ca: ");
}

TEST_F(TlsTest, ClientsRefuseAServerOfAnotherName) {
  TestAuthority::Wanted wanted;
  wanted.hosts = {"DNS:node-a", "DNS:node-a.cluster"};
  const auto server = Start(ServerSide(wanted));
  ASSERT_NE(server, nullptr);
  const std::string address = server->addresses()[0];
  ChannelSecurity client = ClientSide(&ca_);
  ExpectRefused(TryAttach(address, client), address,
                "is for node-a, node-a.cluster, not for 127.0.0.1; give "
                "--tls-server-name");
  client.server_name = "node-b";
  ExpectRefused(TryAttach(address, client), address, "not for node-b");
  client.server_name = "node-a.cluster";
  EXPECT_TRUE(TryAttach(address, client).ok());
}

// A LoaderServer does not start with an expired certificate. This server stands
// in for one whose certificate expires while it runs.
TEST_F(TlsTest, ClientsRefuseAServerWithAnExpiredCertificate) {
  TestAuthority::Wanted wanted;
  wanted.from = -absl::Hours(2);
  wanted.until = -absl::Hours(1);
  const TlsIdentity identity = ca_.Issue(wanted);
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({identity.key, identity.cert});
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options),
                           &port);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const std::string address = absl::StrCat("127.0.0.1:", port);
  const auto client = LoaderClient::CreateSecure(address, ClientSide(&ca_));
  ExpectRefused(client->CheckHealth(), address,
                "the server's certificate has expired");
}

TEST_F(TlsTest, NamesTlsThatOnlyOneSideUses) {
  const auto tls = Start(ServerSide());
  const auto plain = Start(v1::Security());
  ASSERT_TRUE(tls != nullptr && plain != nullptr);
  ExpectRefused(TryAttach(tls->addresses()[0], ChannelSecurity()),
                tls->addresses()[0], "uses TLS at this address; give --tls-ca");
  ExpectRefused(TryAttach(plain->addresses()[0], ClientSide(&ca_)),
                plain->addresses()[0], "does not use TLS at this address");
}

TEST_F(TlsTest, AMissingServerIsUnavailable) {
  auto server = Start(ServerSide());
  ASSERT_NE(server, nullptr);
  const std::string address = server->addresses()[0];
  server.reset();
  EXPECT_EQ(TryAttach(address, ClientSide(&ca_)).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(TryAttach(address, ChannelSecurity()).code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(TlsTest, NeedsNoClientCertificateWithoutAClientCa) {
  v1::Security security = ServerSide();
  security.mutable_tls()->clear_client_ca();
  const auto server = Start(security);
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(TryPull(server->addresses()[0], ClientSide(nullptr)).ok());
}

TEST_F(TlsTest, ServersCallEachOtherOverTls) {
  const auto server = Start(ServerSide());
  ASSERT_NE(server, nullptr);
  const std::string address = server->addresses()[0];
  const auto caller = [](const ChannelSecurity& security) {
    return MakeGrpcPeerCaller([security] { return security; });
  };
  EXPECT_TRUE(caller(ClientSide(&ca_))->Attach(address).ok());
  EXPECT_FALSE(caller({})->Attach(address).ok());
}

// The error of a server that does not start after a change of its security.
template <typename Change>
std::string StartMessage(v1::Security security, Change change) {
  change(&security);
  return std::string(
      StartSmallServer("127.0.0.1:0", security).status().message());
}

TEST_F(TlsTest, NamesFaultyFilesBeforeServing) {
  const v1::Security good = ServerSide();
  const TlsIdentity other = ca_.Issue({});
  TestAuthority::Wanted wanted;
  wanted.from = -absl::Hours(2);
  wanted.until = -absl::Hours(1);
  const std::string old = WriteTestFile("old.pem", ca_.Issue(wanted).cert);
  const std::string key = WriteTestFile("another.key", other.key);
  EXPECT_THAT(StartMessage(good,
                           [](v1::Security* security) {
                             security->mutable_tls()->set_cert("/no.pem");
                           }),
              HasSubstr("security.tls.cert: /no.pem: "));
  EXPECT_THAT(StartMessage(good,
                           [&](v1::Security* security) {
                             security->mutable_tls()->set_cert(old);
                           }),
              AllOf(HasSubstr("security.tls.cert: "), HasSubstr("expired at")));
  EXPECT_THAT(StartMessage(good,
                           [&](v1::Security* security) {
                             security->mutable_tls()->set_key(key);
                           }),
              AllOf(HasSubstr("security.tls.key: "), HasSubstr("another.key"),
                    HasSubstr("not the key of the certificate")));
  EXPECT_THAT(StartMessage(good,
                           [&](v1::Security* security) {
                             security->mutable_tls()->set_client_ca(key);
                           }),
              AllOf(HasSubstr("security.tls.client_ca: "),
                    HasSubstr("no certificate")));
}

TEST_F(TlsTest, RefusesToServeOtherMachinesUnsecured) {
  const auto message = [](const v1::Security& security) {
    const auto server = StartSmallServer("0.0.0.0:0", security);
    return std::string(server.status().message());
  };
  EXPECT_THAT(message(v1::Security()),
              AllOf(HasSubstr("serve.listen: "), HasSubstr("0.0.0.0:0"),
                    HasSubstr("security.tls"), HasSubstr("insecure: true")));
  v1::Security half = ServerSide();
  half.mutable_tls()->clear_client_ca();
  EXPECT_THAT(message(half), AllOf(HasSubstr("security.tls.client_ca"),
                                   HasSubstr("security.tokens_file")));
  EXPECT_EQ(message(ServerSide()), "");
  v1::Security insecure;
  insecure.set_insecure(true);
  EXPECT_EQ(message(insecure), "");
}

using ::testing::StartsWith;

// Certificates that are replaced while a server runs: the clients accepted from
// then on, the connections that continue, and the effect of faulty files.

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

// As when all certificates of a job are renewed and its server is started anew.
TEST_F(RenewalTest, ARunningClientGoesOnWithTheFilesOfThen) {
  Start();
  SecurityFiles files;
  files.renewal = absl::Seconds(1);
  const auto write = [&](const TestAuthority& ca) {
    const TlsIdentity identity = ca.Issue({});
    files.tls_ca = WriteTestFile("client-ca.pem", ca.cert());
    files.tls_cert = WriteTestFile("client.pem", identity.cert);
    files.tls_key = WriteTestFile("client.key", identity.key);
  };
  write(old_);
  const auto security = LoadChannelSecurity(files);
  ASSERT_TRUE(security.ok()) << security.status();
  const auto client = LoaderClient::CreateSecure(address_, *security);
  absl::Status asked = client->GetSchedule(0).status();
  EXPECT_TRUE(asked.ok()) << asked;

  Write(new_);
  server_.reset();
  auto server = StartSmallServer(address_, config_.security());
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(client->GetSchedule(0).status().code(),
            absl::StatusCode::kUnauthenticated);
  write(new_);
  const absl::Time end = absl::Now() + absl::Minutes(1);
  do {
    asked = client->GetSchedule(0).status();
    // By the files of then, nothing is wrong.
    EXPECT_NE(asked.code(), absl::StatusCode::kUnauthenticated) << asked;
  } while (!asked.ok() && absl::Now() < end);
  EXPECT_TRUE(asked.ok()) << asked;
  const absl::Status pulled = TryPull(address_, *security);
  EXPECT_TRUE(pulled.ok()) << pulled;
}

TEST_F(RenewalTest, AServerShowsOthersItsRenewedCertificate) {
  Write(old_);
  auto server = ServerSecurity::Load(config_.security());
  ASSERT_TRUE(server.ok()) << server.status();
  const PeerSecurity to_peers = server->to_peers();
  const ChannelSecurity before = to_peers();
  Write(new_);
  ASSERT_TRUE(*server->RenewTls());
  EXPECT_NE(to_peers().cert, before.cert);
  EXPECT_NE(to_peers().key, before.key);
  EXPECT_NE(to_peers().ca, before.ca);
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
