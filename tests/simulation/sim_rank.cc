#include "tests/simulation/sim_rank.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/schedule/module.h"
#include "tests/simulation/sim_data.h"

namespace ballast {
namespace {

// Of another communicator, which it holds together with whoever else does.
class SharedCommunicator final : public Communicator {
 public:
  explicit SharedCommunicator(std::shared_ptr<Communicator> peers)
      : peers_(std::move(peers)) {}

  uint32_t rank() const override { return peers_->rank(); }
  uint32_t size() const override { return peers_->size(); }
  bool on_device() const override { return peers_->on_device(); }
  absl::Status AllToAllV(absl::Span<const SendSlice> sends,
                         absl::Span<const ReceiveSlice> receives,
                         StreamHandle stream) override {
    return peers_->AllToAllV(sends, receives, stream);
  }
  absl::Status Broadcast(uint32_t root,
                         absl::Span<const absl::Span<uint8_t>> slices,
                         StreamHandle stream) override {
    return peers_->Broadcast(root, slices, stream);
  }
  absl::Status Check() override { return peers_->Check(); }
  void Abort(const absl::Status& reason) override { peers_->Abort(reason); }

 private:
  const std::shared_ptr<Communicator> peers_;
};

class Checker {
 public:
  Checker(const HistoryPromises& promises, const std::vector<RunHistory>& runs)
      : promises_(promises), runs_(runs) {}

  std::vector<std::string> Check() {
    uint64_t reached = 0;
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (runs_[i].start_step > reached) {
        Violation(absl::StrCat("start ", i, " begins at step ",
                               runs_[i].start_step, ", but only steps before ",
                               reached, " were trained"));
      }
      uint64_t least = promises_.steps;
      for (const RankHistory& rank : runs_[i].ranks) {
        where_ = absl::StrCat("start ", i, ", ",
                              std::string(ModuleName(rank.role.module())),
                              " rank ", rank.role.dp_rank());
        CheckBatches(runs_[i], rank);
        CheckEnd(runs_[i], rank, i + 1 == runs_.size());
        least = std::min(least, NextStep(runs_[i], rank));
      }
      reached = std::max(reached, least);
    }
    return violations_;
  }

 private:
  void Violation(std::string text) { violations_.push_back(std::move(text)); }

  uint64_t NextStep(const RunHistory& run, const RankHistory& rank) const {
    return run.start_step + rank.batches.size() / promises_.job.micro_batches;
  }

  int VersionAt(uint64_t step) const {
    const auto after = promises_.versions.upper_bound(step);
    return after == promises_.versions.begin() ? 0 : std::prev(after)->second;
  }

  void CheckBatches(const RunHistory& run, const RankHistory& rank) {
    uint64_t step = run.start_step;
    uint32_t micro_batch = 0;
    for (const TrainedBatch& batch : rank.batches) {
      const std::string name = absl::StrCat(where_, ", step ", batch.step,
                                            " micro-batch ", batch.micro_batch);
      if (batch.step != step || batch.micro_batch != micro_batch) {
        Violation(absl::StrCat(name, ": wanted step ", step, " micro-batch ",
                               micro_batch));
        return;
      }
      const ExpectedBatch& expected = ExpectedBatchOf(
          promises_.job, rank.role, step, micro_batch, VersionAt(step));
      if (batch.positions != expected.positions) {
        Violation(absl::StrCat(name, ": samples ",
                               absl::StrJoin(batch.positions, " "), ", wanted ",
                               absl::StrJoin(expected.positions, " ")));
      } else if (batch.placeholders != expected.placeholders) {
        Violation(absl::StrCat(
            name, ": placeholders ", absl::StrJoin(batch.placeholders, " "),
            ", wanted ", absl::StrJoin(expected.placeholders, " ")));
      } else if (batch.digest != expected.digest) {
        Violation(absl::StrCat(name, ": digest ", batch.digest, ", wanted ",
                               expected.digest));
      }
      if (++micro_batch == promises_.job.micro_batches) {
        micro_batch = 0;
        ++step;
      }
    }
  }

  void CheckEnd(const RunHistory& run, const RankHistory& rank, bool last) {
    if (absl::IsOutOfRange(rank.end)) {
      if (NextStep(run, rank) != promises_.steps) {
        Violation(absl::StrCat(where_, ": ended before step ",
                               NextStep(run, rank), ", wanted ",
                               promises_.steps));
      }
      return;
    }
    if (rank.killed) return;
    const bool refused =
        promises_.other_data &&
        std::any_of(run.ranks.begin(), run.ranks.end(), WasRefused);
    if (run.must_succeed && !refused) {
      Violation(absl::StrCat(where_,
                             ": no fault could stop it, but it ended "
                             "with ",
                             rank.end.ToString()));
    } else if (!IsPromised(rank.end)) {
      Violation(absl::StrCat(where_, ": ended with ", rank.end.ToString()));
    } else if (last) {
      Violation(absl::StrCat(
          where_, ": did not get well again: ", rank.end.ToString()));
    }
  }

  bool IsPromised(const absl::Status& end) const {
    return absl::IsUnavailable(end) || absl::IsDeadlineExceeded(end) ||
           (promises_.other_data && IsOtherFingerprint(end));
  }

