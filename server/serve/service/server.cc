#include "server/serve/service/server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/blocking_calls.h"
#include "common/log.h"
#include "common/machine.h"
#include "common/net_address.h"
#include "common/status_macros.h"
#include "server/config/config_validate.h"
#include "server/data/index/bad_records.h"
#include "server/files/path_pattern.h"
#include "server/files/storage.h"
#include "server/job/revision.h"
#include "server/schedule/step_plan.h"
#include "server/serve/service/listening.h"

namespace ballast {
namespace {

// Sources in a store are read ahead by the index that the server started with.
absl::Status CheckStores(const OpenedJob& own, const OpenedJob& next) {
  for (size_t i = 0; i < own.sources.size(); ++i) {
    if (!own.sources[i]->InStore() ||
        own.sources[i]->index().digest() == next.sources[i]->index().digest()) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "source ", own.config.sources(i).name(),
        " is in a store, and its index would be another one; give the altered "
        "source another name, or restart the job"));
  }
  return absl::OkStatus();
}

}  // namespace

struct OpenedRevisions::OpenedCandidate final : Candidate {
  std::unique_ptr<OpenedJob> job;
};

absl::StatusOr<std::unique_ptr<RevisedJob::Candidate>> OpenedRevisions::Open(
    const std::string& config, uint64_t first_step) const {
  const v1::Config& own = own_->loaded.config;
  const std::string& directory = own_->loaded.directory;
  const std::vector<std::string> listen(own.serve().listen().begin(),
                                        own.serve().listen().end());
  BALLAST_ASSIGN_OR_RETURN(
      LoadedConfig offered,
      ParseConfig(config, "the offered file", directory, listen));
  // A flag of this server, not a key of the file.
  offered.config.mutable_topology()->set_meeting(own.topology().meeting());
  // Opening the job may find the steps before.
  BALLAST_RETURN_IF_ERROR(last().scheduler->MixtureBefore(first_step).status());
  auto candidate = std::make_unique<OpenedCandidate>();
  candidate->first_step = first_step;
  candidate->config = config;
  candidate->notes = ListUntaken(own, offered.config);
  LoadedConfig composed;
  composed.directory = directory;
  BALLAST_ASSIGN_OR_RETURN(
      composed.config,
      ComposeRevision(last().loaded.config, offered.config, first_step));
  absl::StatusOr<OpenedJob> opened = OpenJob(composed);
  if (absl::IsFailedPrecondition(opened.status())) {
    // Indexing it where it is would take the index from the running job.
    return absl::FailedPreconditionError(absl::StrCat(
        opened.status().message(),
        " (an index that the running job uses stays as it is: where the change "
        "needs another, give the source another `index` in the new file, and "
        "index that)"));
  }
  BALLAST_RETURN_IF_ERROR(opened.status());
  OpenedJob job = *std::move(opened);
  candidate->job = std::make_unique<OpenedJob>(std::move(job));
  guard_(candidate->job.get());
  BALLAST_RETURN_IF_ERROR(
      CheckRevision(*last().scheduler, *candidate->job->scheduler, first_step));
  BALLAST_RETURN_IF_ERROR(CheckStores(*own_, *candidate->job));
  candidate->differences =
      ListDifferences(last().scheduler->fingerprint(),
                      candidate->job->scheduler->fingerprint());
  candidate->fingerprint = candidate->job->scheduler->fingerprint().hash();
  return candidate;
}

void OpenedRevisions::Apply(std::unique_ptr<Candidate> candidate) {
  auto& opened = static_cast<OpenedCandidate&>(*candidate);
  const OpenedJob& job = *opened.job;
  if (builder_ != nullptr) {
    builder_->Add(
        candidate->first_step,
        std::make_unique<FileSampleBuilder>(
            job.config,
            FileSampleBuilder::Job{job.source_pointers(), job.text.get(),
                                   job.scheduler.get()},
            *builder_->own()));
  }
  // After the builder, which the first block of the step needs.
  scheduler_.Add(candidate->first_step, job.scheduler.get());
  opened_.push_back(std::move(opened.job));
}

