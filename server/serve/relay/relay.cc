#include "server/serve/relay/relay.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <cerrno>
#include <chrono>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "server/serve/relay/relayed_connection.h"
#include "server/serve/security/tls_context.h"

namespace ballast {
namespace {

namespace net = boost::asio;
using Error = boost::system::error_code;
using Protocol = net::generic::stream_protocol;
using Socket = Protocol::socket;
using Acceptor = net::basic_socket_acceptor<Protocol>;

constexpr int kThreads = 2;
// Pause after an accept that failed, and after a connection that was refused.
constexpr std::chrono::milliseconds kAfterFault(100);
constexpr std::chrono::milliseconds kAfterRefusal(1);
constexpr std::chrono::seconds kProbePeriod(2);
constexpr int kProbesToReopen = 5;
constexpr int kReopeningsToLose = 5;

bool IsLackOfResources(const Error& error) {
  return error.value() == EMFILE || error.value() == ENFILE ||
         error.value() == ENOBUFS || error.value() == ENOMEM;
}

}  // namespace

struct Relay::Core {
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
    probe = ConnectTo(listens);
    Probe();
    return AddThreads(
        absl::StrCat("accept connections at ", listens.address), kThreads,
        [this](size_t) { io.run(); }, &threads);
  }

  void StopAccepting();
  // All on `strand`.
  void Use(std::vector<OwnedFd>* sockets);
  void Accept(const std::shared_ptr<Acceptor>& acceptor);
  void AcceptAfter(std::chrono::milliseconds pause,
                   const std::shared_ptr<Acceptor>& acceptor);
  void OnAccept(const std::shared_ptr<Acceptor>& acceptor, const Error& error,
                Socket socket);
  void Begin(Socket socket, RelayedPeer peer, std::shared_ptr<void> place);
  void Probe();
  // Whether the peer is the relay itself, or at a Unix socket its process.
  bool IsProbe(const RelayedPeer& peer) const;
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

  ListenSockets listens;  // `sockets` are moved to the acceptors
  const Settings settings;
  const std::string name_prefix = [] {
    std::random_device random;
    return absl::StrCat(absl::Hex(random()), absl::Hex(random()), "-");
  }();
  std::atomic<bool> stopping{false};
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
  uint64_t accepted = 0;
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

void Relay::Core::Begin(Socket socket, RelayedPeer peer,
                        std::shared_ptr<void> place) {
  const uint64_t number = accepted;
  RelayedConnection::Settings connection;
  connection.peer = std::move(peer);
  connection.name_prefix = name_prefix;
  connection.number = number;
  connection.place = std::move(place);
  connection.budgets = settings.budgets;
  connection.calls = settings.calls;
  connection.is_metered = !IsTls() || settings.tls->Get()->client_ca.empty();
  if (IsTls()) connection.tls = tls;
  connection.pass = settings.pass;
  connection.on_expelled = [this](const std::string& why) {
    settings.places->expelled.Add();
    if (logged_expulsion.Now()) LogWarning("closed a connection of ", why);
  };
  connection.on_spoken = [this, number] { RemoveSilent(number); };
  const auto executor = socket.get_executor();
  net::dispatch(executor, [this, number,
                           begun = RelayedConnection::Create(
                               std::move(socket), std::move(connection))] {
    AddSilent(number, [weak = std::weak_ptr(begun)] {
      if (const auto held = weak.lock()) held->GiveWay();
    });
    begun->Start();
  });
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
  settings.places->accepted.Add();
  RelayedPeer peer = GetRelayedPeer(socket.native_handle());
  probe_came = probe_came || IsProbe(peer);
  absl::StatusOr<std::shared_ptr<void>> place =
      settings.places->Take(peer.key, peer.is_unix, absl::Now());
  const absl::Status usable = place.ok() ? RenewTls() : place.status();
  if (!usable.ok()) {
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
    const bool answers =
        accepted != accepted_at_probe || absl::IsUnavailable(probe.status());
    missed_probes = answers || !probe_came ? 0 : missed_probes + 1;
    accepted_at_probe = accepted;
    probe = ConnectTo(listens);
    if (missed_probes >= kProbesToReopen) {
      Reopen("it accepts no connection of its own for 10 s");
    }
    Probe();
  });
}

bool Relay::Core::IsProbe(const RelayedPeer& peer) const {
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
  settings.places->reopened.Add();
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

}  // namespace ballast
