#include "server/service/server.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/blocking_calls.h"
#include "common/log.h"
#include "common/net_address.h"
#include "common/status_macros.h"
#include "server/config/exposure.h"
#include "server/http/pages.h"
#include "server/http/prometheus_text.h"
#include "server/http/status_json.h"
#include "server/monitor/encoded_images.h"
#include "server/schedule/step_balance.h"
#include "server/service/call_limits.h"
#include "server/service/listening.h"
#include "server/service/meeting_forwarder.h"
#include "server/service/peer_caller.h"
#include "server/service/rehearsal.h"
#include "server/storage/storage.h"

namespace ballast {
namespace {

// Time for short calls to end once the long ones have ended.
constexpr absl::Duration kLastCalls = absl::Milliseconds(500);

// While this object exists, sockets are created for their owner and group only.
// It affects the whole process, so other files created meanwhile get no more
// permissions than these.
class SocketMode {
 public:
  static constexpr mode_t kMode = 0660;

  SocketMode() : before_(umask(0777 & ~kMode)) {}
  ~SocketMode() { umask(before_); }
  SocketMode(const SocketMode&) = delete;
  SocketMode& operator=(const SocketMode&) = delete;

 private:
  const mode_t before_;
};

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

// Reads that may hang at the same time before further ones are refused.
constexpr size_t kMaxStuckReads = 64;

ReadPolicy ReadPolicyOf(const v1::Serve& serve) {
  ReadPolicy policy;
  policy.attempts = serve.read_attempts();
  policy.timeout = absl::Seconds(serve.read_timeout());
  return policy;
}

// Makes the job's sources read according to `policy` from now on.
void GuardSources(const std::shared_ptr<const LiveValue<ReadPolicy>>& policy,
                  OpenedJob* job) {
  const auto calls =
      std::make_shared<BlockingCalls>(kMaxStuckReads, Clock::Real());
  for (std::unique_ptr<SampleSource>& source : job->sources) {
    source = GuardSource(std::move(source), policy, calls, Clock::Real());
  }
}

// "docs:17 (docs-000.tar at byte 512)"; of a schedule, the index files.
std::string Describe(const FileSampleBuilder& builder,
                     const std::string& index_files, const ActiveSample& work) {
  if (work.step.has_value()) return index_files;
  const SampleLocation at = builder.Locate(work.source, work.ordinal);
  return absl::StrCat(builder.NameOf(work.source, work.ordinal), " (", at.file,
                      " at byte ", at.offset, ")");
}

// Returns null if groups meet at this server, whose address is `own`.
std::unique_ptr<MeetingForwarder> MakeForwarder(const OpenedJob& job,
                                                const std::string& own,
                                                const ServerSecurity& security,
                                                CallCount* calls) {
  const std::string address = MeetingAddress(job.config);
  const auto& listen = job.config.serve().listen();
  if (address == own ||
      std::find(listen.begin(), listen.end(), address) != listen.end()) {
    return nullptr;
  }
  return std::make_unique<MeetingForwarder>(
      address, security.to_peers(), job.scheduler->fingerprint().hash(), calls);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoaderServer>> LoaderServer::Start(
    const LoadedConfig& config, Rehearsal rehearsal) {
  // Checked before the slow steps.
  BALLAST_RETURN_IF_ERROR(CheckAddresses(config.config));
  BALLAST_RETURN_IF_ERROR(
      ServerSecurity::Load(config.config.security()).status());
  BALLAST_ASSIGN_OR_RETURN(OpenedJob job, OpenJob(config));
  return Start(std::move(job), Clock::Real(), rehearsal);
}

absl::StatusOr<std::unique_ptr<LoaderServer>> LoaderServer::Start(
    OpenedJob job, Clock* clock, Rehearsal rehearsal) {
  BALLAST_RETURN_IF_ERROR(CheckAddresses(job.config));
  BALLAST_ASSIGN_OR_RETURN(ServerSecurity security,
                           ServerSecurity::Load(job.config.security()));
  BALLAST_ASSIGN_OR_RETURN(const ServerIdentity identity,
                           IdentifyServer(job.config));
  const auto read_policy =
      std::make_shared<LiveValue<ReadPolicy>>(ReadPolicyOf(job.config.serve()));
  GuardSources(read_policy, &job);
  BALLAST_ASSIGN_OR_RETURN(Parts parts, MakeParts(job, identity.ranks));
  BALLAST_ASSIGN_OR_RETURN(parts.ahead_fetcher,
                           MakeAheadFetcher(job, identity));
  if (rehearsal == Rehearsal::kFirstBlocks) {
    BALLAST_RETURN_IF_ERROR(
        Rehearse(parts.loader.get(),
                 RolesToRehearse(identity.first_ranks, job.scheduler->job())));
  }
  // Created after the rehearsal, since no rank trains on its blocks.
  BALLAST_ASSIGN_OR_RETURN(ServersOfRanks servers,
                           FindServersOfRanks(job.config));
  parts.balance = BalanceBoard::Create(parts.loader.get(), std::move(servers),
                                       GeometryOf(job.scheduler->job()));
  std::unique_ptr<LoaderServer> server(
      new LoaderServer(std::move(job), read_policy, std::move(security),
                       identity, std::move(parts)));
  BALLAST_RETURN_IF_ERROR(server->Listen());
  server->WatchStandstill();
  if (server->ahead_fetcher_ != nullptr &&
      server->job_.config.storage().ahead_steps() > 0) {
    server->ahead_fetcher_->Start([loader = server->loader_.get()] {
      return loader->stats().current_step;
    });
  }
  BALLAST_RETURN_IF_ERROR(server->ServeHttp());
  BALLAST_RETURN_IF_ERROR(server->ComparePeers(identity.name, clock));
  return server;
}

absl::StatusOr<LoaderServer::Parts> LoaderServer::MakeParts(
    const OpenedJob& job, uint32_t ranks) {
  Parts parts;
  parts.build = std::make_unique<BuildInstruments>();
  parts.board = std::make_unique<ActiveSamples>(Clock::Real());
  auto builder = std::make_unique<FileSampleBuilder>(
      job.config, job.source_pointers(), job.tokenizer.get(), parts.board.get(),
      parts.build.get(), job.family.get());
  parts.builder = builder.get();
  BALLAST_ASSIGN_OR_RETURN(
      parts.loader,
      Loader::Create(job.config, ranks, job.scheduler.get(), std::move(builder),
                     Clock::Real(), parts.board.get()));
  BALLAST_ASSIGN_OR_RETURN(
      parts.stall_watch,
      StallWatch::Start(
          parts.board.get(), absl::Seconds(job.config.serve().stall_after()),
          [builder = parts.builder,
           index_files =
               absl::StrJoin(job.index_files, ", ")](const ActiveSample& work) {
            return Describe(*builder, index_files, work);
          },
          Clock::Real()));
  return parts;
}

LoaderServer::LoaderServer(OpenedJob job, LivePolicy read_policy,
                           ServerSecurity security,
                           const ServerIdentity& identity, Parts parts)
    : job_(std::move(job)),
      read_policy_(std::move(read_policy)),
      security_(std::move(security)),
      build_instruments_(std::move(parts.build)),
      board_(std::move(parts.board)),
      loader_(std::move(parts.loader)),
      builder_(parts.builder),
      stall_watch_(std::move(parts.stall_watch)),
      ahead_fetcher_(std::move(parts.ahead_fetcher)),
      balance_(std::move(parts.balance)),
      meeting_(MakeForwarder(job_, identity.name, security_, &calls_)),
      loader_service_(identity.name, job_.scheduler.get(), loader_.get(),
                      &calls_,
                      {job_.config.serve().max_streams(),
                       job_.config.serve().max_streams_per_client()},
                      &pull_instruments_, &clients_, meeting_.get()),
      schedule_service_(loader_.get(), &calls_),
      order_service_(job_.scheduler.get(), loader_.get(),
                     [this](uint32_t source, uint64_t ordinal) {
                       return builder_->Locate(source, ordinal);
                     }),
      state_(SourcesOf(*this, identity, parts.builder)),
      metrics_service_(job_.scheduler->job(), &state_, balance_, &calls_) {}

ServerState::Sources LoaderServer::SourcesOf(const LoaderServer& server,
                                             const ServerIdentity& identity,
                                             const FileSampleBuilder* builder) {
  ServerState::Sources sources;
  sources.name = identity.name;
  sources.loader = server.loader_.get();
  sources.builder = builder;
  sources.stalls = server.stall_watch_.get();
  sources.clients = &server.clients_;
  sources.timings = &server.loader_service_.timings();
  sources.balance = server.balance_.get();
  sources.build = server.build_instruments_.get();
  sources.pull = &server.pull_instruments_;
  sources.memory = server.job_.config.serve().memory();
  sources.clock = Clock::Real();
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
        EncodedImagesOf(config.sources(i).name(), counts));
  }
  return sources;
}

LoaderServer::~LoaderServer() { Shutdown(); }

absl::Status LoaderServer::Listen() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetCallLimits(&builder);
  const auto& listen = job_.config.serve().listen();
  for (const std::string& address : listen) {
    const std::string path(UnixPath(address));
    // gRPC would delete the socket of a running server.
    if (!path.empty()) BALLAST_RETURN_IF_ERROR(RemoveStaleSocket(path));
    // gRPC reports only that it cannot listen, and logs the reason.
    BALLAST_RETURN_IF_ERROR(TryListen(address));
  }
  std::vector<int> ports(listen.size(), 0);  // filled in by BuildAndStart
  for (int i = 0; i < listen.size(); ++i) {
    builder.AddListeningPort(listen[i], security_.CredentialsFor(listen[i]),
                             &ports[i]);
  }
  builder.RegisterService(&loader_service_);
  builder.RegisterService(&schedule_service_);
  builder.RegisterService(&order_service_);
  builder.RegisterService(&metrics_service_);
  {
    const SocketMode mode;
    server_ = builder.BuildAndStart();
  }
  for (int i = 0; i < listen.size(); ++i) {
    if (ports[i] != 0) continue;
    BALLAST_RETURN_IF_ERROR(TryListen(listen[i]));
    return absl::UnavailableError(
        absl::StrCat("serve.listen: gRPC cannot listen at ", listen[i]));
  }
  if (server_ == nullptr) {
    return absl::UnavailableError("serve.listen: gRPC cannot start a server");
  }
  for (int i = 0; i < listen.size(); ++i) {
    const std::string path(UnixPath(listen[i]));
    addresses_.push_back(path.empty() ? WithPort(listen[i], ports[i])
                                      : listen[i]);
    // The folder's access control list can have overruled SocketMode.
    if (!path.empty() && chmod(path.c_str(), SocketMode::kMode) != 0) {
      return absl::ErrnoToStatus(
          errno, absl::StrCat("serve.listen: ", path, ": cannot chmod"));
    }
  }
  return absl::OkStatus();
}

