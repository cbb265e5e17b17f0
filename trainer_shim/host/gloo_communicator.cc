#include "trainer_shim/host/gloo_communicator.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/attr.h>
#include <gloo/transport/tcp/device.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/mutex.h"
#include "common/net_address.h"
#include "common/status_macros.h"

namespace ballast {

namespace {

// Empty for other families than IPv4 and IPv6.
std::string AddressText(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr,
              text, sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6,
              &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
              sizeof(text));
  }
  return text;
}

absl::StatusOr<std::string> AddressOfInterface(const std::string& interface) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) {
    return absl::InternalError(
        absl::StrCat("listing network interfaces: ", std::strerror(errno)));
  }
  const absl::Cleanup free = [first] { freeifaddrs(first); };
  std::string found;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const std::string text = AddressText(one->ifa_addr);
    if (text.empty() || (interface != one->ifa_name && interface != text)) {
      continue;
    }
    // IPv4 first: an IPv6 address may be valid only on the link.
    if (found.empty() || one->ifa_addr->sa_family == AF_INET) found = text;
  }
  if (!found.empty()) return found;
  return absl::InvalidArgumentError(
      absl::StrCat("no network interface of this machine is called or has the "
                   "address \"",
                   interface, "\"; `ip address` lists them"));
}

// The address of the interface whose route leads to `server`.
absl::StatusOr<std::string> AddressToward(const NetAddress& server) {
  const std::string name = absl::StrCat(server.host, ":", server.port);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* first = nullptr;
  const int failed = getaddrinfo(
      server.host.c_str(), absl::StrCat(server.port).c_str(), &hints, &first);
  if (failed != 0) {
    return absl::UnavailableError(
        absl::StrCat("server ", name, ": ", gai_strerror(failed)));
  }
  const absl::Cleanup free = [first] { freeaddrinfo(first); };
  int cause = 0;
  for (const addrinfo* one = first; one != nullptr; one = one->ai_next) {
    const int socket_fd = socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket_fd < 0) {
      cause = errno;
      continue;
    }
    const absl::Cleanup close_fd = [socket_fd] { close(socket_fd); };
    sockaddr_storage own = {};
    socklen_t bytes = sizeof(own);
    // A datagram socket connects without sending anything.
    if (connect(socket_fd, one->ai_addr, one->ai_addrlen) == 0 &&
        getsockname(socket_fd, reinterpret_cast<sockaddr*>(&own), &bytes) ==
            0) {
      return AddressText(reinterpret_cast<const sockaddr*>(&own));
    }
    cause = errno;
  }
  return absl::UnavailableError(
      absl::StrCat("no route from this machine to server ", name, ": ",
                   std::strerror(cause)));
}

}  // namespace

absl::StatusOr<std::string> ExchangeAddress(
    const std::vector<std::string>& servers, const std::string& interface) {
  if (!interface.empty()) return AddressOfInterface(interface);
  for (const std::string& server : servers) {
    const absl::StatusOr<NetAddress> address = ParseNetAddress(server);
    if (address.ok() && !address->IsLocal()) return AddressToward(*address);
  }
  return "127.0.0.1";
}

namespace {

// Magic, run, length of the IP address, IP address, two bytes a port. Integers
// are little-endian.
constexpr absl::string_view kMagic = "BGP1";

void Append(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(value >> (8 * i) & 0xFF);
}

uint64_t Take(int bytes, absl::string_view* in) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) {
    value |= uint64_t{static_cast<uint8_t>((*in)[i])} << (8 * i);
  }
  in->remove_prefix(bytes);
  return value;
}

}  // namespace

absl::StatusOr<std::string> PeerPorts::Encode() const {
  int unused = 0;
  BALLAST_RETURN_IF_ERROR(SocketAddress(ip, 0, &unused).status());
  if (ports.size() > kMaxRanks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a group of ", ports.size(), " ranks over Gloo, wanted at most ",
        kMaxRanks, "; set balance.delivery to direct"));
  }
  std::string out(kMagic);
  Append(run, 8, &out);
  Append(ip.size(), 1, &out);
  out += ip;
  for (const uint16_t port : ports) Append(port, 2, &out);
  return out;
}

