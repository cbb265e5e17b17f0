#include "server/serve/relay/relay.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <random>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/machine.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "server/serve/relay/frame_meter.h"
#include "server/serve/security/tls_context.h"

namespace ballast {
namespace {

namespace net = boost::asio;
using Error = boost::system::error_code;
using Protocol = net::generic::stream_protocol;
using Socket = Protocol::socket;
using Acceptor = net::basic_socket_acceptor<Protocol>;
using Inner = net::local::stream_protocol::socket;
using TlsStream = net::ssl::stream<Socket>;

constexpr int kThreads = 2;
// Until a client has sent its first frame, TLS included; until a peer with too
// many calls has fewer.
constexpr std::chrono::seconds kToSpeak(20);
constexpr absl::Duration kCallsLook = absl::Milliseconds(20);
constexpr int kCallsLooks = 1000;
// For a client to take the last bytes.
constexpr std::chrono::seconds kToTake(1);
// For a client to take what gRPC has sent. After a third of it gRPC's keepalive
// has ended the connection of a client that reads nothing.
constexpr std::chrono::seconds kToRead(60);
// Pause after an accept that failed, and after a connection that was refused.
constexpr std::chrono::milliseconds kAfterFault(100);
constexpr std::chrono::milliseconds kAfterRefusal(1);
constexpr std::chrono::seconds kProbePeriod(2);
constexpr int kProbesToReopen = 5;
constexpr int kReopeningsToLose = 5;
// What a new connection and a handshake mean in work.
constexpr absl::Duration kConnectionWork = absl::Microseconds(300);
constexpr absl::Duration kHandshakeWork = absl::Milliseconds(2);
constexpr size_t kReadBytes = 16 << 10;
constexpr size_t kMostReadBytes = 256 << 10;

constexpr char kNamePrefix[] = "ballast.";
constexpr char kGrpcPrefix[] = "unix-abstract:ballast.";

struct Peer {
  std::string name;  // as gRPC names it
  std::string key;   // of its places and budget
  bool is_unix = false;
  pid_t process = 0;  // at a Unix socket
};

Peer GetPeer(int fd) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof(storage);
  getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &length);
  if (storage.ss_family == AF_UNIX) {
    ucred who = {};
    socklen_t bytes = sizeof(who);
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes);
    return {absl::StrCat("unix:", who.pid),
            absl::StrCat("process ", who.pid, " of user ", who.uid), true,
            who.pid};
  }
  const NumericAddress address = ToNumeric(storage);
  return {absl::StrCat(address.is_v6 ? "ipv6:" : "ipv4:", address.text),
          address.peer_key};
}

// Both ends of a connection to gRPC. The name of ours carries the peer's to
// PullCall and the log: gRPC asks the system for it.
absl::StatusOr<std::pair<OwnedFd, OwnedFd>> MakePair(const std::string& name) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                 ends) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  std::pair<OwnedFd, OwnedFd> pair = {OwnedFd(ends[0]), OwnedFd(ends[1])};
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t bytes = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), bytes);
  // Without a name the client counts as one at a Unix socket.
  static_cast<void>(bind(
      ends[0], reinterpret_cast<const sockaddr*>(&address),
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes)));
  return pair;
}

// One thing of a kind a minute.
class Seldom {
 public:
  bool Now() {
    const int64_t now = absl::ToUnixSeconds(absl::Now());
    int64_t last = last_.load();
    return now >= last + 60 && last_.compare_exchange_strong(last, now);
  }

 private:
  std::atomic<int64_t> last_{0};
};

bool IsLackOfResources(const Error& error) {
  return error.value() == EMFILE || error.value() == ENFILE ||
         error.value() == ENOBUFS || error.value() == ENOMEM;
}

}  // namespace

size_t ConnectionPlaces::OfDescriptors() {
  constexpr size_t kDescriptors = 3;
  constexpr size_t kMost = 16'384;
  return std::clamp<size_t>(RaiseDescriptorLimit() / 2 / kDescriptors, 16,
                            kMost);
}