absl::Status LoaderServer::ServeHttp() {
  const std::string& address = job_.config.serve().http();
  if (address.empty()) return absl::OkStatus();
  BALLAST_ASSIGN_OR_RETURN(const NetAddress parsed,
                           ParseConfiguredAddress(address));
  PageSources pages;
  pages.is_local = parsed.IsLocal();
  pages.metrics = [this] { return PrometheusText(state_.Metrics()); };
  pages.status = [this] {
    return PageJson(state_.Status(), state_.Metrics(),
                    balance_->Current().get(), balance_->History());
  };
  pages.check = [this](const std::optional<std::string>& authorization) {
    return security_.CheckAuthorization(authorization);
  };
  absl::StatusOr<std::unique_ptr<HttpServer>> http =
      HttpServer::Start(address, MakePages(std::move(pages)));
  if (!http.ok()) return Annotate(http.status(), "serve.http");
  http_ = *std::move(http);
  http_address_ = http_->address();
  LogInfo("page at http://", http_address_, "/, metrics at http://",
          http_address_, "/metrics");
  return absl::OkStatus();
}

absl::Status LoaderServer::ComparePeers(const std::string& own_address,
                                        Clock* clock) {
  std::vector<std::string> peers =
      PeerAddresses(job_.config.topology(), own_address);
  if (peers.empty()) return absl::OkStatus();
  const auto on_change = [this](const absl::Status& verdict) {
    if (verdict.ok()) {
      LogInfo("no other server of the job differs any more; ranks are served");
    } else {
      LogError(verdict.message(), "; no rank is served while that is so");
    }
    loader_service_.Refuse(verdict);
    MutexLock lock(&mutex_);
    peers_agree_ = verdict.ok();
    UpdateHealth();
  };
  BALLAST_ASSIGN_OR_RETURN(
      peer_check_,
      PeerCheck::Start(
          {job_.scheduler->fingerprint(), own_address}, std::move(peers),
          MakeGrpcPeerCaller(security_.to_peers()), clock, on_change));
  return absl::OkStatus();
}

