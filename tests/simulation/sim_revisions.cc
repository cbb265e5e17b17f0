#include "tests/simulation/sim_revisions.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/simulation/sim_call.h"
#include "tests/simulation/sim_threads.h"

namespace ballast {
namespace {

void Pause(absl::Duration most) {
  SimThreads& threads = *SimThreads::Current();
  threads.SleepUntil(threads.Now() +
                     threads.random().Between(absl::ZeroDuration(), most));
}

class SimStore final : public RevisionStore {
 public:
  SimStore(std::string path, const SimDisk* disk, SimProcess* process,
           bool forgets)
      : file_(MakeFileRevisionStore(std::move(path))),
        disk_(*disk),
        process_(*process),
        forgets_(forgets) {}

  absl::StatusOr<v1::RevisionBook> Read(const std::string& job,
                                        const std::string& server,
                                        bool alone) const override {
    Pause(disk_.most_read_time);
    return file_->Read(job, server, alone);
  }

  absl::Status Write(const v1::RevisionBook& book) override {
    SimThreads& threads = *SimThreads::Current();
    Pause(disk_.most_read_time);
    threads.SleepUntil(disk_.stalled_until);
    if (process_.dead() || !process_.SurvivesWrite(/*before=*/true)) {
      return absl::UnavailableError("this process is gone");
    }
    const bool fails =
        disk_.full > 0 || threads.random().Chance(disk_.error_chance);
    // After an error the file may be either.
    if ((!fails || threads.random().Chance(0.5)) && !forgets_ &&
        !file_->Write(book).ok()) {
      std::abort();
    }
    if (!process_.SurvivesWrite(/*before=*/false)) {
      return absl::UnavailableError("this process is gone");
    }
    Pause(disk_.most_read_time);
    return fails ? absl::UnavailableError("Input/output error")
                 : absl::OkStatus();
  }

 private:
  const std::unique_ptr<RevisionStore> file_;
  const SimDisk& disk_;
  SimProcess& process_;
  const bool forgets_;
};

class SimPeers final : public RevisionPeers {
 public:
  SimPeers(SimNetwork* network, int node) : network_(*network), node_(node) {}

  absl::StatusOr<v1::GetRevisionsResponse> GetRevisions(
      const std::string& address, const v1::GetRevisionsRequest& request,
      absl::Duration patience) override {
    return Call<v1::GetRevisionsResponse>(
        address, patience, [request](SimServer* server, auto answer) {
          answer(server->GetRevisions(request.have()));
        });
  }
  absl::StatusOr<v1::AgreeResponse> Agree(const std::string& address,
                                          const v1::AgreeRequest& request,
                                          absl::Duration patience) override {
    return Call<v1::AgreeResponse>(address, patience,
                                   [request](SimServer* server, auto answer) {
                                     server->Agree(request, answer);
                                   });
  }
  void Cancel() override {
    cancelled_ = true;
    for (SimConnection* call : open_) call->Lose(node_, "the server drains");
  }

 private:
  template <typename Response>
  absl::StatusOr<Response> Call(const std::string& address,
                                absl::Duration patience,
                                typename SimCall<Response>::Handler handler) {
    if (cancelled_) return absl::CancelledError("the server drains");
    const auto call =
        std::make_shared<SimCall<Response>>(&network_, node_, address);
    open_.insert(call.get());
    auto answer = call->Run(std::move(handler), patience);
    open_.erase(call.get());
    return answer;
  }