absl::StatusOr<std::shared_ptr<void>> ConnectionPlaces::Take(
    const std::string& peer, bool is_unix) {
  MutexLock lock(&counts_->mutex);
  if (counts_->open >= most_ ||
      (!is_unix && counts_->tcp >= most_ - most_ / 4)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        counts_->open, " connections are open, ", most_,
        " are the most (of which TCP has three quarters); raise the limit of "
        "descriptors (ulimit -Hn, LimitNOFILE) if these are ranks"));
  }
  size_t& of_peer = counts_->by_peer[peer];
  if (of_peer >= std::max<size_t>(most_ / 2, 1)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        peer, " has ", of_peer, " connections, half of what this server may "
        "have; raise the limit of descriptors (ulimit -Hn, LimitNOFILE) if "
        "these are ranks"));
  }
  ++of_peer;
  ++counts_->open;
  if (!is_unix) ++counts_->tcp;
  return std::shared_ptr<void>(nullptr, [counts = counts_, peer,
                                         is_unix](void*) {
    MutexLock lock(&counts->mutex);
    --counts->open;
    if (!is_unix) --counts->tcp;
    const auto found = counts->by_peer.find(peer);
    if (--found->second == 0) counts->by_peer.erase(found);
  });
}

size_t ConnectionPlaces::open() const {
  MutexLock lock(&counts_->mutex);
  return counts_->open;
}

std::string RelayedPeer(absl::string_view grpc_peer) {
  absl::string_view rest = grpc_peer;
  if (!absl::ConsumePrefix(&rest, kGrpcPrefix)) return std::string(grpc_peer);
  const size_t end = rest.find('.');  // of the connection's number
  return std::string(end == rest.npos ? grpc_peer : rest.substr(end + 1));
}

struct Relay::Core {
  Core(ListenSockets at, Settings given)
      : listens(std::move(at)), settings(std::move(given)) {}

  ~Core() {
    StopAccepting();
    stopping = true;
    io.stop();
    for (std::thread& thread : threads) thread.join();
  }

  absl::Status Start() {
    BALLAST_RETURN_IF_ERROR(RenewTls());
    Use(&listens.sockets);
    Probe();
    return AddThreads(absl::StrCat("accept connections at ", listens.address),
                      kThreads, [this](size_t) { io.run(); }, &threads);
  }

  void StopAccepting();
  // All on `strand`.
  void Use(std::vector<OwnedFd>* sockets);
  void Accept(const std::shared_ptr<Acceptor>& acceptor);
  void AcceptAfter(std::chrono::milliseconds pause,
                   const std::shared_ptr<Acceptor>& acceptor);
  void OnAccept(const std::shared_ptr<Acceptor>& acceptor, const Error& error,
                Socket socket);
  void Begin(Socket socket, Peer peer, std::shared_ptr<void> place);
  void Probe();
  // Whether the peer is the relay itself, or at a Unix socket its process.
  bool IsProbe(const Peer& peer) const;
  void Reopen(const std::string& why);
  absl::Status RenewTls();

  // Connections that have not spoken, by number; the oldest is closed if there
  // are too many.
  void AddSilent(uint64_t number, std::function<void()> close);
  void RemoveSilent(uint64_t number) {
    MutexLock lock(&mutex);
    silent.erase(number);
  }

  bool IsTls() const { return settings.tls != nullptr && !listens.is_unix(); }
  bool IsMetered() const {
    return !IsTls() || settings.tls->Get()->client_ca.empty();
  }

