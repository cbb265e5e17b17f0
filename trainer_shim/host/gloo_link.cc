#include "trainer_shim/host/gloo_link.h"

#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/attr.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cctype>
#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "trainer_shim/host/exchange_address.h"
#include "trainer_shim/host/tcp_connections.h"

namespace ballast {
namespace {

using ::gloo::transport::UnboundBuffer;

// Gloo matches messages of a pair by slot, in order.
constexpr uint64_t kHeaderSlot = 0;
constexpr uint64_t kSliceSlot = 1;

// Gloo writes to sockets without MSG_NOSIGNAL: keeps SIGPIPE from this thread
// for as long as it lives, and removes one that came.
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

// The part of memory from the first to the last byte of what is added.
class Extent {
 public:
  void Add(const void* data, size_t bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    begin_ = std::min(begin_, begin);
    end_ = std::max(end_, begin + bytes);
  }
  void* begin() const { return reinterpret_cast<void*>(begin_); }
  size_t size() const { return end_ - begin_; }
  size_t OffsetOf(const void* data) const {
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
    // Not the beginning of a longer port.
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
    // Rounded up: a wait that ends for lack of time ends after the deadline.
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
      // The port lies at the same place in both families.
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
    // Gloo names a peer by where it listens or by its end of the connection.
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
      // One of the two listened for the other.
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
  const auto at = [&](const auto& value) { return extent.OffsetOf(&value); };
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
    // Leaves once the peer has checked this rank's header and asks for it.
    buffer->send(slice.peer, kSliceSlot, extent.OffsetOf(slice.bytes.data()),
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
    buffer->recv(slice.peer, kSliceSlot, extent.OffsetOf(slice.bytes.data()),
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
  // Gloo does not say which peers' samples have come.
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
      // It is closed, which was wanted.
    }
  }
}

}  // namespace ballast