namespace {

// Number of reads that may hang at the same time; further reads are refused.
constexpr size_t kMaxStuckReads = 64;

// "docs:17 (docs-000.tar at byte 512)"; of a schedule, the index files.
std::string DescribeWork(const FileSampleBuilder& builder,
                         const std::string& index_files,
                         const ActiveSample& work) {
  if (work.step.has_value()) return index_files;
  const SampleLocation at = builder.Locate(work.source, work.ordinal);
  return absl::StrCat(builder.GetName(work.source, work.ordinal), " (", at.file,
                      " at byte ", at.offset, ")");
}

}  // namespace

ReadPolicy GetReadPolicy(const v1::Serve& serve) {
  ReadPolicy policy;
  policy.attempts = serve.read_attempts();
  policy.timeout = absl::Seconds(serve.read_timeout());
  return policy;
}

void GuardSources(const std::shared_ptr<const LiveValue<ReadPolicy>>& policy,
                  FailingFiles* files, OpenedJob* job) {
  const auto calls =
      std::make_shared<BlockingCalls>(kMaxStuckReads, Clock::Real());
  for (std::unique_ptr<SampleSource>& source : job->sources) {
    source =
        GuardSource(std::move(source), policy, calls, Clock::Real(),
                    [files](const std::string& file, absl::string_view reason) {
                      files->TriedAgain(file, reason);
                    });
  }
}

uint64_t StatedMemory(const v1::Config& config, uint64_t decode_memory) {
  constexpr uint64_t kProgram = uint64_t{512} << 20;
  constexpr uint64_t kThread = uint64_t{32} << 20;
  uint64_t bytes = config.serve().memory() + decode_memory + kProgram +
                   kThread * ThreadsOrCores(config.serve().threads());
  bool has_row_groups = false;
  bool is_in_store = false;
  for (const v1::Source& source : config.sources()) {
    has_row_groups |= source.format() == v1::Source::FORMAT_PARQUET;
    is_in_store |= IsStoreUrl(source.path()) ||
                   std::any_of(source.media_root().begin(),
                               source.media_root().end(), IsStoreUrl);
  }
  if (has_row_groups) bytes += config.serve().row_group_memory();
  if (is_in_store) bytes += config.storage().memory();
  return bytes;
}

absl::StatusOr<ServerParts> MakeServerParts(
    const OpenedJob& job, uint32_t ranks, const ServerRevisions& revisions,
    std::unique_ptr<BuildInstruments> build) {
  ServerParts parts;
  parts.build = build != nullptr ? std::move(build)
                                 : std::make_unique<BuildInstruments>();
  parts.board = std::make_unique<ActiveSamples>(Clock::Real());
  auto builder = std::make_unique<FileSampleBuilder>(
      job.config, FileSampleBuilder::Job{job.source_pointers(), job.text.get(),
                                         job.scheduler.get(), parts.board.get(),
                                         parts.build.get()});
  parts.builder = builder.get();
  const uint64_t stated =
      StatedMemory(job.config, parts.builder->decode_budget().bytes());
  if (const uint64_t most = MachineMemory(); most != 0 && stated > most) {
    LogWarning("serve.memory, serve.decode_memory and the rest are ",
               stated >> 20, " MiB, and this process may use ", most >> 20,
               " MiB: lower them, or raise the limit of its cgroup");
  }
  const RevisedBuilder* revised = nullptr;
  if (revisions.keeper == nullptr) {
    BALLAST_ASSIGN_OR_RETURN(
        parts.loader,
        Loader::Create(job.config, ranks, job.scheduler.get(),
                       std::move(builder), Clock::Real(), parts.board.get()));
  } else {
    auto all = std::make_unique<RevisedBuilder>(std::move(builder));
    revised = all.get();
    revisions.opened->SetBuilder(all.get());
    BALLAST_RETURN_IF_ERROR(revisions.keeper->Open());
    BALLAST_ASSIGN_OR_RETURN(
        parts.loader,
        Loader::Create(job.config, ranks, revisions.opened->scheduler(),
                       std::move(all), Clock::Real(), parts.board.get(),
                       revisions.keeper->gate()));
  }
  BALLAST_ASSIGN_OR_RETURN(
      parts.stall_watchdog,
      StallWatchdog::Start(
          parts.board.get(), absl::Seconds(job.config.serve().stall_after()),
          [builder = parts.builder, revised,
           index_files =
               absl::StrJoin(job.index_files, ", ")](const ActiveSample& work) {
            return DescribeWork(revised == nullptr
                                    ? *builder
                                    : revised->At(work.split, work.sample_step),
                                index_files, work);
          },
          Clock::Real()));
  return parts;
}