  // DATA_LOSS is a schedule's.
  static bool IsOtherFingerprint(const absl::Status& end) {
    return absl::IsFailedPrecondition(end) ||
           (absl::IsDataLoss(end) &&
            absl::StrContains(end.message(), "has fingerprint"));
  }

  const HistoryPromises& promises_;
  const std::vector<RunHistory>& runs_;
  std::string where_;
  std::vector<std::string> violations_;
};

}  // namespace

std::vector<std::string> CheckHistory(const HistoryPromises& promises,
                                      const std::vector<RunHistory>& runs) {
  return Checker(promises, runs).Check();
}

SimRank::SimRank(const Options& options, const SimPlan& plan,
                 const SimDefects& defects, SimNetwork* network,
                 std::unique_ptr<Communicator> communicator,
                 std::function<void(const std::string&)> trace)
    : options_(options),
      plan_(plan),
      defects_(defects),
      network_(*network),
      node_(network->AddNode(options.machine)),
      communicator_(std::move(communicator)),
      trace_(std::move(trace)) {
  history_.role = options.role;
  thread_ = SimThreads::Current()->Start(node_, [this] { Run(); });
}

void SimRank::Join() {
  SimThreads::Current()->Join(thread_);
  network_.StopNode(node_);
}

void SimRank::Kill() {
  if (ended_) return;
  history_.killed = true;
  network_.Crash(node_);
  MutexLock lock(&mutex_);
  // What peers see of a process that is gone, before Cancel says otherwise.
  if (peers_ != nullptr) {
    peers_->Abort(absl::UnavailableError("connection reset by peer"));
  }
  if (shim_ != nullptr) shim_->Cancel();
}

void SimRank::Run() {
  std::vector<std::unique_ptr<LoaderClient>> clients;
  for (const std::string& address : options_.servers) {
    SimClientOptions client;
    client.address = address;
    client.node = node_;
    client.streams = plan_.streams;
    client.accept_shared_memory = plan_.shared_memory;
    client.skip_generation_check = defects_.skip_generation_check;
    clients.push_back(MakeSimClient(client, &network_, held_));
    if (defects_.no_second_server) break;
  }
  TrainerShim::Options options;
  options.source.role = options_.role;
  options.source.start_step = options_.start_step;
  options.source.steps = plan_.steps - options_.start_step;
  options.source.fingerprint = options_.fingerprint;
  options.source.max_bytes = plan_.client_memory;
  options.source.spread = plan_.spread;
  options.source.resolve = options_.resolve;
  options.source.failover = plan_.failover;
  if (defects_.never_give_up_a_server) {
    options.source.failover.silent_after = absl::InfiniteDuration();
    options.source.failover.slow_after = absl::InfiniteDuration();
  }
  // Kill may come while Create, which failed, destroys what it was given.
  std::shared_ptr<Communicator> peers = std::move(communicator_);
  SetShim(peers.get(), nullptr);
  options.communicator = std::make_unique<SharedCommunicator>(peers);
  {
    auto shim = TrainerShim::Create(std::move(options), std::move(clients));
    if (shim.ok()) {
      SetShim(peers.get(), shim->get());
      history_.started = true;
      history_.end =
          history_.killed ? absl::CancelledError("killed") : Train(shim->get());
    } else {
      history_.end = shim.status();
    }
    SetShim(nullptr, nullptr);
  }
  peers.reset();  // leaves the group
  ended_ = true;
  trace_(absl::StrCat(std::string(ModuleName(options_.role.module())), " rank ",
                      options_.role.dp_rank(),
                      " ends: ", history_.end.ToString()));
}

absl::Status SimRank::Train(TrainerShim* shim) {
  SimThreads& threads = *SimThreads::Current();
  BatchRef<PackedBatch> before;  // as a pipeline holds it
  for (int calls = 1;; ++calls) {
    const absl::Time start = threads.Now();
    absl::StatusOr<BatchRef<PackedBatch>> batch = shim->Next();
    longest_next_ = std::max(longest_next_, threads.Now() - start);
    if (!batch.ok()) return batch.status();
    // A killed process computes nothing more.
    if (history_.killed) return absl::CancelledError("killed");
    const bool planted = calls == 2 && options_.role.dp_rank() == 0;
    if (!(planted && defects_.lose_a_batch)) Record(**batch);
    if (planted && defects_.train_twice) Record(**batch);
    threads.SleepUntil(
        threads.Now() +
        threads.random().Between(absl::ZeroDuration(), plan_.most_compute));
    before = threads.random().Chance(0.5) ? *std::move(batch)
                                          : BatchRef<PackedBatch>();
  }
}

void SimRank::Record(const PackedBatch& batch) {
  TrainedBatch trained;
  trained.step = batch.step;
  trained.micro_batch = batch.micro_batch;
  for (const PackedSample& sample : batch.samples) {
    trained.positions.push_back(sample.position);
    trained.placeholders.push_back(sample.placeholder);
  }
  trained.digest = ComputeDigest(batch);
  trace_(absl::StrCat(std::string(ModuleName(options_.role.module())), " rank ",
                      options_.role.dp_rank(), " trains step ", batch.step,
                      " micro-batch ", batch.micro_batch, " ", trained.digest));
  history_.batches.push_back(std::move(trained));
}

}  // namespace ballast
