#include "tests/simulation/simulation.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/mutex.h"
#include "tests/fakes/synthetic_schedule.h"
#include "tests/simulation/sim_call.h"
#include "tests/simulation/sim_revisions.h"
#include "tests/simulation/sim_server.h"
#include "tests/simulation/sim_threads.h"
#include "trainer_shim/host/in_process_communicator.h"

namespace ballast {
namespace {

// While it lives, standard error goes nowhere.
class Silence {
 public:
  explicit Silence(bool silent) {
    if (!silent) return;
    before_ = dup(STDERR_FILENO);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDERR_FILENO);
    close(nowhere);
  }
  ~Silence() {
    if (before_ < 0) return;
    dup2(before_, STDERR_FILENO);
    close(before_);
  }

 private:
  int before_ = -1;
};

// Starts of a job beyond which it will not get well.
constexpr int kMaxStarts = 100;

absl::Time VirtualNow() { return SimThreads::Current()->Now(); }

class Simulation {
 public:
  Simulation(const SimPlan& plan, const SimulationOptions& options)
      : plan_(plan), options_(options), network_(plan.network) {}

  SimOutcome Run() {
    SimThreads::Options threads;
    threads.seed = plan_.seed;
    threads.switch_chance = plan_.switch_chance;
    const absl::Status status = SimThreads::Run(threads, [this] { Body(); });
    if (!status.ok()) Violation(status.ToString());
    return std::move(outcome_);
  }

 private:
  struct Slot {  // of a server
    SimDisk disk;
    std::unique_ptr<SimServer> server;
    bool busy = false;  // a fault of its process is going on
    Mutex watching;     // held while `server` is looked at or ended
  };

  void Body();
  void RunJob();
  // One start of the job; returns the step where the next must begin.
  uint64_t StartJob(uint64_t start_step);
  void StopAllOnFailure();
  void Watch();
  void Inject(const SimFault& fault);
  void InjectServer(const SimFault& fault);
  void InjectRank(const SimFault& fault);
  void Offer(const SimFault& fault);
  void AskAhead(const SimFault& fault);
  // The earliest step of a change, as servers have said.
  uint64_t EarliestStep();
  // Waits until all servers know the same; they ask each other now and then.
  void AwaitChanges();
  std::string RevisionsPath(uint32_t server) const {
    return absl::StrCat(options_.arena, "/revisions.", server);
  }
  void StartServer(uint32_t number, int version);
  static void EndServer(Slot* slot) {
    MutexLock lock(&slot->watching);
    slot->server.reset();
  }
  SimRank* RankOf(const SimFault& fault) const {
    return fault.rank < ranks_.size() ? ranks_[fault.rank].get() : nullptr;
  }
  uint32_t FirstServers() const { return plan_.servers - plan_.late_servers; }
  // The addresses of a name: its own, and those of late servers that are there.
  std::vector<std::string> Resolve(const std::string& host) const {
    std::vector<std::string> hosts = {host};
    for (uint32_t i = FirstServers(); i < plan_.servers; ++i) {
      if (slots_[i]->server != nullptr) {
        hosts.push_back(absl::StrCat("server-", i));
      }
    }
    return hosts;
  }
  int MachineOfRank(uint32_t rank) const { return plan_.servers + rank; }
  std::string GetAddress(uint32_t server) const {
    return absl::StrCat("server-", server, ":7070");
  }
  void Sleep(absl::Duration duration) {
    threads_->SleepUntil(threads_->Now() + duration);
  }
  void Trace(const std::string& text);
  void Violation(const std::string& text) {
    Trace(absl::StrCat("VIOLATION: ", text));
    outcome_.violations.push_back(text);
  }
  void CheckRank(const SimRank& rank);