namespace {

// Time for short calls to end once the long ones have ended.
constexpr absl::Duration kLastCalls = absl::Milliseconds(500);
// Longest time from a change of an index to NOT_SERVING. Steps and samples are
// checked when they are read.
constexpr absl::Duration kIndexPeriod = absl::Seconds(1);

absl::Status CheckAddresses(const v1::Config& config) {
  for (const std::string& address : config.serve().listen()) {
    BALLAST_RETURN_IF_ERROR(CheckListen(address, config.security()));
  }
  const std::string& http = config.serve().http();
  if (http.empty()) return absl::OkStatus();
  const absl::StatusOr<NetAddress> parsed = ParseConfiguredAddress(http);
  return Annotate(parsed.ok()
                      ? CheckHttpExposure(*parsed, http, config.security())
                      : parsed.status(),
                  "serve.http");
}

// Returns null if groups meet at this server, whose address is `own`.
std::unique_ptr<RendezvousForwarder> MakeForwarder(
    const OpenedJob& job, const std::string& own,
    const ServerSecurity& security, CallCount* calls) {
  const std::string address = RendezvousAddress(job.config);
  const auto& listen = job.config.serve().listen();
  if (address == own ||
      std::find(listen.begin(), listen.end(), address) != listen.end()) {
    return nullptr;
  }
  return std::make_unique<RendezvousForwarder>(
      address, security.to_peers(), job.scheduler->fingerprint().hash(), calls);
}

}  // namespace