absl::StatusOr<PeerPorts> PeerPorts::Decode(absl::string_view bytes,
                                            uint32_t ranks) {
  const size_t found = bytes.size();
  PeerPorts out;
  bool fits = found > kMagic.size() + 9 && bytes.substr(0, 4) == kMagic;
  if (fits) {
    bytes.remove_prefix(kMagic.size());
    out.run = Take(8, &bytes);
    const size_t ip_bytes = Take(1, &bytes);
    fits = bytes.size() == ip_bytes + 2 * size_t{ranks};
    if (fits) {
      out.ip = std::string(bytes.substr(0, ip_bytes));
      bytes.remove_prefix(ip_bytes);
      for (uint32_t i = 0; i < ranks; ++i) out.ports.push_back(Take(2, &bytes));
    }
  }
  int unused = 0;
  if (fits) fits = SocketAddress(out.ip, 0, &unused).ok();
  if (fits) return out;
  return absl::DataLossError(absl::StrCat(
      "a peer gave ", found, " bytes that are not the ports of a group of ",
      ranks, " ranks; do all ranks run the same version?"));
}

absl::StatusOr<sockaddr_storage> SocketAddress(const std::string& ip,
                                               uint16_t port, int* bytes) {
  sockaddr_storage storage = {};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, ip.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    *bytes = sizeof(*v4);
    return storage;
  }
  if (inet_pton(AF_INET6, ip.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    *bytes = sizeof(*v6);
    return storage;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", ip, "\" is not an IP address"));
}

namespace {

// "12 bytes in 2 slices".
std::string SizesText(const SliceSizes& sizes) {
  return absl::StrCat(sizes.bytes, " bytes in ", sizes.slices, " slices");
}

absl::Status CheckSizes(uint32_t from, uint32_t to, const SliceSizes& sent,
                        const SliceSizes& expected) {
  if (sent == expected) return absl::OkStatus();
  const bool only_order =
      sent.bytes == expected.bytes && sent.slices == expected.slices;
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", from, " sends ", SizesText(sent), " to rank ", to,
                   ", which expects ", SizesText(expected),
                   only_order ? " of other lengths" : "",
                   "; the two follow different schedules or steps"));
}

}  // namespace

void SliceSizes::Add(uint64_t slice_bytes) {
  if (slice_bytes == 0) return;
  ++slices;
  bytes += slice_bytes;
  // FNV-1a over lengths, one length at a time.
  hash = (hash ^ slice_bytes) * 0x100000001b3;
}

std::vector<PeerHeader> GetHeaders(uint64_t run, uint64_t number, uint32_t from,
                                   uint32_t size,
                                   absl::Span<const SendSlice> sends,
                                   absl::Span<const ReceiveSlice> receives) {
  std::vector<PeerHeader> headers(size);
  for (uint32_t to = 0; to < size; ++to) {
    headers[to].magic = PeerHeader::kMagic;
    headers[to].run = run;
    headers[to].number = number;
    headers[to].from = from;
    headers[to].to = to;
  }
  for (const SendSlice& slice : sends) {
    headers[slice.peer].sends.Add(slice.bytes.size());
  }
  for (const ReceiveSlice& slice : receives) {
    headers[slice.peer].receives.Add(slice.bytes.size());
  }
  return headers;
}