  const SimPlan& plan_;
  const SimulationOptions& options_;
  SimThreads* threads_ = nullptr;
  SimNetwork network_;
  absl::Time start_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::unique_ptr<SimRank>> ranks_;  // of the current start
  std::vector<RunHistory> runs_;
  uint64_t faults_going_on_ = 0;
  bool other_data_ = false;
  SimChanges changes_;
  uint64_t earliest_ = 0;  // EarliestStep
  bool over_ = false;
  SimOutcome outcome_;
};

void Simulation::Trace(const std::string& text) {
  const std::string line = absl::StrCat(
      absl::FormatDuration(VirtualNow() - start_), " ", text, "\n");
  outcome_.trace =
      XXH3_64bits_withSeed(line.data(), line.size(), outcome_.trace);
  if (options_.verbose) std::fputs(line.c_str(), stderr);
}

void Simulation::Body() {
  threads_ = SimThreads::Current();
  start_ = threads_->Now();
  for (uint32_t i = 0; i < plan_.servers; ++i) {
    slots_.push_back(std::make_unique<Slot>());
    network_.Listen(GetAddress(i), i, nullptr);
    if (plan_.revisions) std::remove(RevisionsPath(i).c_str());
  }
  for (uint32_t i = 0; i < FirstServers(); ++i) StartServer(i, 0);
  faults_going_on_ = plan_.faults.size();
  std::vector<SimThread*> helpers;
  for (const SimFault& fault : plan_.faults) {
    helpers.push_back(threads_->Start(0, [this, &fault] {
      Inject(fault);
      --faults_going_on_;
    }));
  }
  helpers.push_back(threads_->Start(0, [this] { Watch(); }));
  RunJob();
  over_ = true;
  for (SimThread* helper : helpers) threads_->Join(helper);
  if (plan_.revisions) {
    AwaitChanges();
    for (const std::string& violation : CheckChanges(plan_.job, changes_)) {
      Violation(violation);
    }
    outcome_.offers = changes_.offers.size();
    outcome_.changes = VersionsOf(changes_).size();
  }
  slots_.clear();
  HistoryPromises promises;
  promises.versions = VersionsOf(changes_);
  promises.job = plan_.job;
  promises.steps = plan_.steps;
  promises.other_data = other_data_;
  for (const std::string& violation : CheckHistory(promises, runs_)) {
    Violation(violation);
  }
  outcome_.starts = runs_.size();
  outcome_.switches = threads_->switches();
  Trace(absl::StrCat("over after ", outcome_.switches, " switches"));
}

void Simulation::StartServer(uint32_t number, int version) {
  SimServer::Options server;
  server.address = GetAddress(number);
  server.machine = number;
  server.job = plan_.job;
  server.data.version = version;
  server.data.errors_become_placeholders =
      options_.defects.errors_become_placeholders;
  server.fingerprint_version =
      options_.defects.other_data_unnoticed ? 0 : version;
  server.memory = plan_.server_memory;
  server.threads = plan_.server_threads;
  server.prefetch_steps = plan_.prefetch_steps;
  server.encoders_first = plan_.encoders_first;
  if (plan_.shared_memory) server.arena = options_.arena;
  if (plan_.revisions) {
    server.revisions = RevisionsPath(number);
    server.decider = GetAddress(0);
    for (uint32_t i = 0; i < plan_.servers; ++i) {
      if (i != number) server.peers.push_back(GetAddress(i));
    }
    server.on_schedule = [this](const v1::StepSchedule& schedule) {
      changes_.given[schedule.step()].insert(schedule.fingerprint());
    };
    server.no_gate = options_.defects.serve_held_steps;
    server.forgets_revisions = options_.defects.forget_revisions;
  }
  if (plan_.apart && number > 0 && !options_.defects.compare_no_servers) {
    server.meeting = GetAddress(0);
  }
  Slot& slot = *slots_[number];
  while (true) {
    slot.server = std::make_unique<SimServer>(server, &network_, &slot.disk);
    if (slot.server->runs()) return;
    // A write failed; a supervisor starts it again.
    EndServer(&slot);
    Sleep(absl::Seconds(1));
  }
}

uint64_t Simulation::EarliestStep() {
  for (const auto& slot : slots_) {
    MutexLock lock(&slot->watching);
    if (slot->server != nullptr && slot->server->runs()) {
      earliest_ = std::max(
          earliest_, slot->server->GetRevisions(UINT64_MAX).earliest_step());
    }
  }
  return earliest_;
}

// A rank that is refused a step again and again, as the server cannot write
// that it is reached. Between its calls the disk is well.
void Simulation::AskAhead(const SimFault& fault) {
  const uint64_t step = EarliestStep() + fault.from_earliest;
  SimDisk& disk = slots_[fault.server]->disk;
  constexpr int kRankMachine = 1001;
  const int node = network_.AddNode(kRankMachine);
  const absl::Time end = threads_->Now() + absl::Seconds(20);
  while (threads_->Now() < end && !over_) {
    ++disk.full;
    const auto answer =
        std::make_shared<SimCall<bool>>(&network_, node,
                                        GetAddress(fault.server))
            ->Run(
                [step](SimServer* server, auto answer) {
                  server->GetSchedule(
                      step, LoaderClient::Use::kTrains,
                      [answer](auto schedule) { answer(schedule.ok()); });
                },
                absl::Seconds(5));
    --disk.full;
    // Ranks have come to the step, or a write has got through.
    if (answer.value_or(false)) break;
    Sleep(absl::Milliseconds(500));
  }
  network_.Crash(node);
  network_.StopNode(node);
}

void Simulation::Offer(const SimFault& fault) {
  SimOffer offer;
  offer.version = 100 + changes_.offers.size();
  offer.first_step = std::max<int64_t>(
      1, static_cast<int64_t>(EarliestStep()) + fault.from_earliest);
  const size_t number = changes_.offers.size();
  changes_.offers.push_back(offer);
  v1::ChangeRequest request;
  request.set_config(absl::StrCat(offer.version));
  request.set_first_step(offer.first_step);
  constexpr int kClientMachine = 1000;
  const int node = network_.AddNode(kClientMachine);
  const auto answer =
      std::make_shared<SimCall<v1::ChangeResponse>>(&network_, node,
                                                    GetAddress(0))
          ->Run([request](SimServer* server,
                          auto answer) { server->Change(request, answer); },
                fault.lasts);
  network_.Crash(node);
  network_.StopNode(node);
  changes_.offers[number].end = answer.status();
  Trace(absl::StrCat("the offer of version ", offer.version, " from step ",
                     offer.first_step, " ends with ",
                     answer.status().ToString()));
}

void Simulation::AwaitChanges() {
  // Twice the longest time between two looks at the others, and some more.
  for (int seconds = 0; seconds < 90; ++seconds) {
    changes_.known.clear();
    for (const auto& slot : slots_) {
      changes_.known.push_back(slot->server->GetRevisions(0));
    }
    const bool settled = std::all_of(
        changes_.known.begin(), changes_.known.end(), [&](const auto& known) {
          return known.knows() && !known.has_prepared() &&
                 known.revisions_size() == changes_.known[0].revisions_size();
        });
    if (settled) return;
    Sleep(absl::Seconds(1));
  }
}

void Simulation::RunJob() {
  uint64_t step = 0;
  while (true) {
    const uint64_t reached = StartJob(step);
    const RunHistory& run = runs_.back();
    const bool done = std::all_of(
        run.ranks.begin(), run.ranks.end(),
        [](const RankHistory& rank) { return absl::IsOutOfRange(rank.end); });
    if (done) return;
    const bool refused =
        other_data_ &&
        std::any_of(run.ranks.begin(), run.ranks.end(), WasRefused);
    if ((run.must_succeed && !refused) || runs_.size() == kMaxStarts) return;
    // The last checkpoint may be some steps old. Only a start that has a step
    // to do ends.
    step += threads_->random().Below(reached - step + 1);
    step = std::min(step, plan_.steps - 1);
    Sleep(absl::Seconds(1 + threads_->random().Below(20)));
  }
}

uint64_t Simulation::StartJob(uint64_t start_step) {
  RunHistory run;
  run.start_step = start_step;
  run.must_succeed = plan_.one_server_is_well || faults_going_on_ == 0;
  Trace(absl::StrCat("start ", runs_.size(), " at step ", start_step,
                     run.must_succeed ? ", which must succeed" : ""));
  const auto scheduler = MakeSimScheduler(plan_.job, 0);
  auto vision = InProcessGroup(plan_.job.vision_dp);
  auto language = InProcessGroup(plan_.job.language_dp);
  const auto add = [&](v1::Module module, uint32_t rank,
                       std::unique_ptr<Communicator> communicator) {
    SimRank::Options options;
    options.role = RoleOf(module, rank);
    options.machine = MachineOfRank(ranks_.size());
    options.start_step = start_step;
    if (plan_.apart) {
      options.servers = {GetAddress(rank % plan_.servers)};
    } else {
      for (uint32_t i = 0; i < FirstServers(); ++i) {
        options.servers.push_back(
            GetAddress((ranks_.size() + i) % FirstServers()));
      }
      options.resolve = [this](const std::string& host) {
        return Resolve(host);
      };
      options.fingerprint = scheduler->fingerprint();
    }
    ranks_.push_back(std::make_unique<SimRank>(
        options, plan_, options_.defects, &network_, std::move(communicator),
        [this](const std::string& text) { Trace(text); }));
  };
  for (uint32_t i = 0; i < plan_.job.vision_dp; ++i) {
    add(v1::MODULE_VISION, i, std::move(vision[i]));
  }
  for (uint32_t i = 0; i < plan_.job.language_dp; ++i) {
    add(v1::MODULE_LANGUAGE, i, std::move(language[i]));
  }
  StopAllOnFailure();
  uint64_t reached = plan_.steps;
  for (const auto& rank : ranks_) {
    rank->Join();
    CheckRank(*rank);
    run.ranks.push_back(rank->history());
    outcome_.batches += rank->history().batches.size();
    reached = std::min(reached, start_step + rank->history().batches.size() /
                                                 plan_.job.micro_batches);
  }
  ranks_.clear();
  runs_.push_back(std::move(run));
  return reached;
}

// As a launcher does: once a rank has failed, kills the others.
void Simulation::StopAllOnFailure() {
  while (true) {
    bool all_ended = true;
    bool failed = false;
    for (const auto& rank : ranks_) {
      all_ended = all_ended && rank->ended();
      failed =
          failed || (rank->ended() && !absl::IsOutOfRange(rank->history().end));
    }
    if (all_ended) return;
    Sleep(absl::Milliseconds(500));
    if (!failed) continue;
    for (const auto& rank : ranks_) rank->Kill();
  }
}

void Simulation::CheckRank(const SimRank& rank) {
  outcome_.longest_next = std::max(outcome_.longest_next, rank.longest_next());
  if (rank.longest_next() > NextBound(plan_)) {
    Violation(absl::StrCat(
        "a Next took ", absl::FormatDuration(rank.longest_next()),
        ", wanted at most ", absl::FormatDuration(NextBound(plan_))));
  }
  // BatchStream::Next: one block more while some date from before a failover.
  // CreateSpreadStream: one of each server, larger than those before it.
  const SimHeld& held = rank.held();
  const uint64_t more = std::max<uint64_t>(plan_.spread, 1);
  const uint64_t bound = std::max(plan_.client_memory, held.largest_block) +
                         more * held.largest_block;
  if (held.most > bound) {
    Violation(absl::StrCat("a rank held ", held.most,
                           " bytes of blocks, "
                           "wanted at most ",
                           bound));
  }
  if (held.bytes > 0) {
    Violation(
        absl::StrCat("a rank that has ended holds ", held.bytes, " bytes"));
  }
}

// Checks the servers' memory all the time.
void Simulation::Watch() {
  while (!over_) {
    for (const auto& slot : slots_) {
      if (slot->busy) continue;
      MutexLock lock(&slot->watching);
      if (slot->server == nullptr) continue;
      const uint64_t beyond = slot->server->MemoryBeyondBound();
      if (beyond == 0) continue;
      Violation(
          absl::StrCat("a server holds ", beyond, " bytes beyond its bound"));
      return;
    }
    Sleep(absl::Seconds(1));
  }
}

void Simulation::Inject(const SimFault& fault) {
  Sleep(fault.at);
  if (over_) return;
  switch (fault.kind) {
    case SimFault::Kind::kKillServer:
    case SimFault::Kind::kOtherData:
    case SimFault::Kind::kDrainServer:
    case SimFault::Kind::kFreezeServer:
    case SimFault::Kind::kKillAtWrite:
    case SimFault::Kind::kLoseRevisions:
    case SimFault::Kind::kJoin: {
      bool& busy = slots_[fault.server]->busy;
      if (std::exchange(busy, true)) return;
      Trace(Describe(fault));
      InjectServer(fault);
      busy = false;
      break;
    }
    case SimFault::Kind::kFreezeRank:
    case SimFault::Kind::kKillRank:
      InjectRank(fault);
      return;
    case SimFault::Kind::kDiskErrors:
      Trace(Describe(fault));
      slots_[fault.server]->disk.error_chance = 0.5;
      Sleep(fault.lasts);
      slots_[fault.server]->disk.error_chance = 0;
      break;
    case SimFault::Kind::kDiskStall:
      Trace(Describe(fault));
      slots_[fault.server]->disk.stalled_until = threads_->Now() + fault.lasts;
      Sleep(fault.lasts);
      break;
    case SimFault::Kind::kCut: {
      Trace(Describe(fault));
      int from = MachineOfRank(fault.rank);
      int to = fault.server;
      if (!fault.to_server) std::swap(from, to);
      network_.Cut(from, to);
      Sleep(fault.lasts);
      network_.Heal(from, to);
      break;
    }
    case SimFault::Kind::kChange:
      Trace(Describe(fault));
      Offer(fault);
      break;
    case SimFault::Kind::kRefusedStep:
      Trace(Describe(fault));
      AskAhead(fault);
      break;
    case SimFault::Kind::kPartition:
      Trace(Describe(fault));
      network_.Cut(fault.server, fault.other);
      network_.Cut(fault.other, fault.server);
      Sleep(fault.lasts);
      network_.Heal(fault.server, fault.other);
      network_.Heal(fault.other, fault.server);
      break;
    case SimFault::Kind::kReset:
      Trace(Describe(fault));
      network_.Reset(MachineOfRank(fault.rank), fault.server);
      break;
  }
  ++outcome_.faults[static_cast<int>(fault.kind)];
  Trace(absl::StrCat("over: ", Describe(fault)));
}

void Simulation::InjectServer(const SimFault& fault) {
  Slot& slot = *slots_[fault.server];
  switch (fault.kind) {
    case SimFault::Kind::kFreezeServer:
      network_.Freeze(slot.server->node());
      Sleep(fault.lasts);
      network_.Thaw(slot.server->node());
      return;
    case SimFault::Kind::kJoin:
      StartServer(fault.server, 0);
      Sleep(fault.lasts);
      EndServer(&slot);
      return;
    case SimFault::Kind::kDrainServer:
      slot.server->Drain();
      break;
    case SimFault::Kind::kOtherData:
      other_data_ = true;
      EndServer(&slot);
      StartServer(fault.server, 1);
      Sleep(fault.lasts);
      break;
    case SimFault::Kind::kKillAtWrite: {
      slot.server->DieAtWrite(fault.writes, fault.before);
      const absl::Time end = threads_->Now() + absl::Minutes(2);
      while (slot.server->runs() && threads_->Now() < end && !over_) {
        Sleep(absl::Milliseconds(100));
      }
      Trace(absl::StrCat("server ", fault.server,
                         slot.server->runs() ? " is killed" : " has died"));
      break;
    }
    default:
      break;
  }
  EndServer(&slot);
  if (fault.kind == SimFault::Kind::kLoseRevisions) {
    std::remove(RevisionsPath(fault.server).c_str());
  }
  Sleep(fault.lasts);
  StartServer(fault.server, 0);
}

void Simulation::InjectRank(const SimFault& fault) {
  SimRank* rank = RankOf(fault);
  if (rank == nullptr || rank->ended()) return;
  Trace(Describe(fault));
  ++outcome_.faults[static_cast<int>(fault.kind)];
  if (fault.kind == SimFault::Kind::kKillRank) {
    rank->Kill();
    return;
  }
  const int node = rank->node();
  network_.Freeze(node);
  Sleep(fault.lasts);
  network_.Thaw(node);
  Trace(absl::StrCat("over: ", Describe(fault)));
}

}  // namespace

SimOutcome Simulate(const SimPlan& plan, const SimulationOptions& options) {
  // The log is written either way: its locks are part of the interleaving.
  SetLogLevel(LogLevel::kDebug);
  SetLogClock(&VirtualNow);
  const Silence silence(!options.verbose);
  if (options.verbose) std::fprintf(stderr, "%s\n", Describe(plan).c_str());
  SimOutcome outcome = Simulation(plan, options).Run();
  SetLogClock(nullptr);
  return outcome;
}

}  // namespace ballast