void LoaderServer::WatchStandstill() {
  stall_watch_->WatchStandstill([this](bool stands_still) {
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

void LoaderServer::UpdateHealth() {
  server_->GetHealthCheckService()->SetServingStatus(
      peers_agree_ && !stands_still_ && !draining_);
}

absl::Status LoaderServer::Reload(const v1::Config& config) {
  BALLAST_RETURN_IF_ERROR(security_.Reload(config.security()));
  read_policy_->Set(ReadPolicyOf(config.serve()));
  stall_watch_->SetAfter(absl::Seconds(config.serve().stall_after()));
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
  stall_watch_->WatchStandstill(nullptr);
  if (server_ != nullptr) {
    {
      MutexLock lock(&mutex_);
      UpdateHealth();
    }
    loader_service_.Drain();
    schedule_service_.Drain();
    metrics_service_.Drain();
    loader_->Drain();
    calls_.AwaitNone(deadline);
    // gRPC takes a time before 1970 for the infinite future.
    server_->Shutdown(absl::ToChronoTime(
        std::clamp(deadline, absl::UnixEpoch(), absl::Now() + kLastCalls)));
  }
  http_.reset();
  MutexLock lock(&mutex_);
  down_ = true;
  changed_.NotifyAll();
}

void LoaderServer::Wait() {
  MutexLock lock(&mutex_);
  while (!down_) changed_.Wait(&mutex_);
}

}  // namespace ballast
