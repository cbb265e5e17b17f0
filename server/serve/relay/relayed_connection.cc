#include "server/serve/relay/relayed_connection.h"

#include <poll.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/serve/relay/frame_meter.h"

namespace ballast {
namespace {

namespace net = boost::asio;
using Error = boost::system::error_code;
using Socket = RelayedConnection::Socket;
using Inner = net::local::stream_protocol::socket;
using TlsStream = net::ssl::stream<Socket>;

// Until a client has sent its first frame, TLS included; until a peer with too
// many calls has fewer.
constexpr std::chrono::seconds kToSpeak(20);
constexpr absl::Duration kCallsLook = absl::Milliseconds(20);
constexpr int kCallsLooks = 1000;
constexpr absl::Duration kHangUpLook = absl::Milliseconds(250);
// For a client to take the last bytes.
constexpr std::chrono::seconds kToTake(1);
// For a client to take what gRPC has sent. After a third of it gRPC's keepalive
// has ended the connection of a client that reads nothing.
constexpr std::chrono::seconds kToRead(60);
// What a new connection and a handshake mean in work.
constexpr absl::Duration kConnectionWork = absl::Microseconds(300);
constexpr absl::Duration kHandshakeWork = absl::Milliseconds(2);
constexpr size_t kLeastReadBytes = 1 << 10;
constexpr size_t kReadBytes = 16 << 10;
constexpr size_t kMostReadBytes = 256 << 10;

// `Stream`: Socket, or TlsStream.
template <typename Stream>
class Connection : public RelayedConnection,
                   public std::enable_shared_from_this<Connection<Stream>> {
 public:
  static constexpr bool kTls = !std::is_same_v<Stream, Socket>;
  static constexpr absl::Duration kBeginWork =
      kTls ? kHandshakeWork : kConnectionWork;

  template <typename... Context>
  Connection(Settings settings, Socket socket, Context&... context)
      : settings_(std::move(settings)),
        stream_(std::move(socket), context...),
        inner_(stream_.get_executor()),
        pause_(stream_.get_executor()),
        deadline_(stream_.get_executor()),
        stall_(stream_.get_executor()) {}

  ~Connection() override {
    settings_.on_spoken();
    settings_.calls->Change(settings_.peer.key, counted_calls_, 0);
  }

  void Start() override {
    deadline_.expires_after(kToSpeak);
    deadline_.async_wait([self = this->shared_from_this()](Error error) {
      if (!error) self->Expel("has sent no request for 20 s");
    });
    Wait(Spend(kBeginWork), [self = this->shared_from_this()] {
      self->has_begun_ = true;
      self->Greet();
    });
  }

  void GiveWay() override {
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
    return settings_.budgets->Spend(settings_.peer.key, work, absl::Now());
  }

  template <typename Then>
  void Wait(absl::Duration time, Then then) {
    if (time <= absl::ZeroDuration()) return then();
    const absl::Duration part = std::min(time, kHangUpLook);
    pause_.expires_after(absl::ToChronoNanoseconds(part));
    pause_.async_wait([self = this->shared_from_this(), left = time - part,
                       then = std::move(then)](Error error) mutable {
      if (error) return;
      if (self->HasHungUp()) return self->Close();
      self->Wait(left, std::move(then));
    });
  }

  // What a client sent before it hung up is of no use to it, and would keep its
  // peer waiting.
  bool HasHungUp() {
    pollfd look = {Tcp().native_handle(), POLLRDHUP, 0};
    return poll(&look, 1, 0) > 0;
  }

  void Greet() {
    if (closed_) return;
    if constexpr (kTls) {
      stream_.async_handshake(net::ssl::stream_base::server,
                              [self = this->shared_from_this()](Error error) {
                                if (error) return self->Finish();
                                if (!self->settings_.is_metered) self->Speak();
                                self->ReadUp();
                              });
    } else {
      ReadUp();
    }
  }

  void Speak() {
    if (std::exchange(has_spoken_, true)) return;
    deadline_.cancel();
    settings_.on_spoken();
  }

  // From the client to gRPC.
  void ReadUp() {
    if (closed_ || finishing_) return;
    reading_ = true;
    up_.resize(read_bytes_);
    stream_.async_read_some(net::buffer(up_), [self = this->shared_from_this()](
                                                  Error error, size_t bytes) {
      self->OnUp(error, bytes);
    });
  }

  void OnUp(const Error& error, size_t bytes) {
    reading_ = false;
    if (error || closed_) return Close();
    if (finishing_) return Drain();
    up_.resize(bytes);
    absl::Duration wait = absl::ZeroDuration();
    if (settings_.is_metered) {
      on_.clear();
      const absl::StatusOr<absl::Duration> work = meter_.Take(up_, &on_);
      if (!work.ok()) return Expel(std::string(work.status().message()));
      wait = Spend(*work);
      CountCalls();
      if (meter_.has_spoken()) Speak();
      up_.swap(on_);
    }
    // A peer that has to wait for one piece does not wait long for the next.
    if (wait > absl::ZeroDuration()) {
      read_bytes_ = kLeastReadBytes;
    } else if (bytes == read_bytes_) {
      read_bytes_ = std::min(2 * read_bytes_, kReadBytes);
    }
    const auto next = [self = this->shared_from_this(), wait] {
      self->Wait(wait, [self] { self->ReadWithRoom(kCallsLooks); });
    };
    if (up_.empty()) return next();
    if (!inner_.is_open() && !Open()) return Close();
    net::async_write(
        inner_, net::buffer(up_),
        [self = this->shared_from_this(), next](Error error, size_t) {
          // gRPC has closed its end; ReadDown closes ours.
          if (!error) next();
        });
  }

  void CountCalls() {
    settings_.calls->Change(settings_.peer.key, counted_calls_,
                            meter_.open_calls());
    counted_calls_ = meter_.open_calls();
  }

  // Reads once the peer may begin calls, which is looked at so many times.
  void ReadWithRoom(int looks) {
    if (closed_ || !settings_.is_metered ||
        settings_.calls->HasRoom(settings_.peer.key)) {
      return ReadUp();
    }
    if (looks == 0) return Expel("has too many open calls");
    Wait(kCallsLook, [self = this->shared_from_this(), looks] {
      self->ReadWithRoom(looks - 1);
    });
  }

  bool Open() {
    absl::StatusOr<std::pair<OwnedFd, OwnedFd>> pair = MakeRelayedPair(
        settings_.name_prefix, settings_.number, settings_.peer);
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
    if (settings_.is_metered) {
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
    settings_.on_expelled(absl::StrCat(settings_.peer.name, ": ", why,
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
    Tcp().async_read_some(net::buffer(down_), [self = this->shared_from_this()](
                                                  Error error, size_t) {
      if (error) return self->Close();
      self->Drain();
    });
  }

  void Close() {
    if (std::exchange(closed_, true)) return;
    if (!has_begun_)
      settings_.budgets->GiveBack(settings_.peer.key, kBeginWork);
    Error ignored;
    inner_.close(ignored);
    Tcp().close(ignored);
    pause_.cancel();
    deadline_.cancel();
    stall_.cancel();
  }

  const Settings settings_;  // its place is released last
  Stream stream_;
  Inner inner_;
  net::steady_timer pause_;
  net::steady_timer deadline_;
  net::steady_timer stall_;
  FrameMeter meter_;
  size_t counted_calls_ = 0;
  size_t read_bytes_ = kLeastReadBytes;
  std::string up_;
  std::string on_;
  std::string down_;
  bool has_begun_ = false;
  bool has_spoken_ = false;
  bool reading_ = false;    // from the client, for gRPC
  bool finishing_ = false;  // gRPC has closed its end
  bool closed_ = false;
};

}  // namespace

std::shared_ptr<RelayedConnection> RelayedConnection::Create(
    Socket socket, Settings settings) {
  if (settings.tls == nullptr) {
    return std::make_shared<Connection<Socket>>(std::move(settings),
                                                std::move(socket));
  }
  net::ssl::context& tls = *settings.tls;
  return std::make_shared<Connection<TlsStream>>(std::move(settings),
                                                 std::move(socket), tls);
}

}  // namespace ballast
