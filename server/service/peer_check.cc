#include "server/service/peer_check.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/schedule/fingerprint.h"

namespace ballast {
namespace {

constexpr int kRounds = 9;
constexpr absl::Duration kFirstDelay = absl::Seconds(1);
constexpr absl::Duration kLongestDelay = absl::Seconds(32);

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

std::optional<absl::Duration> PeerRetryDelay(int round) {
  if (round >= kRounds) return std::nullopt;
  absl::Duration delay = kFirstDelay;
  for (int i = 1; i < round; ++i) delay = std::min(2 * delay, kLongestDelay);
  return delay;
}

absl::StatusOr<std::unique_ptr<PeerCheck>> PeerCheck::Start(
    Self self, std::vector<std::string> peers,
    std::unique_ptr<PeerCaller> caller, Clock* clock,
    std::function<void(absl::Status)> on_mismatch) {
  std::unique_ptr<PeerCheck> check(new PeerCheck(
      std::move(self), std::move(caller), clock, std::move(on_mismatch)));
  try {
    check->thread_ = std::thread(
        [c = check.get(), peers = std::move(peers)] { c->Run(peers); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no thread to ask the other servers with: ", error.what()));
  }
  return check;
}

void PeerCheck::Stop() {
  stopping_ = true;
  caller_->Cancel();
  sleeper_->Wake();
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<std::vector<std::string>> PeerCheck::AskAll(
    const std::vector<std::string>& peers, absl::Status* why) {
  std::vector<std::string> silent;
  for (const std::string& peer : peers) {
    if (stopping_) break;
    const auto answer = caller_->Attach(peer);
    BALLAST_ASSIGN_OR_RETURN(
        const bool same,
        ComparePeer(self_.fingerprint, self_.address, answer, peer));
    if (same) continue;
    if (silent.empty()) *why = answer.status();
    silent.push_back(peer);
  }
  return silent;
}

void PeerCheck::Run(std::vector<std::string> peers) {
  const size_t all = peers.size();
  for (int round = 0;;) {
    absl::Status why;
    absl::StatusOr<std::vector<std::string>> silent = AskAll(peers, &why);
    if (stopping_) return;
    if (!silent.ok()) {
      on_mismatch_(silent.status());
      return;
    }
    peers = *std::move(silent);
    if (peers.empty()) {
      LogInfo("the ", all,
              " other servers of the job have the same fingerprint");
      return;
    }
    if (round == 0) {
      LogInfo(peers.size(), " of the ", all,
              " other servers of the job have not been compared, ", peers[0],
              " among them (", why.ToString(),
              "); they compare when they start");
    }
    const std::optional<absl::Duration> delay = PeerRetryDelay(++round);
    if (!delay.has_value() || !sleeper_->Sleep(*delay)) return;
  }
}

}  // namespace ballast
