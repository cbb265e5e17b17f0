#include "tests/fakes/test_certificates.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>

#include "absl/strings/str_join.h"

namespace ballast {
namespace {

void Must(bool done) {
  if (!done) std::abort();  // OpenSSL is broken, and so is every test
}

template <typename Write>
std::string Pem(Write write) {
  BIO* bio = BIO_new(BIO_s_mem());
  Must(write(bio) == 1);
  char* data = nullptr;
  const long length = BIO_get_mem_data(bio, &data);
  std::string text(data, length);
  BIO_free(bio);
  return text;
}

void AddExtension(X509* cert, int nid, const char* value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value);
  Must(extension != nullptr);
  Must(X509_add_ext(cert, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

// A new certificate, without issuer and signature.
X509* NewCert(const std::string& name, EVP_PKEY* key, absl::Duration from,
              absl::Duration until) {
  static long serial = 0;
  X509* cert = X509_new();
  X509_set_version(cert, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(cert), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(cert), absl::ToInt64Seconds(from));
  X509_gmtime_adj(X509_getm_notAfter(cert), absl::ToInt64Seconds(until));
  X509_NAME_add_entry_by_txt(
      X509_get_subject_name(cert), "CN", MBSTRING_UTF8,
      reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  Must(X509_set_pubkey(cert, key) == 1);
  return cert;
}

}  // namespace

struct TestAuthority::Parts {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* cert = nullptr;
  ~Parts() {
    X509_free(cert);
    EVP_PKEY_free(key);
  }
};

TestAuthority::TestAuthority(const std::string& name)
    : parts_(std::make_unique<Parts>()) {
  parts_->cert = NewCert(name, parts_->key, -absl::Hours(24), absl::Hours(24));
  X509_set_issuer_name(parts_->cert, X509_get_subject_name(parts_->cert));
  AddExtension(parts_->cert, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(parts_->cert, NID_key_usage, "critical,keyCertSign,cRLSign");
  Must(X509_sign(parts_->cert, parts_->key, EVP_sha256()) > 0);
  cert_ = Pem([&](BIO* bio) { return PEM_write_bio_X509(bio, parts_->cert); });
}

TestAuthority::~TestAuthority() = default;

TlsIdentity TestAuthority::Issue(const Wanted& wanted) const {
  EVP_PKEY* key = EVP_EC_gen(wanted.curve);
  Must(key != nullptr);
  X509* cert = NewCert(wanted.name, key, wanted.from, wanted.until);
  X509_set_issuer_name(cert, X509_get_subject_name(parts_->cert));
  if (!wanted.hosts.empty()) {
    AddExtension(cert, NID_subject_alt_name,
                 absl::StrJoin(wanted.hosts, ",").c_str());
  }
  Must(X509_sign(cert, parts_->key, EVP_sha256()) > 0);
  TlsIdentity identity;
  identity.cert = Pem([&](BIO* bio) { return PEM_write_bio_X509(bio, cert); });
  identity.key = Pem([&](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr,
                                    nullptr);
  });
  X509_free(cert);
  EVP_PKEY_free(key);
  return identity;
}

std::string WriteTestFile(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  chmod(path.c_str(), 0600);
  return path;
}

}  // namespace ballast