  ListenSockets listens;  // `sockets` are moved to the acceptors
  const Settings settings;
  const std::string name_prefix = [] {
    std::random_device random;
    return absl::StrCat(kNamePrefix, absl::Hex(random()), absl::Hex(random()),
                        "-");
  }();
  std::atomic<bool> stopping{false};
  std::atomic<uint64_t> accepted{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<uint64_t> expelled{0};
  std::atomic<uint64_t> reopened{0};
  Seldom logged_fault;
  Seldom logged_refusal;
  Seldom logged_expulsion;

  Mutex mutex;
  std::map<uint64_t, std::function<void()>> silent ABSL_GUARDED_BY(mutex);

  // Connections hold the members above; open connections end with `io`.
  net::io_context io{kThreads};
  // The rest belongs to the strand.
  net::strand<net::io_context::executor_type> strand = net::make_strand(io);
  std::vector<std::shared_ptr<Acceptor>> acceptors;
  std::vector<std::shared_ptr<net::steady_timer>> pauses;
  net::steady_timer probe_timer{strand};
  uint64_t accepted_at_probe = 0;
  absl::StatusOr<OwnedFd> probe = absl::UnavailableError("none yet");
  bool probe_came = false;  // was ever accepted
  int missed_probes = 0;
  int failed_reopenings = 0;
  bool is_lost = false;
  std::shared_ptr<const TlsMaterial> tls_material;  // of `tls`
  std::shared_ptr<net::ssl::context> tls;
  std::vector<std::thread> threads;
};

namespace {

// One client's connection. Every operation holds a reference to it; all run on
// the socket's strand.
template <typename Stream>
class Connection : public std::enable_shared_from_this<Connection<Stream>> {
 public:
  static constexpr bool kTls = !std::is_same_v<Stream, Socket>;

  template <typename Core, typename... Context>
  Connection(Core* core, uint64_t number, Peer peer,
             std::shared_ptr<void> place, Socket socket, Context&... context)
      : place_(std::move(place)),
        settings_(core->settings),
        peer_(std::move(peer)),
        name_(absl::StrCat(core->name_prefix, number, ".", peer_.name)),
        metered_(core->IsMetered()),
        stream_(std::move(socket), context...),
        inner_(stream_.get_executor()),
        pause_(stream_.get_executor()),
        deadline_(stream_.get_executor()),
        stall_(stream_.get_executor()),
        expel_([core](const std::string& why) {
          ++core->expelled;
          if (core->logged_expulsion.Now()) {
            LogWarning("closed a connection of ", why);
          }
        }),
        spoke_([core, number] { core->RemoveSilent(number); }) {}

  ~Connection() {
    spoke_();
    settings_.calls->Change(peer_.key, counted_calls_, 0);
  }

  void Start() {
    deadline_.expires_after(kToSpeak);
    deadline_.async_wait([self = this->shared_from_this()](Error error) {
      if (!error) self->Expel("has sent no request for 20 s");
    });
    Wait(Spend(kTls ? kHandshakeWork : kConnectionWork),
         [self = this->shared_from_this()] { self->Greet(); });
  }

  // From any thread: gives way to another connection.
  void GiveWay() {
    net::post(stream_.get_executor(), [self = this->shared_from_this()] {
      if (!self->has_spoken_) self->Expel("was silent, and gave way to others");
    });
  }

 private:
  Socket& Tcp() {
    if constexpr (kTls) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }

  absl::Duration Spend(absl::Duration work) {
    return settings_.budgets->Spend(peer_.key, work, absl::Now());
  }

  template <typename Then>
  void Wait(absl::Duration time, Then then) {
    if (time <= absl::ZeroDuration()) return then();
    pause_.expires_after(absl::ToChronoNanoseconds(time));
    pause_.async_wait([self = this->shared_from_this(),
                       then = std::move(then)](Error error) {
      if (!error) then();
    });
  }

  void Greet() {
    if (closed_) return;
    if constexpr (kTls) {
      stream_.async_handshake(net::ssl::stream_base::server,
                              [self = this->shared_from_this()](Error error) {
                                if (error) return self->Finish();
                                if (!self->metered_) self->Speak();
                                self->ReadUp();
                              });
    } else {
      ReadUp();
    }
  }

  void Speak() {
    if (std::exchange(has_spoken_, true)) return;
    deadline_.cancel();
    spoke_();
  }

  // From the client to gRPC.
  void ReadUp() {
    if (closed_ || finishing_) return;
    reading_ = true;
    up_.resize(kReadBytes);
    stream_.async_read_some(
        net::buffer(up_),
        [self = this->shared_from_this()](Error error, size_t bytes) {
          self->OnUp(error, bytes);
        });
  }