absl::Status CheckHeader(const PeerHeader& got, const PeerHeader& sent) {
  if (got.magic != PeerHeader::kMagic || got.run != sent.run ||
      got.from != sent.to || got.to != sent.from) {
    return absl::FailedPreconditionError(absl::StrCat(
        "what answers rank ", sent.from, " in place of rank ", sent.to,
        " is not that rank of this run: another start of the job or another "
        "program uses its port; start all ranks again"));
  }
  if (got.number != sent.number) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", got.from, " is at exchange ", got.number,
                     " and rank ", sent.from, " at exchange ", sent.number,
                     "; the two follow different schedules or steps"));
  }
  const absl::Status to_me =
      CheckSizes(got.from, got.to, got.sends, sent.receives);
  if (!to_me.ok()) return to_me;
  return CheckSizes(sent.from, sent.to, sent.sends, got.receives);
}

namespace {

constexpr int kKeepAliveProbes = 3;

// Empty for other families than IPv4 and IPv6.
std::optional<TcpEnd> GetEnd(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN];
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return TcpEnd{text, ntohs(v4.sin_port)};
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    return TcpEnd{text, ntohs(v6.sin6_port)};
  }
  return std::nullopt;
}

std::optional<TcpConnection> GetConnection(int fd) {
  int type = 0;
  socklen_t bytes = sizeof(type);
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 ||
      type != SOCK_STREAM) {
    return std::nullopt;
  }
  TcpConnection connection;
  connection.fd = fd;
  sockaddr_storage own = {};
  bytes = sizeof(own);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &bytes) != 0) {
    return std::nullopt;
  }
  bytes = sizeof(connection.peer_address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&connection.peer_address),
                  &bytes) != 0) {
    return std::nullopt;
  }
  const std::optional<TcpEnd> own_end = GetEnd(own);
  const std::optional<TcpEnd> peer = GetEnd(connection.peer_address);
  if (!own_end || !peer) return std::nullopt;
  connection.own = *own_end;
  connection.peer = *peer;
  return connection;
}

void SetOption(int fd, int level, int option, int value) {
  // If this fails, the kernel's default stays, which only detects lost peers
  // later.
  setsockopt(fd, level, option, &value, sizeof(value));
}

}  // namespace

std::vector<TcpConnection> TcpConnections() {
  std::vector<TcpConnection> found;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return found;
  const absl::Cleanup close_folder = [folder] { closedir(folder); };
  while (const dirent* entry = readdir(folder)) {
    int fd = 0;
    if (!absl::SimpleAtoi(entry->d_name, &fd)) continue;
    if (auto connection = GetConnection(fd)) found.push_back(*connection);
  }
  return found;
}

void EndWhenSilent(int fd, absl::Duration silent_after) {
  const int seconds = std::max<int64_t>(absl::ToInt64Seconds(silent_after), 2);
  // Idle connections: the first probe after half of the time, the others in the
  // rest of it. Unacknowledged data: the whole time.
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds / 2);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL,
            std::max(seconds / 2 / kKeepAliveProbes, 1));
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * seconds);
}

namespace {

using ::gloo::transport::UnboundBuffer;

// Gloo matches messages of a pair by slot, in order.
constexpr uint64_t kHeaderSlot = 0;
constexpr uint64_t kSliceSlot = 1;

// Gloo writes to sockets without MSG_NOSIGNAL: keeps SIGPIPE from this thread
// for as long as this lives, and removes one that has arrived.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    const timespec now = {};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

// The part of memory from the first to the last byte of all ranges that are
// added.
class Extent {
 public:
  void Add(const void* data, size_t bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    begin_ = std::min(begin_, begin);
    end_ = std::max(end_, begin + bytes);
  }
  void* begin() const { return reinterpret_cast<void*>(begin_); }
  size_t size() const { return end_ - begin_; }
  size_t GetOffset(const void* data) const {
    return reinterpret_cast<uintptr_t>(data) - begin_;
  }

