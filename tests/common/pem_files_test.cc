#include "common/pem_files.h"

#include <sys/stat.h>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/fakes/test_certificates.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const TestAuthority& Authority() {
  static const auto* const authority = new TestAuthority("ca");
  return *authority;
}

std::string CertFile() {
  return WriteTestFile("cert.pem", Authority().Issue({}).cert);
}

// The message for a certificate and a key.
std::string Message(const std::string& cert, const std::string& key) {
  const auto identity =
      ReadTlsIdentity({"--cert", cert}, {"--key", key}, absl::Now());
  return std::string(identity.status().message());
}

TEST(ReadTlsIdentity, ReadsACertificateAndItsKey) {
  const TlsIdentity wanted = Authority().Issue({});
  const auto identity = ReadTlsIdentity(
      {"--cert", WriteTestFile("a.pem", wanted.cert)},
      {"--key", WriteTestFile("a.key", wanted.key)}, absl::Now());
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->cert, wanted.cert);
  EXPECT_EQ(identity->key, wanted.key);
  // Valid for an hour, in whole seconds, from its creation.
  EXPECT_GT(identity->expires, absl::Now() + absl::Minutes(50));
  EXPECT_LE(identity->expires, absl::Now() + absl::Hours(1));
}

TEST(ReadTlsIdentity, RefusesKeysThatTlsRefuses) {
  TestAuthority::Wanted wanted;
  wanted.curve = "P-192";
  const TlsIdentity identity = Authority().Issue(wanted);
  EXPECT_THAT(
      Message(WriteTestFile("short.pem", identity.cert),
              WriteTestFile("short.key", identity.key)),
      AllOf(HasSubstr("--cert: "), HasSubstr("short.pem: "),
            HasSubstr("TLS does not take"), HasSubstr("key too small")));
}

TEST(ReadTlsIdentity, MayHoldTheChainAfterTheCertificate) {
  const TlsIdentity wanted = Authority().Issue({});
  EXPECT_EQ(
      Message(WriteTestFile("chain.pem", wanted.cert + Authority().cert()),
              WriteTestFile("chain.key", wanted.key)),
      "");
  const std::string cut =
      Authority().cert().substr(0, Authority().cert().size() / 2);
  EXPECT_THAT(Message(WriteTestFile("cut.pem", wanted.cert + cut),
                      WriteTestFile("cut.key", wanted.key)),
              AllOf(HasSubstr("--cert: "), HasSubstr("cut.pem: "),
                    HasSubstr("damaged")));
}

TEST(ReadTlsIdentity, NamesAMissingFile) {
  EXPECT_THAT(Message("/no/cert.pem", "/no/key.pem"),
              AllOf(HasSubstr("--cert: /no/cert.pem: "),
                    HasSubstr("No such file or directory")));
  EXPECT_THAT(Message(CertFile(), "/no/key.pem"),
              AllOf(HasSubstr("--key: /no/key.pem: "),
                    HasSubstr("No such file or directory")));
}

TEST(ReadTlsIdentity, NamesAPathThatIsNotAFile) {
  EXPECT_THAT(Message(CertFile(), ::testing::TempDir()),
              HasSubstr("not a regular file"));
  // A pipe without a writer: opening must not wait.
  const std::string pipe = ::testing::TempDir() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(Message(CertFile(), pipe), HasSubstr("not a regular file"));
  EXPECT_THAT(
      Message(WriteTestFile("big.pem", std::string((1 << 20) + 1, 'x')), ""),
      AllOf(HasSubstr("--cert: "), HasSubstr("over 1048576 bytes")));
}

TEST(ReadTlsIdentity, NamesAFileThatIsNotPem) {
  EXPECT_THAT(Message(WriteTestFile("no.pem", "hello"), ""),
              AllOf(HasSubstr("--cert: "), HasSubstr("no.pem: "),
                    HasSubstr("no certificate")));
  EXPECT_THAT(Message(CertFile(), WriteTestFile("no.key", "")),
              AllOf(HasSubstr("--key: "), HasSubstr("no.key: "),
                    HasSubstr("no private key")));
  // Certificate and key swapped.
  EXPECT_THAT(
      Message(WriteTestFile("key.pem", Authority().Issue({}).key), CertFile()),
      HasSubstr("no certificate"));
}

TEST(ReadTlsIdentity, NamesAKeyOfAnotherCertificate) {
  EXPECT_THAT(Message(CertFile(),
                      WriteTestFile("other.key", Authority().Issue({}).key)),
              AllOf(HasSubstr("--key: "), HasSubstr("other.key: "),
                    HasSubstr("not the key of the certificate"),
                    HasSubstr("cert.pem")));
}

TEST(ReadTlsIdentity, NamesACertificateThatIsNotValidNow) {
  TestAuthority::Wanted wanted;
  wanted.from = -absl::Hours(2);
  wanted.until = -absl::Hours(1);
  const TlsIdentity expired = Authority().Issue(wanted);
  EXPECT_THAT(Message(WriteTestFile("old.pem", expired.cert), ""),
              AllOf(HasSubstr("old.pem: "), HasSubstr("expired at 20")));
  wanted.from = absl::Hours(1);
  wanted.until = absl::Hours(2);
  const TlsIdentity early = Authority().Issue(wanted);
  EXPECT_THAT(Message(WriteTestFile("new.pem", early.cert), ""),
              HasSubstr("not valid before 20"));
}

TEST(ReadTlsIdentity, AKeyWithAPasswordIsRefusedWithoutAPrompt) {
  // As `openssl ec -aes128` writes it: the header alone makes OpenSSL ask.
  const std::string locked =
      "-----BEGIN EC PRIVATE KEY-----\n"
      "Proc-Type: 4,ENCRYPTED\n"
      "DEK-Info: AES-128-CBC,00112233445566778899AABBCCDDEEFF\n\n"
      "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
      "-----END EC PRIVATE KEY-----\n";
  EXPECT_THAT(Message(CertFile(), WriteTestFile("locked.key", locked)),
              HasSubstr("wants a password"));
}

TEST(ReadTlsAuthorities, ReadsOneOrMore) {
  const TestAuthority other("other");
  const std::string both = Authority().cert() + other.cert();
  const auto read =
      ReadTlsAuthorities({"--ca", WriteTestFile("cas.pem", both)});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, both);
  EXPECT_THAT(
      std::string(ReadTlsAuthorities({"--ca", WriteTestFile("e.pem", "")})
                      .status()
                      .message()),
      AllOf(HasSubstr("--ca: "), HasSubstr("no certificate")));
}

}  // namespace
}  // namespace ballast