  void OnUp(const Error& error, size_t bytes) {
    reading_ = false;
    if (error || closed_) return Close();
    if (finishing_) return Drain();
    up_.resize(bytes);
    absl::Duration wait = absl::ZeroDuration();
    if (metered_) {
      on_.clear();
      const absl::StatusOr<absl::Duration> work = meter_.Take(up_, &on_);
      if (!work.ok()) return Expel(std::string(work.status().message()));
      wait = Spend(*work);
      CountCalls();
      if (meter_.has_spoken()) Speak();
      up_.swap(on_);
    }
    const auto next = [self = this->shared_from_this(), wait] {
      self->Wait(wait, [self] { self->ReadWithRoom(kCallsLooks); });
    };
    if (up_.empty()) return next();
    if (!inner_.is_open() && !Open()) return Close();
    net::async_write(inner_, net::buffer(up_),
                     [self = this->shared_from_this(), next](Error error,
                                                             size_t) {
                       // gRPC has closed its end; ReadDown closes ours.
                       if (!error) next();
                     });
  }

  void CountCalls() {
    settings_.calls->Change(peer_.key, counted_calls_, meter_.open_calls());
    counted_calls_ = meter_.open_calls();
  }

  // Reads once the peer may begin calls, which is looked at so many times.
  void ReadWithRoom(int looks) {
    if (closed_ || !metered_ || settings_.calls->HasRoom(peer_.key)) {
      return ReadUp();
    }
    if (looks == 0) return Expel("has too many open calls");
    Wait(kCallsLook, [self = this->shared_from_this(), looks] {
      self->ReadWithRoom(looks - 1);
    });
  }

  bool Open() {
    absl::StatusOr<std::pair<OwnedFd, OwnedFd>> pair = MakePair(name_);
    if (!pair.ok()) return false;
    Error error;
    inner_.assign(net::local::stream_protocol(), pair->first.get(), error);
    if (error) return false;
    pair->first.Release();
    settings_.pass(std::move(pair->second));
    ReadDown();
    return true;
  }

  // From gRPC to the client.
  void ReadDown() {
    if (closed_) return;
    if (down_.empty()) down_.resize(kReadBytes);
    inner_.async_read_some(
        net::buffer(down_),
        [self = this->shared_from_this()](Error error, size_t bytes) {
          if (error) return self->Finish();
          self->WriteDown(bytes);
        });
  }

  void WriteDown(size_t bytes) {
    if (closed_) return;
    if (metered_) {
      meter_.Watch(absl::string_view(down_).substr(0, bytes));
      CountCalls();
    }
    // gRPC may have closed its end meanwhile: nobody sees it during a write.
    stall_.expires_after(kToRead);
    stall_.async_wait([self = this->shared_from_this()](Error error) {
      if (!error) self->Expel("has taken nothing for 60 s");
    });
    net::async_write(
        stream_, net::buffer(down_.data(), bytes),
        [self = this->shared_from_this(), bytes](Error error, size_t) {
          self->stall_.cancel();
          if (error) return self->Close();
          if (bytes == self->down_.size() && bytes < kMostReadBytes) {
            self->down_.resize(2 * bytes);
          }
          self->ReadDown();
        });
  }

  void Expel(const std::string& why) {
    if (closed_) return;
    expel_(absl::StrCat(peer_.name, ": ", why,
                        "; said at most once a minute"));
    Close();
  }

  // Closes once the client has had time to take the last bytes, such as an
  // alert of TLS: closing before it has sent all of its own would discard them.
  void Finish() {
    if (closed_ || std::exchange(finishing_, true)) return;
    Error ignored;
    inner_.close(ignored);
    Tcp().shutdown(Socket::shutdown_send, ignored);
    deadline_.expires_after(kToTake);
    deadline_.async_wait([self = this->shared_from_this()](Error error) {
      if (!error) self->Close();
    });
    if (!reading_) Drain();
  }

  void Drain() {
    down_.resize(kReadBytes);
    Tcp().async_read_some(
        net::buffer(down_),
        [self = this->shared_from_this()](Error error, size_t) {
          if (error) return self->Close();
          self->Drain();
        });
  }

  void Close() {
    if (std::exchange(closed_, true)) return;
    Error ignored;
    inner_.close(ignored);
    Tcp().close(ignored);
    pause_.cancel();
    deadline_.cancel();
    stall_.cancel();
  }

