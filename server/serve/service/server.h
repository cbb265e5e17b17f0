#ifndef BALLAST_SERVER_SERVE_SERVICE_SERVER_H_
#define BALLAST_SERVER_SERVE_SERVICE_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/machine.h"
#include "common/mutex.h"
#include "proto/config.pb.h"
#include "server/config/config_loader.h"
#include "server/data/guarded_source.h"
#include "server/delivery/ahead_fetcher.h"
#include "server/delivery/delivery_instruments.h"
#include "server/delivery/file_sample_builder.h"
#include "server/delivery/loader.h"
#include "server/delivery/stall_watchdog.h"
#include "server/job/job_setup.h"
#include "server/serve/http/http_server.h"
#include "server/serve/monitor/balance_board.h"
#include "server/serve/monitor/problem_board.h"
#include "server/serve/monitor/server_state.h"
#include "server/serve/monitor/state_history.h"
#include "server/serve/pull/pull_limits.h"
#include "server/serve/security/server_security.h"
#include "server/serve/service/compared_servers.h"
#include "server/serve/service/listening.h"
#include "server/serve/service/loader_service.h"
#include "server/serve/service/metrics_service.h"
#include "server/serve/service/order_service.h"
#include "server/serve/service/peer_check.h"
#include "server/serve/service/rendezvous.h"
#include "server/serve/service/revision_keeper.h"
#include "server/serve/service/revision_member.h"
#include "server/serve/service/schedule_service.h"

namespace ballast {

// Opens revisions as a job is opened: sources, tokenizer and scheduler.
// builder() is thread-safe.
class OpenedRevisions final : public RevisedJob {
 public:
  // Prepares the sources of an opened revision for reading.
  using Guard = std::function<void(OpenedJob*)>;

  // `own` is the job's own configuration, not owned; it outlives this.
  OpenedRevisions(const OpenedJob* own, Guard guard)
      : RevisedJob(own->scheduler.get()), own_(own), guard_(std::move(guard)) {}

  // Errors: as ParseConfig, ComposeRevision, OpenJob and CheckRevision;
  // INVALID_ARGUMENT (a source in a store gets another index).
  absl::StatusOr<std::unique_ptr<Candidate>> Open(
      const std::string& config, uint64_t first_step) const override;
  void Apply(std::unique_ptr<Candidate> candidate) override;
  size_t revisions() const override { return opened_.size(); }

  // Owned by the loader, once given; must be given before Apply.
  void SetBuilder(RevisedBuilder* builder) { builder_ = builder; }
  const RevisedBuilder* builder() const { return builder_; }

 private:
  struct OpenedCandidate;
  // The last revision, or the job's own configuration.
  const OpenedJob& last() const {
    return opened_.empty() ? *own_ : *opened_.back();
  }