 private:
  uintptr_t begin_ = std::numeric_limits<uintptr_t>::max();
  uintptr_t end_ = 0;
};

// The rank whose name `error` contains.
std::optional<uint32_t> RankIn(const std::string& error,
                               const std::map<std::string, uint32_t>& names) {
  for (const auto& [name, rank] : names) {
    const size_t at = error.find(name);
    if (at == std::string::npos) continue;
    const size_t end = at + name.size();
    // Not a prefix of a longer port.
    if (end == error.size() || !std::isdigit(error[end])) return rank;
  }
  return std::nullopt;
}

std::chrono::milliseconds Milliseconds(absl::Duration duration) {
  return std::chrono::milliseconds(
      std::max<int64_t>(absl::ToInt64Milliseconds(duration), 1));
}

}  // namespace

// The buffer of one exchange. One buffer covers all slices, so that a peer that
// fails ends the wait for the others.
class GlooLink::Waiting {
 public:
  Waiting(GlooLink* link, std::unique_ptr<UnboundBuffer> buffer, Time deadline)
      : link_(link), buffer_(std::move(buffer)), deadline_(deadline) {
    MutexLock lock(&link_->mutex_);
    link_->waiting_ = buffer_.get();
  }
  ~Waiting() {
    MutexLock lock(&link_->mutex_);
    link_->waiting_ = nullptr;
  }

  UnboundBuffer* operator->() const { return buffer_.get(); }

  // Waits for `count` messages; false once the link is closed.
  bool Receives(size_t count) const {
    for (; count > 0; --count) {
      if (link_->closed() || !buffer_->waitRecv(Left())) return false;
    }
    return true;
  }
  bool Sends(size_t count) const {
    for (; count > 0; --count) {
      if (link_->closed() || !buffer_->waitSend(Left())) return false;
    }
    return true;
  }

 private:
  std::chrono::milliseconds Left() const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline_ - std::chrono::steady_clock::now());
    // Rounded up: a wait that ends because its time is up ends after the
    // deadline.
    return std::max(left, std::chrono::milliseconds(0)) +
           std::chrono::milliseconds(1);
  }

  GlooLink* const link_;
  const std::unique_ptr<UnboundBuffer> buffer_;
  const Time deadline_;
};

absl::StatusOr<std::unique_ptr<GlooLink>> GlooLink::Listen(
    const std::string& address, uint32_t rank, uint32_t size,
    absl::Duration connect_timeout, absl::Duration silent_after) {
  gloo::transport::tcp::attr attr;
  BALLAST_ASSIGN_OR_RETURN(attr.ai_addr,
                           SocketAddress(address, 0, &attr.ai_addrlen));
  attr.ai_family = attr.ai_addr.ss_family;
  attr.ai_socktype = SOCK_STREAM;
  attr.ai_protocol = 0;
  BALLAST_RETURN_IF_ERROR(ExchangeAddress({}, address).status());
  std::unique_ptr<GlooLink> link(new GlooLink(rank, size));
  link->silent_after_ = silent_after;
  // Gloo's thread takes over this thread's mask: signals are the trainer's.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const absl::Cleanup restore = [&before] {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  };
  try {
    link->pairs_ =
        std::make_shared<gloo::transport::tcp::Device>(attr)->createContext(
            rank, size);
    // Gloo waits five times as long for a connection.
    link->pairs_->setTimeout(Milliseconds(connect_timeout / 5));
    link->ports_.ip = address;
    link->ports_.ports.resize(size);
    for (uint32_t peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      const auto& own = static_cast<const gloo::transport::tcp::Address&>(
                            link->pairs_->createPair(peer)->address())
                            .getSockaddr();
      // The port is at the same place in both families.
      link->ports_.ports[peer] =
          ntohs(reinterpret_cast<const sockaddr_in*>(&own)->sin_port);
    }
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("rank ", rank,
                                               " listening for its peers at ",
                                               address, ": ", error.what()));
  }
  return link;
}

GlooLink::~GlooLink() {
  const WithoutSigpipe quiet;
  pairs_.reset();
}

