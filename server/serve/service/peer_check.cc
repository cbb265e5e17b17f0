#include "server/serve/service/peer_check.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "proto/loader_service.grpc.pb.h"
#include "proto/schedule/fingerprint.h"
#include "proto/transport.h"

namespace ballast {

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakePeerChannel(
    const std::string& address, const ChannelSecurity& security,
    int most_bytes) {
  grpc::ChannelArguments arguments;
  // Failed attempts of other channels must not delay this one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Servers are inside the cluster: an HTTP proxy cannot reach them.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetMaxReceiveMessageSize(most_bytes);
  SetSecurityArguments(security, &arguments);
  BALLAST_ASSIGN_OR_RETURN(const auto credentials,
                           ChannelCredentialsFor(security, address));
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

namespace {

constexpr std::chrono::seconds kPeerDeadline(2);

class GrpcPeerCaller final : public PeerCaller {
 public:
  explicit GrpcPeerCaller(PeerSecurity security)
      : security_(std::move(security)) {}

  absl::StatusOr<v1::AttachResponse> Attach(
      const std::string& address) override {
    BALLAST_ASSIGN_OR_RETURN(const auto channel,
                             MakePeerChannel(address, security_()));
    const auto stub = v1::LoaderService::NewStub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPeerDeadline);
    {
      MutexLock lock(&mutex_);
      if (cancelled_) return absl::CancelledError("the server stops");
      context_ = &context;
    }
    v1::AttachResponse response;
    const grpc::Status status =
        stub->Attach(&context, v1::AttachRequest(), &response);
    MutexLock lock(&mutex_);
    context_ = nullptr;
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }

  void Cancel() override {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }

 private:
  const PeerSecurity security_;
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  // Context of the Attach in progress; null without one.
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace

std::unique_ptr<PeerCaller> MakeGrpcPeerCaller(PeerSecurity security) {
  return std::make_unique<GrpcPeerCaller>(std::move(security));
}

namespace {

constexpr int kRounds = 9;
constexpr absl::Duration kFirstDelay = absl::Seconds(1);
constexpr absl::Duration kLongestDelay = absl::Seconds(32);
// Between two questions to the server where groups meet, for which ranks wait.
constexpr absl::Duration kMeetingDelay = absl::Seconds(1);

}  // namespace

std::vector<std::string> PeerAddresses(const v1::Topology& topology,
                                       absl::string_view own) {
  std::vector<std::string> addresses;
  for (const v1::Topology::Server& server : topology.servers()) {
    if (server.address() != own) addresses.push_back(server.address());
  }
  return addresses;
}

absl::StatusOr<bool> ComparePeer(
    const v1::Fingerprint& own, absl::string_view own_address,
    const absl::StatusOr<v1::AttachResponse>& answer,
    absl::string_view peer_address) {
  if (!answer.ok() || answer->fingerprint().hash().empty()) return false;
  BALLAST_RETURN_IF_ERROR(
      Annotate(CheckSameFingerprint(own, absl::StrCat("server ", own_address),
                                    answer->fingerprint(),
                                    absl::StrCat("server ", peer_address)),
               "servers of different configurations"));
  return true;
}

absl::Status NotCompared(absl::string_view own_address,
                         absl::string_view meeting) {
  return absl::UnavailableError(absl::StrCat(
      "server ", own_address,
      " has not compared its configuration yet with server ", meeting,
      ", where the ranks of the job meet (topology.meeting, --meeting), and "
      "serves no rank before; is that server started, and reached from here?"));
}

std::optional<absl::Duration> PeerRetryDelay(int round) {
  if (round >= kRounds) return std::nullopt;
  absl::Duration delay = kFirstDelay;
  for (int i = 1; i < round; ++i) delay = std::min(2 * delay, kLongestDelay);
  return delay;
}

std::vector<std::string> PeerVerdict::ToAsk() const {
  std::vector<std::string> peers;
  if (watches_) {
    const size_t count = std::min(peers_.size(), kWatchedARound);
    for (size_t i = 0; i < count; ++i) {
      peers.push_back(peers_[(next_ + i) % peers_.size()]);
    }
    return peers;
  }
  for (const std::string& peer : peers_) {
    const auto compared = compared_.find(peer);
    if (compared == compared_.end() || !compared->second.ok()) {
      peers.push_back(peer);
    }
  }
  return peers;
}

void PeerVerdict::Note(const std::string& peer,
                       const absl::StatusOr<bool>& compared) {
  if (!compared.ok()) {
    compared_[peer] = compared.status();
  } else if (*compared) {
    compared_[peer] = absl::OkStatus();
  } else {
    fell_silent_ |= compared_.erase(peer) != 0;
  }
}

absl::Duration PeerVerdict::EndRound() {
  if (watches_) next_ = (next_ + kWatchedARound) % peers_.size();
  if (std::exchange(fell_silent_, false)) round_ = 0;
  watches_ = false;
  if (!status().ok()) return kDiffersDelay;
  if (!silent().empty()) {
    const std::optional<absl::Duration> delay = PeerRetryDelay(round_ + 1);
    ++round_;
    if (delay.has_value()) return *delay;
  }
  watches_ = true;
  return kWatchDelay;
}

absl::Status PeerVerdict::status() const {
  for (const std::string& peer : peers_) {
    const auto compared = compared_.find(peer);
    if (compared != compared_.end() && !compared->second.ok()) {
      return compared->second;
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> PeerVerdict::silent() const {
  std::vector<std::string> peers;
  for (const std::string& peer : peers_) {
    if (compared_.find(peer) == compared_.end()) peers.push_back(peer);
  }
  return peers;
}

absl::StatusOr<std::unique_ptr<PeerCheck>> PeerCheck::Start(
    Self self, std::vector<std::string> peers,
    std::unique_ptr<PeerCaller> caller, Clock* clock,
    std::function<void(absl::Status)> on_change) {
  std::unique_ptr<PeerCheck> check(new PeerCheck(
      std::move(self), std::move(caller), clock, std::move(on_change)));
  BALLAST_ASSIGN_OR_RETURN(
      check->thread_, StartThread("ask the other servers",
                                  [c = check.get(), peers = std::move(peers)] {
                                    c->Run(peers);
                                  }));
  return check;
}

void PeerCheck::Stop() {
  stopping_ = true;
  caller_->Cancel();
  sleeper_->Wake();
  if (thread_.joinable()) thread_.join();
}

absl::Status PeerCheck::AskAll(PeerVerdict* verdict) {
  absl::Status why;
  for (const std::string& peer : verdict->ToAsk()) {
    if (stopping_) break;
    const auto answer = caller_->Attach(peer);
    if (stopping_) break;
    why.Update(answer.status());
    verdict->Note(peer,
                  ComparePeer(self_.fingerprint, self_.address, answer, peer));
  }
  return why;
}

bool PeerCheck::AwaitMeeting() {
  if (self_.meeting.empty()) return true;
  absl::Status told;
  for (bool first = true;; first = false) {
    const auto answer = caller_->Attach(self_.meeting);
    if (stopping_) return false;
    const auto compared =
        ComparePeer(self_.fingerprint, self_.address, answer, self_.meeting);
    if (compared.ok() && *compared) return true;
    if (!compared.ok() && compared.status() != told) {
      told = compared.status();
      on_change_(told);
    }
    if (compared.ok() && first) {
      LogInfo(NotCompared(self_.address, self_.meeting).message(), " (",
              answer.status().ToString(), ")");
    }
    const absl::Duration delay =
        compared.ok() ? kMeetingDelay : PeerVerdict::kDiffersDelay;
    if (!sleeper_->Sleep(delay)) return false;
  }
}

void PeerCheck::Run(std::vector<std::string> peers) {
  if (!AwaitMeeting()) return;
  const size_t all = peers.size();
  PeerVerdict verdict(std::move(peers));
  absl::Status told;
  bool were_equal = false;
  for (bool first = true;; first = false) {
    const absl::Status why = AskAll(&verdict);
    if (stopping_) return;
    if (first || verdict.status() != told) {
      told = verdict.status();
      on_change_(told);
    }
    const std::vector<std::string> silent = verdict.silent();
    if (first && !silent.empty()) {
      LogInfo(silent.size(), " of the ", all,
              " other servers of the job have not been compared, ", silent[0],
              " among them (", why.ToString(),
              "); they compare when they start");
    }
    const bool are_equal = silent.empty() && told.ok();
    if (are_equal && !std::exchange(were_equal, are_equal)) {
      LogInfo("the ", all,
              " other servers of the job have the same fingerprint");
    }
    were_equal = are_equal;
    if (!sleeper_->Sleep(verdict.EndRound())) return;
  }
}

}  // namespace ballast
