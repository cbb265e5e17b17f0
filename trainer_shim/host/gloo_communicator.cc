#include "trainer_shim/host/gloo_communicator.h"

#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/attr.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
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
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/without_sigpipe.h"

namespace ballast {

namespace {

using ::gloo::transport::UnboundBuffer;

// Gloo matches messages of a pair by slot, in order.
constexpr uint64_t kHeaderSlot = 0;
constexpr uint64_t kSliceSlot = 1;

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
    return ToStatus(error.what(), std::chrono::steady_clock::now() >= deadline);
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

absl::Status GlooLink::ToStatus(const char* error, bool late) const {
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
  options.silent_after = failover.silent_after;
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