  SimNetwork& network_;
  const int node_;
  // Only simulated threads touch these, and none gives way in between.
  bool cancelled_ = false;
  std::set<SimConnection*> open_;
};

struct SimCandidate final : RevisedJob::Candidate {
  int version = 0;
  std::unique_ptr<Scheduler> scheduler;
};

}  // namespace

std::unique_ptr<RevisionStore> MakeSimRevisionStore(std::string path,
                                                    const SimDisk* disk,
                                                    SimProcess* process,
                                                    bool forgets) {
  return std::make_unique<SimStore>(std::move(path), disk, process, forgets);
}

std::unique_ptr<RevisionPeers> MakeSimRevisionPeers(SimNetwork* network,
                                                    int node) {
  return std::make_unique<SimPeers>(network, node);
}

absl::StatusOr<std::unique_ptr<RevisedJob::Candidate>> SimRevisedJob::Open(
    const std::string& config, uint64_t first_step) const {
  constexpr absl::Duration kMostOpenTime = absl::Seconds(1);
  Pause(kMostOpenTime);
  auto candidate = std::make_unique<SimCandidate>();
  if (!absl::SimpleAtoi(config, &candidate->version)) std::abort();
  candidate->first_step = first_step;
  candidate->config = config;
  candidate->scheduler = MakeSimScheduler(job_, candidate->version);
  candidate->fingerprint = candidate->scheduler->fingerprint().hash();
  return candidate;
}

void SimRevisedJob::Apply(std::unique_ptr<Candidate> candidate) {
  auto& opened = static_cast<SimCandidate&>(*candidate);
  SimBuilderOptions data = data_;
  data.version = opened.version;
  builder_->Add(candidate->first_step, MakeSimBuilder(data, disk_));
  scheduler_.Add(candidate->first_step, opened.scheduler.get());
  schedulers_.push_back(std::move(opened.scheduler));
}

std::unique_ptr<SampleBuilder> SimRevisedJob::MakeBuilder() {
  auto builder = std::make_unique<Builder>(MakeSimBuilder(data_, disk_));
  builder_ = builder.get();
  return builder;
}

std::map<uint64_t, int> VersionsOf(const SimChanges& changes) {
  std::map<uint64_t, int> versions;
  if (changes.known.empty()) return versions;
  for (const v1::ConfigRevision& revision : changes.known[0].revisions()) {
    if (!absl::SimpleAtoi(revision.config(),
                          &versions[revision.first_step()])) {
      std::abort();
    }
  }
  return versions;
}

std::vector<std::string> CheckChanges(const SyntheticJob& job,
                                      const SimChanges& changes) {
  std::vector<std::string> violations;
  const auto text = [](const v1::GetRevisionsResponse& known) {
    std::string text;
    for (const v1::ConfigRevision& revision : known.revisions()) {
      absl::StrAppend(&text, " ", revision.config(), " from step ",
                      revision.first_step());
    }
    return text;
  };
  for (const v1::GetRevisionsResponse& known : changes.known) {
    if (known.has_prepared() || !known.knows()) {
      violations.push_back(absl::StrCat(
          known.server(), " ends ", known.knows() ? "waiting for" : "without",
          " a decision"));
    }
    if (text(known) != text(changes.known[0])) {
      violations.push_back(absl::StrCat(known.server(), " has", text(known),
                                        ", and ", changes.known[0].server(),
                                        text(changes.known[0])));
    }
  }
  const std::map<uint64_t, int> versions = VersionsOf(changes);
  for (const SimOffer& offer : changes.offers) {
    const auto found = versions.find(offer.first_step);
    const bool holds =
        found != versions.end() && found->second == offer.version;
    // The call may have been lost, and not the change.
    const bool unknown =
        absl::IsUnavailable(offer.end) || absl::IsDeadlineExceeded(offer.end);
    if (!unknown && holds != offer.end.ok()) {
      violations.push_back(
          absl::StrCat("the offer of version ", offer.version, " from step ",
                       offer.first_step, " ended with ", offer.end.ToString(),
                       ", and ", holds ? "it holds" : "it does not hold"));
    }
  }
  for (const auto& [step, fingerprints] : changes.given) {
    const auto after = versions.upper_bound(step);
    const int version =
        after == versions.begin() ? 0 : std::prev(after)->second;
    const std::string wanted =
        MakeSimScheduler(job, version)->fingerprint().hash();
    if (fingerprints != std::set<std::string>{wanted}) {
      violations.push_back(absl::StrCat(
          "servers gave schedules of step ", step, " with fingerprints ",
          absl::StrJoin(fingerprints, ", "), ", wanted ", wanted));
    }
  }
  return violations;
}

}  // namespace ballast
