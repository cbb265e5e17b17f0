#include "tests/simulation/sim_server.h"

#include <algorithm>
#include <utility>

#include <grpcpp/test/default_reactor_test_peer.h>

#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "server/delivery/block_ledger.h"
#include "tests/fakes/job_config.h"
#include "tests/simulation/sim_call.h"

namespace ballast {
namespace {

// More than the footprint of any block of a simulation.
constexpr uint64_t kLargestBlock = 64 << 10;

v1::Config GetConfig(const SimServer::Options& options) {
  const SyntheticJob& job = options.job;
  v1::Config config = JobConfig(job.vision_dp, job.language_dp,
                                job.micro_batches * MicroBatchOf(job),
                                MicroBatchOf(job), job.delivery);
  v1::Serve& serve = *config.mutable_serve();
  serve.set_threads(options.threads);
  serve.set_memory(options.memory);
  serve.set_prefetch_steps(options.prefetch_steps);
  serve.set_arena(options.arena.empty() ? "off" : options.arena);
  if (!options.encoders_first) {
    serve.set_on_bad_sample(v1::Serve::ON_BAD_SAMPLE_ERROR);
  }
  return config;
}

class SimPeerCaller final : public PeerCaller {
 public:
  SimPeerCaller(SimNetwork* network, int node)
      : network_(*network), node_(node) {}

  absl::StatusOr<v1::AttachResponse> Attach(
      const std::string& address) override {
    if (cancelled_) return absl::CancelledError("the server drains");
    const auto call = std::make_shared<SimCall<v1::AttachResponse>>(
        &network_, node_, address);
    call_ = call.get();
    auto answer = call->Run(
        [](SimServer* server, auto answer) {
          answer(server->Attach(v1::AttachRequest()));
        },
        absl::Seconds(2));
    call_ = nullptr;
    return answer;
  }
  void Cancel() override {
    cancelled_ = true;
    if (call_ != nullptr) call_->Lose(node_, "the server drains");
  }

