#include "client/server_finder.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/net_address.h"

namespace ballast {
namespace {

bool IsInDigits(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

std::string WithPort(const std::string& host, uint16_t port) {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

}  // namespace

std::vector<std::string> ResolveBySystem(const std::string& host) {
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::vector<std::string> addresses;
  if (getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) return {};
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    char text[NI_MAXHOST] = "";
    if (getnameinfo(each->ai_addr, each->ai_addrlen, text, sizeof(text),
                    nullptr, 0, NI_NUMERICHOST) == 0) {
      addresses.emplace_back(text);
    }
  }
  freeaddrinfo(found);
  // The resolver's order changes from call to call.
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()),
                  addresses.end());
  return addresses;
}

ServerFinder::ServerFinder(std::vector<LoaderClient*> servers,
                           ResolveHost resolve)
    : resolve_(std::move(resolve)) {
  for (LoaderClient* const server : servers) {
    const auto address = ParseNetAddress(server->address());
    // `localhost` is this machine at each of its addresses.
    if (!address.ok() || address->IsLocal() || IsInDigits(address->host)) {
      MutexLock lock(&mutex_);
      servers_.push_back(server);
    } else {
      names_.push_back({server, address->host, address->port});
    }
  }
  Look();
  MutexLock lock(&mutex_);
  if (servers_.empty()) servers_ = std::move(servers);
}

void ServerFinder::Look() {
  for (const Name& name : names_) {
    for (const std::string& host : resolve_(name.host)) {
      Add(name, WithPort(host, name.port));
    }
  }
}

void ServerFinder::Add(const Name& name, const std::string& address) {
  MutexLock lock(&mutex_);
  for (const LoaderClient* const server : servers_) {
    if (server->address() == address) return;
  }
  std::unique_ptr<LoaderClient> client = name.client->CreateAt(address);
  if (client == nullptr) return;
  servers_.push_back(client.get());
  found_.push_back(std::move(client));
}

size_t ServerFinder::size() const {
  MutexLock lock(&mutex_);
  return servers_.size();
}

LoaderClient* ServerFinder::client(size_t server) const {
  MutexLock lock(&mutex_);
  return servers_[server];
}

std::vector<std::string> ServerFinder::names() const {
  MutexLock lock(&mutex_);
  return ServerNames(servers_);
}

}  // namespace ballast