absl::Status GlooLink::Connect(const std::vector<PeerPorts>& peers) {
  const WithoutSigpipe quiet;
  for (uint32_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const uint16_t port = peers[peer].ports[rank_];
    int unused = 0;
    BALLAST_ASSIGN_OR_RETURN(const sockaddr_storage address,
                             SocketAddress(peers[peer].ip, port, &unused));
    const gloo::transport::tcp::Address listens(address);
    // Gloo names a peer by its listening address or by its end of the
    // connection.
    names_[listens.str()] = peer;
    try {
      pairs_->getPair(peer)->connect(listens.bytes());
    } catch (const std::exception& error) {
      return absl::UnavailableError(absl::StrCat(
          "rank ", rank_, " at ", ports_.ip, " cannot connect with rank ", peer,
          " at ", peers[peer].ip, " port ", port, ": ", error.what(),
          "; if the rank still runs, name the network interface by which the "
          "nodes reach each other"));
    }
  }
  Watch(peers);
  return absl::OkStatus();
}

void GlooLink::Watch(const std::vector<PeerPorts>& peers) {
  for (const TcpConnection& connection : TcpConnections()) {
    for (uint32_t peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      // One of the two ranks listened for the other.
      const TcpEnd here = {ports_.ip, ports_.ports[peer]};
      const TcpEnd there = {peers[peer].ip, peers[peer].ports[rank_]};
      if (!(connection.own == here) && !(connection.peer == there)) continue;
      EndWhenSilent(connection.fd, silent_after_);
      names_[gloo::transport::tcp::Address(connection.peer_address).str()] =
          peer;
    }
  }
}

absl::Status GlooLink::Exchange(absl::Span<const PeerHeader> headers,
                                absl::Span<const SendSlice> sends,
                                absl::Span<const ReceiveSlice> receives,
                                absl::Duration timeout) {
  const WithoutSigpipe quiet;
  const Time deadline =
      std::chrono::steady_clock::now() + Milliseconds(timeout);
  try {
    return Move(headers, sends, receives, deadline);
  } catch (const std::exception& error) {
    if (closed()) return absl::CancelledError("the exchange was closed");
    return StatusOf(error.what(), std::chrono::steady_clock::now() >= deadline);
  }
}

absl::Status GlooLink::Move(absl::Span<const PeerHeader> headers,
                            absl::Span<const SendSlice> sends,
                            absl::Span<const ReceiveSlice> receives,
                            Time deadline) {
  came_.assign(size_, PeerHeader());
  moves_.assign(size_, false);
  Extent extent;
  extent.Add(came_.data(), came_.size() * sizeof(PeerHeader));
  extent.Add(headers.data(), headers.size() * sizeof(PeerHeader));
  for (const auto& slice : sends) {
    if (!slice.bytes.empty())
      extent.Add(slice.bytes.data(), slice.bytes.size());
  }
  for (const auto& slice : receives) {
    if (!slice.bytes.empty())
      extent.Add(slice.bytes.data(), slice.bytes.size());
  }
  const Waiting buffer(
      this, pairs_->createUnboundBuffer(extent.begin(), extent.size()),
      deadline);
  const auto at = [&](const auto& value) { return extent.GetOffset(&value); };
  size_t sent = 0;
  for (uint32_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    posting_ = peer;
    buffer->recv(peer, kHeaderSlot, at(came_[peer]), sizeof(PeerHeader));
    buffer->send(peer, kHeaderSlot, at(headers[peer]), sizeof(PeerHeader));
    ++sent;
  }
  for (const SendSlice& slice : sends) {
    if (slice.bytes.empty()) continue;
    posting_ = slice.peer;
    // Sent once the peer has checked this rank's header and is ready for the
    // data.
    buffer->send(slice.peer, kSliceSlot, extent.GetOffset(slice.bytes.data()),
                 slice.bytes.size());
    moves_[slice.peer] = true;
    ++sent;
  }
  const absl::Status closed = absl::CancelledError("the exchange was closed");
  posting_.reset();
  if (!buffer.Receives(size_ - 1)) return closed;
  for (uint32_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    BALLAST_RETURN_IF_ERROR(CheckHeader(came_[peer], headers[peer]));
  }
  size_t received = 0;
  for (const ReceiveSlice& slice : receives) {
    if (slice.bytes.empty()) continue;
    posting_ = slice.peer;
    buffer->recv(slice.peer, kSliceSlot, extent.GetOffset(slice.bytes.data()),
                 slice.bytes.size());
    moves_[slice.peer] = true;
    ++received;
  }
  posting_.reset();
  if (!buffer.Receives(received) || !buffer.Sends(sent)) return closed;
  return absl::OkStatus();
}

