#ifndef BALLAST_CLIENT_SERVER_FINDER_H_
#define BALLAST_CLIENT_SERVER_FINDER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "client/loader_client.h"
#include "common/mutex.h"

namespace ballast {

// The addresses, as digits, that a host name has now; empty if none is known.
// Blocks.
using ResolveHost = std::function<std::vector<std::string>(const std::string&)>;

// By the system's resolver.
std::vector<std::string> ResolveBySystem(const std::string& host);

// The servers that addresses lead to: a Unix socket or an address in digits is
// one server; a name is one at each address that it resolves to, now or later,
// as a headless Service of Kubernetes has. Thread-safe.
class ServerFinder {
 public:
  // `servers`, not owned, are clients of the given addresses. Resolves their
  // names once; those of a name that has no address stand for themselves.
  ServerFinder(std::vector<LoaderClient*> servers, ResolveHost resolve);

  // Resolves the names again. New servers get the next numbers.
  void Look();

  size_t size() const;
  LoaderClient* client(size_t server) const;
  // "server ADDRESS" for each, for messages.
  std::vector<std::string> names() const;

 private:
  struct Name {
    LoaderClient* client;
    std::string host;
    uint16_t port;
  };

  void Add(const Name& name, const std::string& address);

  const ResolveHost resolve_;
  std::vector<Name> names_;
  mutable Mutex mutex_;
  std::vector<LoaderClient*> servers_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<LoaderClient>> found_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_SERVER_FINDER_H_
