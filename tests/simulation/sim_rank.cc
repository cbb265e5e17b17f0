#include "tests/simulation/sim_rank.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/schedule/module.h"

namespace ballast {

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
  options.source.failover = plan_.failover;
  if (defects_.never_give_up_a_server) {
    options.source.failover.silent_after = absl::InfiniteDuration();
    options.source.failover.slow_after = absl::InfiniteDuration();
  }
  Communicator* const peers = communicator_.get();
  SetShim(peers, nullptr);
  options.communicator = std::move(communicator_);
  {
    auto shim = TrainerShim::Create(std::move(options), std::move(clients));
    if (shim.ok()) {
      SetShim(peers, shim->get());
      history_.started = true;
      history_.end =
          history_.killed ? absl::CancelledError("killed") : Train(shim->get());
    } else {
      history_.end = shim.status();
    }
    SetShim(nullptr, nullptr);
  }
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
