// TLS on both sides: which clients are accepted, and the errors of those
// refused.

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/service/peer_check.h"
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
  EXPECT_TRUE(MakeGrpcPeerCaller(ClientSide(&ca_))->Attach(address).ok());
  EXPECT_FALSE(MakeGrpcPeerCaller({})->Attach(address).ok());
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

}  // namespace
}  // namespace ballast