absl::Status GlooLink::StatusOf(const char* error, bool late) const {
  std::optional<uint32_t> peer = RankIn(error, names_);
  if (!peer) peer = posting_;
  if (peer) {
    return absl::UnavailableError(absl::StrCat(
        "rank ", rank_, ": rank ", *peer,
        " left the exchange or is lost; its own error says why (", error, ")"));
  }
  if (!late) {
    return absl::UnavailableError(
        absl::StrCat("rank ", rank_, ": the exchange failed: ", error));
  }
  // Gloo does not report which peers' samples have arrived.
  std::vector<uint32_t> missing, halfway;
  for (uint32_t other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    if (came_[other].magic == 0) missing.push_back(other);
    if (moves_[other]) halfway.push_back(other);
  }
  return absl::UnavailableError(
      missing.empty()
          ? absl::StrCat(
                "rank ", rank_, ": rank ", absl::StrJoin(halfway, " or "),
                " stopped in the middle of its samples; is its process "
                "stopped?")
          : absl::StrCat("rank ", rank_, ": no sign of rank ",
                         absl::StrJoin(missing, ", "),
                         " in time; is its process stopped, or its server "
                         "away?"));
}

bool GlooLink::closed() const {
  MutexLock lock(&mutex_);
  return closed_;
}

void GlooLink::Close() {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(closed_, true)) return;
    if (waiting_ != nullptr) {
      waiting_->abortWaitRecv();
      waiting_->abortWaitSend();
    }
  }
  const WithoutSigpipe quiet;
  for (uint32_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    try {
      pairs_->getPair(peer)->close();
    } catch (const std::exception&) {
      // It is closed already, as wanted.
    }
  }
}

namespace {

// Limit of each wait once all ranks have met for the first time.
constexpr absl::Duration kConnecting = absl::Minutes(1);

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(std::unique_ptr<GlooLink> link, uint64_t run, uint32_t rank,
                   uint32_t size, absl::Duration timeout)
      : link_(std::move(link)),
        run_(run),
        rank_(rank),
        size_(size),
        timeout_(timeout) {}

  uint32_t rank() const override { return rank_; }
  uint32_t size() const override { return size_; }
  bool on_device() const override { return false; }

  absl::Status AllToAllV(absl::Span<const SendSlice> sends,
                         absl::Span<const ReceiveSlice> receives,
                         StreamHandle) override {
    return Exchange(sends, receives, timeout_);
  }

  absl::Status Exchange(absl::Span<const SendSlice> sends,
                        absl::Span<const ReceiveSlice> receives,
                        absl::Duration timeout) {
    BALLAST_RETURN_IF_ERROR(end());
    absl::Status moved = CheckPeers("sends to", sends);
    if (moved.ok()) moved = CheckPeers("receives from", receives);
    if (moved.ok() && size_ > 1) {
      moved = link_->Exchange(
          GetHeaders(run_, exchanges_++, rank_, size_, sends, receives), sends,
          receives, timeout);
    }
    if (moved.ok()) return moved;
    Abort(moved);
    return end();
  }

  // Every error is returned by the call itself.
  absl::Status Check() override { return end(); }

  void Abort(const absl::Status& reason) override {
    {
      MutexLock lock(&mutex_);
      if (!end_.ok()) return;
      end_ = reason;
    }
    link_->Close();
  }