  const std::shared_ptr<void> place_;  // released last
  const Relay::Settings& settings_;
  const Peer peer_;
  const std::string name_;
  const bool metered_;
  Stream stream_;
  Inner inner_;
  net::steady_timer pause_;
  net::steady_timer deadline_;
  net::steady_timer stall_;
  const std::function<void(const std::string&)> expel_;
  const std::function<void()> spoke_;
  FrameMeter meter_;
  size_t counted_calls_ = 0;
  std::string up_;
  std::string on_;
  std::string down_;
  bool has_spoken_ = false;
  bool reading_ = false;    // from the client, for gRPC
  bool finishing_ = false;  // gRPC has closed its end
  bool closed_ = false;
};

}  // namespace

void Relay::Core::AddSilent(uint64_t number, std::function<void()> close) {
  std::function<void()> oldest;
  {
    MutexLock lock(&mutex);
    silent.emplace(number, std::move(close));
    if (silent.size() <= std::max<size_t>(settings.places->most() / 4, 8)) {
      return;
    }
    oldest = std::move(silent.begin()->second);
    silent.erase(silent.begin());
  }
  oldest();
}

void Relay::Core::Begin(Socket socket, Peer peer, std::shared_ptr<void> place) {
  const uint64_t number = accepted;
  const auto start = [this, number](auto connection) {
    AddSilent(number, [weak = std::weak_ptr(connection)] {
      if (const auto held = weak.lock()) held->GiveWay();
    });
    connection->Start();
  };
  const auto executor = socket.get_executor();
  if (IsTls()) {
    auto connection = std::make_shared<Connection<TlsStream>>(
        this, number, std::move(peer), std::move(place), std::move(socket),
        *tls);
    net::dispatch(executor, [start, connection] { start(connection); });
  } else {
    auto connection = std::make_shared<Connection<Socket>>(
        this, number, std::move(peer), std::move(place), std::move(socket));
    net::dispatch(executor, [start, connection] { start(connection); });
  }
}

void Relay::Core::Use(std::vector<OwnedFd>* sockets) {
  for (OwnedFd& socket : *sockets) {
    sockaddr_storage address = {};
    socklen_t length = sizeof(address);
    getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
    const Protocol protocol(address.ss_family, 0);
    auto acceptor = std::make_shared<Acceptor>(strand);
    Error error;
    acceptor->assign(protocol, socket.get(), error);
    if (error) continue;
    socket.Release();
    acceptors.push_back(acceptor);
    net::post(strand, [this, acceptor] { Accept(acceptor); });
  }
  sockets->clear();
}

void Relay::Core::Accept(const std::shared_ptr<Acceptor>& acceptor) {
  if (stopping || !acceptor->is_open()) return;
  acceptor->async_accept(net::make_strand(io),
                         [this, acceptor](Error error, Socket socket) {
                           OnAccept(acceptor, error, std::move(socket));
                         });
}

void Relay::Core::AcceptAfter(std::chrono::milliseconds pause,
                              const std::shared_ptr<Acceptor>& acceptor) {
  const auto timer = std::make_shared<net::steady_timer>(strand, pause);
  timer->async_wait([this, timer, acceptor](Error error) {
    if (!error) Accept(acceptor);
  });
}

void Relay::Core::OnAccept(const std::shared_ptr<Acceptor>& acceptor,
                           const Error& error, Socket socket) {
  if (stopping || !acceptor->is_open()) return;
  if (error) {
    if (IsLackOfResources(error)) {
      if (logged_fault.Now()) {
        LogError("cannot accept connections at ", listens.address, ": ",
                 error.message(),
                 "; tried again ten times a second, said once a minute");
      }
    } else if (error != net::error::connection_aborted) {
      return Reopen(error.message());
    }
    return AcceptAfter(kAfterFault, acceptor);
  }
  ++accepted;
  Peer peer = GetPeer(socket.native_handle());
  probe_came = probe_came || IsProbe(peer);
  absl::StatusOr<std::shared_ptr<void>> place =
      settings.places->Take(peer.key, peer.is_unix);
  const absl::Status usable = place.ok() ? RenewTls() : place.status();
  if (!usable.ok()) {
    ++refused;
    if (logged_refusal.Now()) {
      LogError("refused a connection of ", peer.name, " at ", listens.address,
               ": ", usable.message(), "; said at most once a minute");
    }
    return AcceptAfter(kAfterRefusal, acceptor);
  }
  if (!peer.is_unix) {
    const int on = 1;
    setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on,
               sizeof(on));
  }
  Begin(std::move(socket), std::move(peer), *std::move(place));
  Accept(acceptor);
}