  const OpenedJob* const own_;
  const Guard guard_;
  RevisedBuilder* builder_ = nullptr;
  std::vector<std::unique_ptr<OpenedJob>> opened_;
};

// The parts of a server that read, build and watch. Each needs the parts before
// it.
struct ServerParts {
  std::unique_ptr<BuildInstruments> build;
  std::unique_ptr<ActiveSamples> board;
  std::shared_ptr<Loader> loader;
  FileSampleBuilder* builder = nullptr;  // the loader's, of the job's own
                                         // configuration
  std::unique_ptr<StallWatchdog> stall_watchdog;
  // Null: no source is in a store.
  std::unique_ptr<AheadFetcher> ahead_fetcher;
  std::shared_ptr<BalanceBoard> balance;
};

// How reads are retried, by serve.read_attempts and serve.read_timeout.
ReadPolicy GetReadPolicy(const v1::Serve& serve);

// Makes the job's sources read according to `policy` from now on. `files`
// counts their failures; it is not owned and outlives them.
void GuardSources(const std::shared_ptr<const LiveValue<ReadPolicy>>& policy,
                  FailingFiles* files, OpenedJob* job);

// The memory that a server limits itself to, in bytes (docs/deployment.md,
// "Memory"): serve.memory, `decode_memory`, the memory of row groups and of
// stores where sources have them, and the rest.
uint64_t StatedMemory(const v1::Config& config, uint64_t decode_memory);

// The revisions of a job that can change. Without serve.revisions both are
// null.
struct ServerRevisions {
  std::unique_ptr<RevisionKeeper> keeper;
  OpenedRevisions* opened = nullptr;  // the keeper's
};

// Makes all but `ahead_fetcher` and `balance` for a job that serves `ranks`
// ranks here, with the given instruments, which may be null: new ones. `job`
// and `revisions` must outlive the parts. Errors: as Loader::Create,
// StallWatchdog::Start and RevisionKeeper::Open.
absl::StatusOr<ServerParts> MakeServerParts(
    const OpenedJob& job, uint32_t ranks, const ServerRevisions& revisions,
    std::unique_ptr<BuildInstruments> build = nullptr);

// A loader server: LoaderService, ScheduleService, OrderService and
// MetricsService over gRPC, with health checking (SERVING from Start to Drain,
// unless all work has stalled: NothingGoesOn, or an index has changed since it
// was opened, or the server may lack a change of the job) and reflection, at
// every address of serve.listen, to clients that security admits
// (server_security.h).
// Compares itself with the other servers of the job in the background
// (peer_check.h); while one differs, it logs that, its health is NOT_SERVING
// and it serves no rank. No rank may attach before the server of
// topology.meeting has been compared. Reads that fail or hang are retried
// according to serve.read_attempts and serve.read_timeout; work that takes
// longer than serve.stall_after is logged. With serve.revisions the job can be
// changed while it runs (revision_keeper.h). Thread-safe.
class LoaderServer {
 public:
  // Selects whether the first blocks are built before anything is served.
  enum class Rehearsal { kNone, kFirstBlocks };

  // Opens the job of `config` and serves it; listens only once it can serve.
  // Blocks on the disk. Errors: as OpenJob, Rehearse, ServerSecurity::Load,
  // IdentifyServer and Loader::Create; for the addresses, as CheckListen and
  // StartCallServer.
  static absl::StatusOr<std::unique_ptr<LoaderServer>> Start(
      const LoadedConfig& config, Rehearsal rehearsal = Rehearsal::kNone);

  // As above, with an opened job. `clock` times the comparison with other
  // servers; not owned.
  static absl::StatusOr<std::unique_ptr<LoaderServer>> Start(
      OpenedJob job, Clock* clock = Clock::Real(),
      Rehearsal rehearsal = Rehearsal::kNone);

  // Calls Shutdown().
  ~LoaderServer();

  // The addresses in use, in the order of serve.listen, with the ports that the
  // system chose.
  const std::vector<std::string>& addresses() const {
    return call_server_.addresses;
  }

  // The address of the page and of /metrics, with the port that the system
  // chose; empty without serve.http.
  const std::string& http_address() const { return http_address_; }

  // Adopts from `config` what CheckReload allows (reload.h), which the caller
  // must have called; ignores the rest. Errors: as ServerSecurity::Reload; then
  // nothing has changed. Reload and RenewTls are for one thread at a time.
  absl::Status Reload(const v1::Config& config);
  // See ServerSecurity.
  absl::StatusOr<bool> RenewTls();
  // The server's status lists `fault` as the problem of `subject`, until it is
  // OK: of its last reload, or of its certificate's renewal.
  void NoteProblem(absl::string_view kind, const std::string& subject,
                   const absl::Status& fault);

  // The number of open Pulls. Briefly takes the lock that all streams share, so
  // it returns only while they can make progress.
  uint64_t open_streams() const { return loader_->open_streams(); }

  // Sets the health to NOT_SERVING. Ends open streams with UNAVAILABLE after
  // the block being sent, and ranks that wait in Rendezvous. Refuses new
  // streams. Shuts down when all have ended, or at `deadline`. Further calls
  // wait for the first.
  void Drain(absl::Time deadline);