 private:
  absl::Status end() const {
    MutexLock lock(&mutex_);
    return end_;
  }

  template <typename Slice>
  absl::Status CheckPeers(absl::string_view verb,
                          absl::Span<const Slice> slices) const {
    for (const Slice& slice : slices) {
      if (slice.peer < size_ && slice.peer != rank_) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank_, " ", verb, " rank ", slice.peer,
                       ", wanted another rank below ", size_));
    }
    return absl::OkStatus();
  }

  const std::unique_ptr<GlooLink> link_;
  const uint64_t run_;
  const uint32_t rank_;
  const uint32_t size_;
  const absl::Duration timeout_;
  uint64_t exchanges_ = 0;
  mutable Mutex mutex_;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);  // final once not OK
};

// Collects the ports of all ranks. Rendezvous carries the bytes of one rank, so
// the group has one rendezvous for each rank, with that rank in the first
// place. The first rendezvous also carries the number that rank 0 chose for the
// group; it is part of the later ones' names, so that ranks of another start
// take no part.
absl::StatusOr<std::vector<PeerPorts>> SharePorts(LoaderClient* server,
                                                  const std::string& group,
                                                  uint32_t rank, uint32_t size,
                                                  absl::Duration timeout,
                                                  const std::string& run,
                                                  PeerPorts own) {
  std::vector<PeerPorts> all;
  if (rank == 0) {
    std::random_device random;  // the system's, not a generator with a seed
    own.run = uint64_t{random()} << 32 | random();
  }
  for (uint32_t giver = 0; giver < size; ++giver) {
    if (giver > 0) own.run = all[0].run;
    std::string id;
    if (giver == rank) {
      BALLAST_ASSIGN_OR_RETURN(id, own.Encode());
    }
    BALLAST_ASSIGN_OR_RETURN(
        id, server->Rendezvous(
                giver == 0 ? group
                           : absl::StrCat(group, "/ports/", giver, "/",
                                          absl::Hex(own.run)),
                (rank + size - giver) % size, size, id,
                giver == 0 ? timeout : std::min(timeout, kConnecting), run));
    BALLAST_ASSIGN_OR_RETURN(PeerPorts ports, PeerPorts::Decode(id, size));
    if (giver > 0 && ports.run != own.run) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", giver, " of group ", group,
                       " is of another start of the job; start all ranks "
                       "again"));
    }
    all.push_back(std::move(ports));
  }
  return all;
}

}  // namespace

GlooOptions GlooOptions::For(const FailoverOptions& failover,
                             std::string address) {
  GlooOptions options;
  options.address = std::move(address);
  options.exchange_timeout = 2 * failover.patience;
  options.silent_after = std::max(failover.silent_after, absl::Seconds(2));
  return options;
}

absl::StatusOr<std::unique_ptr<Communicator>> MeetGlooCommunicator(
    LoaderClient* server, const std::string& group, uint32_t rank,
    uint32_t size, absl::Duration timeout, const GlooOptions& options,
    const std::string& run) {
  if (rank >= size || size > PeerPorts::kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " of a group of ", size,
                     " over Gloo, wanted a rank below the size and a size up "
                     "to ",
                     PeerPorts::kMaxRanks));
  }
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<GlooLink> link,
                           GlooLink::Listen(options.address, rank, size,
                                            kConnecting, options.silent_after));
  BALLAST_ASSIGN_OR_RETURN(
      const std::vector<PeerPorts> ports,
      SharePorts(server, group, rank, size, timeout, run, link->ports()));
  BALLAST_RETURN_IF_ERROR(link->Connect(ports));
  auto end = std::make_unique<GlooCommunicator>(
      std::move(link), ports[0].run, rank, size, options.exchange_timeout);
  // Nothing is moved: every peer proves that it belongs to this run.
  BALLAST_RETURN_IF_ERROR(end->Exchange({}, {}, kConnecting));
  return end;
}

}  // namespace ballast