void Relay::Core::Probe() {
  probe_timer.expires_after(kProbePeriod);
  probe_timer.async_wait([this](Error error) {
    if (error || stopping || is_lost || listens.address.empty()) return;
    // Any connection shows that the address is served. Without one of our own
    // so far, something keeps the server from its own address.
    const bool answers = accepted != accepted_at_probe ||
                         absl::IsUnavailable(probe.status());
    missed_probes = answers || !probe_came ? 0 : missed_probes + 1;
    accepted_at_probe = accepted;
    probe = ConnectTo(listens);
    if (missed_probes >= kProbesToReopen) {
      Reopen("it accepts no connection of its own for 10 s");
    }
    Probe();
  });
}

bool Relay::Core::IsProbe(const Peer& peer) const {
  if (!probe.ok()) return false;
  if (peer.is_unix) return peer.process == getpid();
  sockaddr_storage own = {};
  socklen_t bytes = sizeof(own);
  getsockname(probe->get(), reinterpret_cast<sockaddr*>(&own), &bytes);
  return absl::EndsWith(peer.name, absl::StrCat(":", ToNumeric(own).text));
}

void Relay::Core::Reopen(const std::string& why) {
  if (stopping || is_lost) return;
  for (const auto& acceptor : acceptors) {
    Error ignored;
    acceptor->close(ignored);
  }
  acceptors.clear();
  missed_probes = 0;
  ++reopened;
  absl::StatusOr<ListenSockets> again = OpenListenSockets(listens.address);
  if (again.ok()) {
    LogError(listens.address, " had to be opened again: ", why);
    listens.inode = again->inode;
    failed_reopenings = 0;
    return Use(&again->sockets);
  }
  const absl::Status fault = Annotate(
      again.status(), absl::StrCat(listens.address, " is lost: ", why));
  LogError(fault.message());
  if (++failed_reopenings >= kReopeningsToLose) {
    is_lost = true;
    if (settings.on_lost) settings.on_lost(fault);
    return;
  }
  const auto timer = std::make_shared<net::steady_timer>(strand, kProbePeriod);
  timer->async_wait([this, timer, why](Error error) {
    if (!error) Reopen(why);
  });
}

absl::Status Relay::Core::RenewTls() {
  if (!IsTls()) return absl::OkStatus();
  std::shared_ptr<const TlsMaterial> now = settings.tls->Get();
  if (now == tls_material) return absl::OkStatus();
  BALLAST_ASSIGN_OR_RETURN(tls, MakeTlsContext(*now, TlsProtocol::kHttp2));
  tls_material = std::move(now);
  return absl::OkStatus();
}

void Relay::Core::StopAccepting() {
  if (stopping.exchange(true)) return;
  listens.RemoveFile();
  if (threads.empty()) return;
  net::post(strand, [this] {
    for (const auto& acceptor : acceptors) {
      Error ignored;
      acceptor->close(ignored);
    }
    acceptors.clear();
    probe_timer.cancel();
  });
}

absl::StatusOr<std::unique_ptr<Relay>> Relay::Start(ListenSockets sockets,
                                                    Settings settings) {
  auto core = std::make_unique<Core>(std::move(sockets), std::move(settings));
  BALLAST_RETURN_IF_ERROR(core->Start());
  return std::unique_ptr<Relay>(new Relay(std::move(core)));
}

Relay::Relay(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Relay::~Relay() = default;

void Relay::StopAccepting() { core_->StopAccepting(); }

Relay::Figures Relay::figures() const {
  return {core_->accepted, core_->refused, core_->expelled, core_->reopened};
}

}  // namespace ballast