  // The reason why an address is lost for good (Relay::Settings), and the
  // process had better start anew; OK: none is.
  absl::Status lost() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Drains without waiting: calls that are still open are cancelled.
  void Shutdown() { Drain(absl::InfinitePast()); }

  // Blocks until Drain or Shutdown is done.
  void Wait();

 private:
  using LivePolicy = std::shared_ptr<LiveValue<ReadPolicy>>;
  static ServerState::Sources GetSources(const LoaderServer& server,
                                         const ServerIdentity& identity,
                                         const FileSampleBuilder* builder);

  LoaderServer(std::unique_ptr<OpenedJob> job, ServerRevisions revisions,
               LivePolicy read_policy, ServerSecurity security,
               const ServerIdentity& identity, ServerParts parts);
  // The scheduler of train, with the job's changes.
  const Scheduler* scheduler() const;
  SampleLocation Locate(const v1::StepSchedule& schedule, uint32_t source,
                        uint64_t ordinal) const;
  // topology.meeting, unless that is this server; else empty.
  std::string MeetingElsewhere() const;
  absl::Status Listen(std::vector<ListenSockets> sockets);
  absl::Status StartHistory();
  absl::Status ServeHttp();
  absl::Status ComparePeers(const std::string& own_address, Clock* clock);
  void WatchStandstill();
  void WatchRevisions();
  absl::Status WatchIndexes();
  void UpdateRefusal() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateHealth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Why the health is NOT_SERVING, and what to do; empty: it is SERVING.
  std::string WhyNotServing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Each member needs the members before it.
  const std::unique_ptr<const OpenedJob> opened_;
  const OpenedJob& job_;
  const ServerRevisions revisions_;
  const LivePolicy read_policy_;  // of job_.sources
  ServerSecurity security_;
  const std::unique_ptr<BuildInstruments> build_instruments_;
  PullInstruments pull_instruments_;
  ClientBoard clients_;
  const std::unique_ptr<ActiveSamples> board_;
  const std::shared_ptr<Loader> loader_;
  FileSampleBuilder* const builder_;  // the loader's
  const std::unique_ptr<StallWatchdog> stall_watchdog_;
  std::unique_ptr<AheadFetcher>
      ahead_fetcher_;  // null: no source is in a store
  const std::shared_ptr<BalanceBoard> balance_;
  CallCount calls_;
  const std::unique_ptr<RendezvousForwarder>
      meeting_;  // null: groups meet here
  LoaderServiceImpl loader_service_;
  ScheduleServiceImpl schedule_service_;
  OrderServiceImpl order_service_;
  RevisionServiceImpl revision_service_;
  ProblemBoard problems_;
  const std::shared_ptr<ConnectionPlaces> connections_ =
      std::make_shared<ConnectionPlaces>(
          ConnectionPlaces::OfDescriptors(RaiseDescriptorLimit()));
  const ServerState state_;
  std::unique_ptr<StateHistory> history_;  // null without serve.http
  MetricsServiceImpl metrics_service_;
  CallServer call_server_;  // its `server` is null until Listen
  std::unique_ptr<ComparedServers> compared_;  // null without serve.http
  std::unique_ptr<HttpServer> http_;  // null without serve.http, and once down
  std::string http_address_;
  std::unique_ptr<PeerCheck> peer_check_;  // null where there are no peers
  std::unique_ptr<Ticker> index_watch_;

  mutable Mutex mutex_;
  CondVar changed_;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
  // Why no rank is served: another server differs; this one may lack a change.
  absl::Status peers_agree_ ABSL_GUARDED_BY(mutex_);
  absl::Status knows_revisions_ ABSL_GUARDED_BY(mutex_);
  bool stands_still_ ABSL_GUARDED_BY(mutex_) = false;
  // The message of an index that has changed; empty: none has.
  std::string indexes_changed_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool down_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_SERVICE_SERVER_H_