 private:
  SimNetwork& network_;
  const int node_;
  // Only simulated threads touch these, and none gives way in between.
  bool cancelled_ = false;
  SimConnection* call_ = nullptr;
};

}  // namespace

SimServer::SimServer(const Options& options, SimNetwork* network,
                     const SimDisk* disk)
    : options_(options),
      network_(*network),
      node_(network->AddNode(options.machine)),
      scheduler_(MakeSimScheduler(options.job, options.fingerprint_version)) {
  // Its threads belong to its node.
  SimThreads& threads = *SimThreads::Current();
  absl::Status started;
  threads.Join(threads.Start(node_, [&] { started = Start(disk); }));
  if (!started.ok()) {
    dead_ = true;
    return;
  }
  PullLimits::Settings limits;
  limits.last_write = absl::InfiniteDuration();  // gRPC's timers take a thread
  service_ = std::make_unique<LoaderServiceImpl>(
      options_.address,
      keeper_ == nullptr ? scheduler_.get() : keeper_->job()->scheduler(),
      loader_.get(), &calls_, limits);
  if (!options_.meeting.empty()) {
    threads.Join(threads.Start(node_, [this] { CompareWithMeeting(); }));
  }
  if (!dead_) network_.Listen(options_.address, options_.machine, this);
}

// As LoaderServer::ComparePeers.
void SimServer::CompareWithMeeting() {
  service_->RefuseToAttach(NotCompared(options_.address, options_.meeting));
  auto check = PeerCheck::Start(
      {scheduler_->fingerprint(), options_.address, options_.meeting},
      {options_.meeting}, std::make_unique<SimPeerCaller>(&network_, node_),
      Clock::Real(), [this](const absl::Status& verdict) {
        service_->Refuse(verdict);
        if (verdict.ok()) service_->RefuseToAttach(absl::OkStatus());
      });
  if (!check.ok()) std::abort();
  peer_check_ = *std::move(check);
}

absl::Status SimServer::Start(const SimDisk* disk) {
  const uint32_t ranks = options_.job.vision_dp + options_.job.language_dp;
  const Scheduler* scheduler = scheduler_.get();
  std::unique_ptr<SampleBuilder> builder;
  StepGate* gate = nullptr;
  if (options_.revisions.empty()) {
    builder = MakeSimBuilder(options_.data, disk);
  } else {
    auto job = std::make_unique<SimRevisedJob>(options_.job, scheduler_.get(),
                                               options_.data, disk);
    builder = job->MakeBuilder();
    RevisionKeeper::Settings settings;
    settings.name = options_.address;
    settings.peers = options_.peers;
    settings.decider = options_.decider;
    BALLAST_ASSIGN_OR_RETURN(
        keeper_, RevisionKeeper::Create(
                     settings, MakeSimRevisionPeers(&network_, node_),
                     MakeSimRevisionStore(options_.revisions, disk, this,
                                          options_.forgets_revisions),
                     std::move(job)));
    BALLAST_RETURN_IF_ERROR(keeper_->Open());
    scheduler = keeper_->job()->scheduler();
    if (!options_.no_gate) gate = keeper_->gate();
  }
  BALLAST_ASSIGN_OR_RETURN(loader_,
                           Loader::Create(GetConfig(options_), ranks, scheduler,
                                          std::move(builder), Clock::Real(),
                                          /*active=*/nullptr, gate));
  return keeper_ == nullptr ? absl::OkStatus() : keeper_->Start(Clock::Real());
}

SimServer::~SimServer() {
  Die();
  peer_check_.reset();
  if (keeper_ != nullptr) keeper_->Stop();
  if (loader_ != nullptr) loader_->Drain();
  network_.AwaitNoCalls(node_);
  service_.reset();
  loader_.reset();
  keeper_.reset();
  network_.StopNode(node_);
}

void SimServer::Die() {
  dead_ = true;
  network_.Listen(options_.address, options_.machine, nullptr);
  network_.Crash(node_);
}

bool SimServer::SurvivesWrite(bool before) {
  if (dead_) return false;
  if (dies_at_write_ == 0 || before != dies_before_ || --dies_at_write_ > 0) {
    return true;
  }
  Die();
  return false;
}

void SimServer::Drain() {
  network_.Listen(options_.address, options_.machine, nullptr);
  peer_check_.reset();
  if (keeper_ != nullptr) keeper_->Stop();
  loader_->Drain();
  service_->Drain();
  SimThreads& threads = *SimThreads::Current();
  threads.SleepUntil(threads.Now() + absl::Seconds(10));
}

void SimServer::GetSchedule(uint64_t step, LoaderClient::Use use,
                            Loader::ScheduleAnswer answer) {
  if (use == LoaderClient::Use::kLooks) {
    loader_->PeekSchedule(step, std::move(answer));
    return;
  }
  loader_->GetSchedule(step, [this, answer = std::move(answer)](auto schedule) {
    if (schedule.ok() && !dead_ && options_.on_schedule != nullptr) {
      options_.on_schedule(**schedule);
    }
    answer(std::move(schedule));
  });
}

absl::StatusOr<v1::AttachResponse> SimServer::Attach(
    const v1::AttachRequest& request) {
  grpc::CallbackServerContext context;
  const grpc::testing::DefaultReactorTestPeer peer(&context);
  v1::AttachResponse response;
  service_->Attach(&context, &request, &response);
  const absl::Status status = FromGrpcStatus(peer.test_status());
  if (!status.ok()) return status;
  return response;
}

uint64_t SimServer::MemoryBeyondBound() const {
  if (loader_ == nullptr) return 0;
  const uint64_t bound =
      options_.memory + loader_->open_streams() * kLargestBlock;
  const uint64_t in_use = loader_->memory_in_use();
  return in_use > bound ? in_use - bound : 0;
}

}  // namespace ballast
