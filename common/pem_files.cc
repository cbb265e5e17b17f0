#include "common/pem_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <ctime>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/small_file.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* cert) const { X509_free(cert); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

absl::Status Wrong(const NamedFile& file, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(file.name, ": ", file.path, ": ", what));
}

Owned<BIO> Reader(const std::string& bytes) {
  return Owned<BIO>(
      BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size())));
}

// Password callback that refuses; without it OpenSSL asks for a password on the
// terminal.
int NoPassword(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return 0;
}

absl::StatusOr<std::string> Read(const NamedFile& file) {
  auto bytes = ReadSmallFile(file.path, kMaxBytes);
  return bytes.ok() ? bytes : Annotate(bytes.status(), file.name);
}

// Returns the first certificate of `pem`; all of them must be well-formed.
absl::StatusOr<Owned<X509>> ParseCertificates(const NamedFile& file,
                                              const std::string& pem) {
  const Owned<BIO> reader = Reader(pem);
  Owned<X509> first(PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr));
  if (first == nullptr) {
    ERR_clear_error();
    return Wrong(file,
                 "holds no certificate; wanted PEM, with -----BEGIN "
                 "CERTIFICATE-----");
  }
  ERR_clear_error();
  while (const auto next = Owned<X509>(
             PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr))) {
  }
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  if (ERR_GET_REASON(error) != PEM_R_NO_START_LINE) {
    return Wrong(file, "a certificate after the first is damaged");
  }
  return first;
}

absl::StatusOr<Owned<EVP_PKEY>> ParseKey(const NamedFile& file,
                                         const std::string& pem) {
  bool asked = false;
  Owned<EVP_PKEY> key(
      PEM_read_bio_PrivateKey(Reader(pem).get(), nullptr, &NoPassword, &asked));
  ERR_clear_error();
  if (key != nullptr) return key;
  if (asked) {
    return Wrong(file, "the key wants a password; wanted one without");
  }
  return Wrong(file,
               "holds no private key; wanted PEM, with -----BEGIN PRIVATE "
               "KEY-----");
}

// InfiniteFuture if the time cannot be read.
absl::Time GetTime(const ASN1_TIME* time) {
  tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfiniteFuture();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::string Text(const ASN1_TIME* time) {
  return absl::FormatTime(absl::RFC3339_sec, GetTime(time),
                          absl::UTCTimeZone());
}

absl::Status CheckDates(const NamedFile& file, const X509* cert,
                        absl::Time now) {
  time_t seconds = absl::ToTimeT(now);
  if (X509_cmp_time(X509_get0_notBefore(cert), &seconds) > 0) {
    return Wrong(file, absl::StrCat("the certificate is not valid before ",
                                    Text(X509_get0_notBefore(cert)),
                                    "; is this machine's clock right?"));
  }
  if (X509_cmp_time(X509_get0_notAfter(cert), &seconds) < 0) {
    return Wrong(file, absl::StrCat("the certificate expired at ",
                                    Text(X509_get0_notAfter(cert))));
  }
  return absl::OkStatus();
}

// Checks TLS's own limits, such as on key lengths (the security level of the
// system's OpenSSL).
absl::Status TryTls(const NamedFile& file, X509* cert, EVP_PKEY* key) {
  const Owned<SSL_CTX> context(SSL_CTX_new(TLS_method()));
  if (context == nullptr) return absl::InternalError("OpenSSL has no TLS");
  ERR_clear_error();
  if (SSL_CTX_use_certificate(context.get(), cert) == 1 &&
      SSL_CTX_use_PrivateKey(context.get(), key) == 1) {
    return absl::OkStatus();
  }
  const char* const reason = ERR_reason_error_string(ERR_peek_error());
  ERR_clear_error();
  return Wrong(file, absl::StrCat("TLS does not take the certificate: ",
                                  reason == nullptr ? "unknown" : reason));
}

}  // namespace

absl::StatusOr<TlsIdentity> ReadTlsIdentity(const NamedFile& cert,
                                            const NamedFile& key,
                                            absl::Time now) {
  TlsIdentity identity;
  BALLAST_ASSIGN_OR_RETURN(identity.cert, Read(cert));
  BALLAST_ASSIGN_OR_RETURN(const Owned<X509> parsed_cert,
                           ParseCertificates(cert, identity.cert));
  BALLAST_RETURN_IF_ERROR(CheckDates(cert, parsed_cert.get(), now));
  BALLAST_ASSIGN_OR_RETURN(identity.key, Read(key));
  BALLAST_ASSIGN_OR_RETURN(const Owned<EVP_PKEY> parsed_key,
                           ParseKey(key, identity.key));
  const bool match =
      X509_check_private_key(parsed_cert.get(), parsed_key.get()) == 1;
  ERR_clear_error();
  if (!match) {
    return Wrong(key,
                 absl::StrCat("is not the key of the certificate ", cert.path));
  }
  BALLAST_RETURN_IF_ERROR(TryTls(cert, parsed_cert.get(), parsed_key.get()));
  identity.expires = GetTime(X509_get0_notAfter(parsed_cert.get()));
  return identity;
}

absl::StatusOr<std::string> ReadTlsAuthorities(const NamedFile& file) {
  BALLAST_ASSIGN_OR_RETURN(std::string pem, Read(file));
  BALLAST_RETURN_IF_ERROR(ParseCertificates(file, pem).status());
  return pem;
}

}  // namespace ballast
