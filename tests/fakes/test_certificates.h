#ifndef BALLAST_TESTS_FAKES_TEST_CERTIFICATES_H_
#define BALLAST_TESTS_FAKES_TEST_CERTIFICATES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/pem_files.h"

namespace ballast {

// A certificate authority for one test. Keys are generated at run time; none is
// kept in the tree.
class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name);
  ~TestAuthority();

  // PEM.
  const std::string& cert() const { return cert_; }

  // The content of a certificate. By default it is valid from an hour ago to an
  // hour from now.
  struct Wanted {
    std::string name = "test";
    // "DNS:node-a", "IP:127.0.0.1"
    std::vector<std::string> hosts = {"IP:127.0.0.1"};
    absl::Duration from = -absl::Hours(1);  // from now
    absl::Duration until = absl::Hours(1);
    const char* curve = "P-256";  // the key's curve
  };
  TlsIdentity Issue(const Wanted& wanted) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  std::string cert_;
};

// Writes `text` to a new file `name` in the test's folder, readable by its
// owner only. Returns its path.
std::string WriteTestFile(const std::string& name, const std::string& text);

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_TEST_CERTIFICATES_H_