namespace {

// The server that decides on changes: the first of topology.servers.
std::string DeciderAddress(const v1::Config& config,
                           const ServerIdentity& identity) {
  return config.topology().servers_size() > 1
             ? config.topology().servers(0).address()
             : identity.name;
}

absl::StatusOr<ServerRevisions> MakeRevisions(
    const OpenedJob* job, const ServerIdentity& identity,
    const ServerSecurity& security,
    const std::shared_ptr<const LiveValue<ReadPolicy>>& policy,
    FailingFiles* files) {
  const v1::Config& config = job->config;
  if (config.serve().revisions().empty()) return ServerRevisions();
  RevisionKeeper::Settings settings;
  settings.name = identity.name;
  settings.peers = PeerAddresses(config.topology(), identity.name);
  settings.decider = DeciderAddress(config, identity);
  // A server of several that only topology.meeting brings together.
  settings.servers_known = config.topology().servers_size() > 1 ||
                           config.topology().meeting().empty() ||
                           config.topology().meeting() == identity.name;
  auto opened = std::make_unique<OpenedRevisions>(
      job, [policy, files](OpenedJob* opened) {
        GuardSources(policy, files, opened);
      });
  ServerRevisions revisions;
  revisions.opened = opened.get();
  BALLAST_ASSIGN_OR_RETURN(
      revisions.keeper,
      RevisionKeeper::Create(std::move(settings),
                             MakeGrpcRevisionPeers(security.to_peers()),
                             MakeFileRevisionStore(config.serve().revisions()),
                             std::move(opened)));
  return revisions;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoaderServer>> LoaderServer::Start(
    const LoadedConfig& config, Rehearsal rehearsal) {
  // Checked before the slow steps.
  BALLAST_RETURN_IF_ERROR(CheckAddresses(config.config));
  BALLAST_RETURN_IF_ERROR(
      ServerSecurity::Load(config.config.security()).status());
  BALLAST_ASSIGN_OR_RETURN(OpenedJob job, OpenJob(config));
  for (const v1::LeftOut& left_out : job.left_out) {
    LogWarning("source ", left_out.source(), ": ", DescribeLeftOut(left_out));
  }
  LogInfo("costs of samples: ", job.loaded.costs);
  return Start(std::move(job), Clock::Real(), rehearsal);
}

absl::StatusOr<std::unique_ptr<LoaderServer>> LoaderServer::Start(
    OpenedJob job, Clock* clock, Rehearsal rehearsal) {
  BALLAST_RETURN_IF_ERROR(CheckAddresses(job.config));
  BALLAST_ASSIGN_OR_RETURN(ServerSecurity security,
                           ServerSecurity::Load(job.config.security()));
  BALLAST_ASSIGN_OR_RETURN(const ServerIdentity identity,
                           IdentifyServer(job.config));
  const auto read_policy = std::make_shared<LiveValue<ReadPolicy>>(
      GetReadPolicy(job.config.serve()));
  auto build = std::make_unique<BuildInstruments>();
  FailingFiles* const files = &build->failing_files;
  GuardSources(read_policy, files, &job);
  // On the heap: the keeper and the parts point to it.
  auto opened = std::make_unique<OpenedJob>(std::move(job));
  BALLAST_ASSIGN_OR_RETURN(
      ServerRevisions revisions,
      MakeRevisions(opened.get(), identity, security, read_policy, files));
  const Scheduler* const scheduler = revisions.opened == nullptr
                                         ? opened->scheduler.get()
                                         : revisions.opened->scheduler();
  BALLAST_ASSIGN_OR_RETURN(
      ServerParts parts,
      MakeServerParts(*opened, identity.ranks, revisions, std::move(build)));
  BALLAST_ASSIGN_OR_RETURN(parts.ahead_fetcher,
                           MakeAheadFetcher(*opened, identity, scheduler));
  // The first blocks of a server that may not know a change could be others.
  const bool knows =
      revisions.keeper == nullptr || revisions.keeper->complete();
  if (rehearsal == Rehearsal::kFirstBlocks && knows) {
    BALLAST_RETURN_IF_ERROR(
        Rehearse(parts.loader.get(),
                 RolesToRehearse(identity.first_ranks, scheduler->job())));
  }
  scheduler->FindInParts(Clock::Real());
  // Created after the rehearsal, since no rank trains on its blocks.
  BALLAST_ASSIGN_OR_RETURN(ServersOfRanks servers,
                           FindServersOfRanks(opened->config));
  parts.balance = BalanceBoard::Create(parts.loader.get(), std::move(servers),
                                       GetGeometry(scheduler->job()),
                                       PackRoom(opened->config));
  BALLAST_ASSIGN_OR_RETURN(std::vector<ListenSockets> sockets,
                           OpenAllSockets(opened->config.serve()));
  // With the port that the system chose.
  ServerIdentity named = identity;
  if (!sockets.empty() && identity.name == opened->config.serve().listen(0)) {
    named.name = sockets[0].address;
  }
  std::unique_ptr<LoaderServer> server(
      new LoaderServer(std::move(opened), std::move(revisions), read_policy,
                       std::move(security), named, std::move(parts)));
  RevisionKeeper* const keeper = server->revisions_.keeper.get();
  if (keeper != nullptr) BALLAST_RETURN_IF_ERROR(keeper->Start(clock));
  BALLAST_RETURN_IF_ERROR(server->StartHistory());
  BALLAST_RETURN_IF_ERROR(server->Listen(std::move(sockets)));
  server->WatchStandstill();
  if (keeper != nullptr) server->WatchRevisions();
  BALLAST_RETURN_IF_ERROR(server->WatchIndexes());
  if (server->ahead_fetcher_ != nullptr &&
      server->job_.config.storage().ahead_steps() > 0) {
    BALLAST_RETURN_IF_ERROR(
        server->ahead_fetcher_->Start([loader = server->loader_.get()] {
          return loader->stats().current_step;
        }));
  }
  BALLAST_RETURN_IF_ERROR(server->ServeHttp());
  BALLAST_RETURN_IF_ERROR(server->ComparePeers(identity.name, clock));
  return server;
}

LoaderServer::LoaderServer(std::unique_ptr<OpenedJob> job,
                           ServerRevisions revisions, LivePolicy read_policy,
                           ServerSecurity security,
                           const ServerIdentity& identity, ServerParts parts)
    : opened_(std::move(job)),
      job_(*opened_),
      revisions_(std::move(revisions)),
      read_policy_(std::move(read_policy)),
      security_(std::move(security)),
      build_instruments_(std::move(parts.build)),
      board_(std::move(parts.board)),
      loader_(std::move(parts.loader)),
      builder_(parts.builder),
      stall_watchdog_(std::move(parts.stall_watchdog)),
      ahead_fetcher_(std::move(parts.ahead_fetcher)),
      balance_(std::move(parts.balance)),
      meeting_(MakeForwarder(job_, identity.name, security_, &calls_)),
      loader_service_(identity.name, scheduler(), loader_.get(), &calls_,
                      {job_.config.serve().max_streams(),
                       job_.config.serve().max_streams_per_client()},
                      &pull_instruments_, &clients_, meeting_.get()),
      schedule_service_(loader_.get(), &calls_),
      order_service_(scheduler(), loader_.get(),
                     [this](const v1::StepSchedule& schedule, uint32_t source,
                            uint64_t ordinal) {
                       return Locate(schedule, source, ordinal);
                     }),
      revision_service_(identity.name, DeciderAddress(job_.config, identity),
                        revisions_.keeper.get()),
      state_(GetSources(*this, identity, parts.builder)),
      metrics_service_(job_.scheduler->job(), &state_, balance_, &calls_) {}

ServerState::Sources LoaderServer::GetSources(
    const LoaderServer& server, const ServerIdentity& identity,
    const FileSampleBuilder* builder) {
  ServerState::Sources sources;
  sources.name = identity.name;
  sources.loader = server.loader_.get();
  sources.builder = builder;
  sources.scheduler = server.scheduler();
  sources.stalls = server.stall_watchdog_.get();
  sources.clients = &server.clients_;
  sources.timings = &server.loader_service_.timings();
  sources.balance = server.balance_.get();
  sources.build = server.build_instruments_.get();
  sources.pull = &server.pull_instruments_;
  sources.memory = server.job_.config.serve().memory();
  sources.stated_memory =
      StatedMemory(server.job_.config, builder->decode_budget().bytes());
  sources.clock = Clock::Real();
  sources.left_out = server.job_.left_out;
  sources.costs = server.job_.loaded.costs;
  sources.problems = &server.problems_;
  sources.connections = server.connections_.get();
  const v1::Serve& serve = server.job_.config.serve();
  sources.wants_shared_memory =
      serve.arena() != "off" &&
      std::any_of(serve.listen().begin(), serve.listen().end(),
                  [](const std::string& address) {
                    return !UnixPath(address).empty();
                  });
  if (const auto tls = server.security_.tls(); tls != nullptr) {
    sources.certificate = [tls,
                           file = server.job_.config.security().tls().cert()] {
      return std::make_pair(tls->Get()->identity.expires, file);
    };
  }
  if (server.ahead_fetcher_ != nullptr) {
    sources.ahead_fetcher = server.ahead_fetcher_.get();
    sources.storage = &Storage::OfProcess();
  }
  const v1::Config& config = server.job_.config;
  for (int i = 0; i < config.sources_size(); ++i) {
    if (config.model().decode() != v1::Model::DECODE_DEVICE) break;
    const ImageMarkCounts counts =
        server.job_.sources[i]->index().mark_counts();
    if (counts.images == 0) continue;
    sources.encoded_images.push_back(
        GetEncodedImages(config.sources(i).name(), counts));
  }
  return sources;
}

LoaderServer::~LoaderServer() { Shutdown(); }

const Scheduler* LoaderServer::scheduler() const {
  return revisions_.opened == nullptr ? job_.scheduler.get()
                                      : revisions_.opened->scheduler();
}

SampleLocation LoaderServer::Locate(const v1::StepSchedule& schedule,
                                    uint32_t source, uint64_t ordinal) const {
  const FileSampleBuilder& builder =
      revisions_.opened == nullptr
          ? *builder_
          : revisions_.opened->builder()->At(schedule.split(), schedule.step());
  return builder.Locate(source, ordinal);
}

std::string LoaderServer::MeetingElsewhere() const {
  return meeting_ == nullptr ? "" : job_.config.topology().meeting();
}

namespace {

// For blocks, schedules and all else.
constexpr size_t kConnectionsOfRank = 3;

// Those of each rank of a module, divided by the servers that the configuration
// names. Tensor peers may get their batches from each other.
size_t ConnectionsOfRanks(const v1::Topology& topology) {
  size_t ranks = 0;
  for (const auto& [name, module] : topology.modules()) {
    ranks += size_t{module.dp()} * module.pp() * module.cp();
  }
  const size_t servers = std::max(topology.servers_size(), 1);
  return kConnectionsOfRank * ((ranks + servers - 1) / servers);
}

}  // namespace

absl::Status LoaderServer::Listen(std::vector<ListenSockets> sockets) {
  if (const std::string meeting = MeetingElsewhere(); !meeting.empty()) {
    const absl::Status waits = NotCompared(state_.name(), meeting);
    loader_service_.RefuseToAttach(waits);
    problems_.Set("meeting", meeting, waits.message());
  }
  if (const size_t wanted = ConnectionsOfRanks(job_.config.topology());
      wanted > connections_->most()) {
    LogWarning("the ranks of topology.modules take ", wanted,
               " connections, and there is room for ", connections_->most(),
               ": if all of them come to this server, start it with more "
               "descriptors, six for a connection (ulimit -Hn, LimitNOFILE)");
  }
  const auto on_lost = [this](const absl::Status& why) {
    MutexLock lock(&mutex_);
    lost_ = why;
  };
  BALLAST_ASSIGN_OR_RETURN(
      call_server_,
      StartCallServer(std::move(sockets), security_,
                      {&loader_service_, &schedule_service_, &order_service_,
                       &metrics_service_, &revision_service_},
                      connections_, on_lost));
  return absl::OkStatus();
}

absl::Status LoaderServer::StartHistory() {
  if (job_.config.serve().http().empty()) return absl::OkStatus();
  BALLAST_ASSIGN_OR_RETURN(
      history_, StateHistory::Start([this] { return state_.Metrics(); },
                                    absl::Now(), Clock::Real()));
  metrics_service_.KeepHistory(history_.get());
  return absl::OkStatus();
}

absl::Status LoaderServer::ServeHttp() {
  const v1::Serve& serve = job_.config.serve();
  if (serve.http().empty()) return absl::OkStatus();
  compared_ = std::make_unique<ComparedServers>(
      std::vector<std::string>(serve.compare_with().begin(),
                               serve.compare_with().end()),
      GrpcHistoryCall(security_.to_peers()), Clock::Real());
  BALLAST_ASSIGN_OR_RETURN(
      http_, StartPageServer(job_.config, {&security_, &state_, balance_.get(),
                                           history_.get(), compared_.get()}));
  http_address_ = http_->address();
  return absl::OkStatus();
}

absl::Status LoaderServer::ComparePeers(const std::string& own_address,
                                        Clock* clock) {
  std::vector<std::string> peers =
      PeerAddresses(job_.config.topology(), own_address);
  const std::string meeting = MeetingElsewhere();
  if (!meeting.empty() &&
      std::find(peers.begin(), peers.end(), meeting) == peers.end()) {
    peers.push_back(meeting);
  }
  if (peers.empty()) return absl::OkStatus();
  const auto on_change = [this](const absl::Status& verdict) {
    MutexLock lock(&mutex_);
    if (!verdict.ok()) {
      LogError(verdict.message(), "; no rank is served while that is so");
    } else if (!peers_agree_.ok()) {
      LogInfo("no other server of the job differs any more; ranks are served");
    }
    peers_agree_ = verdict;
    problems_.Set("meeting", MeetingElsewhere(), "");
    UpdateRefusal();
    if (verdict.ok()) loader_service_.RefuseToAttach(absl::OkStatus());
  };
  BALLAST_ASSIGN_OR_RETURN(
      peer_check_,
      PeerCheck::Start({job_.scheduler->fingerprint(), own_address, meeting},
                       std::move(peers),
                       MakeGrpcPeerCaller(security_.to_peers()), clock,
                       on_change));
  return absl::OkStatus();
}

void LoaderServer::WatchStandstill() {
  stall_watchdog_->WatchStandstill([this](bool stands_still) {
    if (stands_still) {
      LogWarning(
          "nothing goes on: all work has stalled; the health is NOT_SERVING "
          "until some of it goes on");
    } else {
      LogInfo("work goes on after a stall");
    }
    MutexLock lock(&mutex_);
    stands_still_ = stands_still;
    UpdateHealth();
  });
}

void LoaderServer::WatchRevisions() {
  revisions_.keeper->WatchServing([this](const absl::Status& serving) {
    MutexLock lock(&mutex_);
    knows_revisions_ = serving;
    UpdateRefusal();
  });
}

absl::Status LoaderServer::WatchIndexes() {
  const auto look = [this] {
    std::string changed;
    for (const auto& source : job_.sources) {
      const absl::Status same = source->index().CheckUnchanged();
      if (!same.ok()) changed = std::string(same.message());
    }
    MutexLock lock(&mutex_);
    if (std::exchange(indexes_changed_, changed) != changed) UpdateHealth();
  };
  BALLAST_ASSIGN_OR_RETURN(
      index_watch_, Ticker::Start(
                        "watch the indexes", [] { return kIndexPeriod; }, look,
                        Clock::Real()));
  return absl::OkStatus();
}

void LoaderServer::UpdateRefusal() {
  loader_service_.Refuse(peers_agree_.ok() ? knows_revisions_ : peers_agree_);
  UpdateHealth();
}

std::string LoaderServer::WhyNotServing() const {
  if (draining_) {
    return "the server drains, and ends when its streams have ended; its ranks "
           "go on at the job's other servers";
  }
  if (!indexes_changed_.empty()) {
    return absl::StrCat(indexes_changed_,
                        "; put the first index back, or restart the server");
  }
  if (!peers_agree_.ok()) {
    return absl::StrCat(peers_agree_.message(),
                        "; give both the same configuration and index, and "
                        "restart the one that was wrong");
  }
  if (!knows_revisions_.ok()) return std::string(knows_revisions_.message());
  if (stands_still_) {
    return "all work has stalled: the stalls say where; does the file system "
           "answer?";
  }
  return "";
}

void LoaderServer::UpdateHealth() {
  const std::string why = WhyNotServing();
  problems_.Set("not_serving", "", why);
  call_server_.server->GetHealthCheckService()->SetServingStatus(why.empty());
}

void LoaderServer::NoteProblem(absl::string_view kind,
                               const std::string& subject,
                               const absl::Status& fault) {
  problems_.Set(kind, subject, fault.message());
}

absl::Status LoaderServer::Reload(const v1::Config& config) {
  BALLAST_RETURN_IF_ERROR(security_.Reload(config.security()));
  read_policy_->Set(GetReadPolicy(config.serve()));
  stall_watchdog_->SetAfter(absl::Seconds(config.serve().stall_after()));
  builder_->SetMaxBadSamples(config.serve().max_bad_samples());
  return absl::OkStatus();
}

absl::StatusOr<bool> LoaderServer::RenewTls() { return security_.RenewTls(); }

void LoaderServer::Drain(absl::Time deadline) {
  {
    MutexLock lock(&mutex_);
    if (draining_) {
      while (!down_) changed_.Wait(&mutex_);
      return;
    }
    draining_ = true;
  }
  if (peer_check_ != nullptr) peer_check_->Stop();
  if (revisions_.keeper != nullptr) revisions_.keeper->Stop();
  stall_watchdog_->WatchStandstill(nullptr);
  index_watch_.reset();
  if (call_server_.server != nullptr) {
    {
      MutexLock lock(&mutex_);
      UpdateHealth();
    }
    loader_service_.Drain();
    schedule_service_.Drain();
    metrics_service_.Drain();
    loader_->Drain();
    calls_.AwaitNone(deadline);
    builder_->EndWaits();
    for (const auto& relay : call_server_.relays) relay->StopAccepting();
    // gRPC takes a time before 1970 for the infinite future.
    call_server_.server->Shutdown(absl::ToChronoTime(
        std::clamp(deadline, absl::UnixEpoch(), absl::Now() + kLastCalls)));
    call_server_.relays.clear();
  }
  http_.reset();
  history_.reset();
  MutexLock lock(&mutex_);
  down_ = true;
  changed_.NotifyAll();
}

absl::Status LoaderServer::lost() const {
  MutexLock lock(&mutex_);
  return lost_;
}

void LoaderServer::Wait() {
  MutexLock lock(&mutex_);
  while (!down_) changed_.Wait(&mutex_);
}

}  // namespace ballast
