#ifndef BALLAST_CLIENT_BALLASTCTL_COMMANDS_H_
#define BALLAST_CLIENT_BALLASTCTL_COMMANDS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/ballastctl/quantities.h"
#include "client/ballastctl/query_client.h"
#include "client/failover.h"
#include "client/loader_client.h"
#include "common/clock.h"
#include "common/command_line.h"
#include "proto/balance.pb.h"
#include "proto/job.pb.h"
#include "proto/loader_service.pb.h"
#include "proto/metrics_service.pb.h"
#include "proto/order_service.pb.h"
#include "proto/revision_service.pb.h"
#include "proto/schedule.pb.h"

// The commands of ballastctl, each in a file of its name. main.cc adds them.

namespace ballast {

// ---- status -----------------------------------------------------------------

// `status`: the state of a server and its job.
void AddStatus(CommandLine* line, std::shared_ptr<const ServerOption> server);

struct StatusOptions {
  // Time between the two snapshots that give the rates; 0: one, without rates.
  absl::Duration interval = absl::Seconds(1);
  bool json = false;
};

// Writes the state to `out`, as StatusText or StatusJson. Blocks for the
// interval. Errors: as LoaderClient::Attach, GetStatus, GetStats and
// GetBalance. A server without GetBalance is not an error.
absl::Status PrintStatus(LoaderClient* client, QueryClient* metrics,
                         const StatusOptions& options, Clock* clock,
                         std::ostream* out);

// Labels and texts of `ballastctl status` for what was read of videos; an empty
// label continues the field before. Pure.
std::vector<std::pair<std::string, std::string>> VideoFields(
    const v1::GetStatusResponse::Videos& videos);

// The same for `--json`: its key "videos". Pure.
nlohmann::ordered_json VideosJson(const v1::GetStatusResponse::Videos& videos);

// State of a server and its job.
struct ServerReport {
  std::string address;  // the server's, as given
  bool serving = false;
  v1::AttachResponse attach;
  // Absent for a server without RevisionService.
  std::optional<v1::GetRevisionsResponse> revisions;
  // Absent for a server without MetricsService.
  std::optional<Snapshot> now;
  std::optional<Snapshot> before;  // start of the interval of the rates
};

// Text of at most 80 columns, except for longer words such as paths. Shortened
// lists end with the number of entries left out. Pure.
std::string StatusText(const ServerReport& report);

// One line of JSON with everything; keys: `status --help`. Pure.
std::string StatusJson(const ServerReport& report);

// ---- health -----------------------------------------------------------------

// `health`: whether a server serves, for probes and scripts.
void AddHealth(CommandLine* line, std::shared_ptr<const ServerOption> server);

// The state that AwaitHealth waits for: a server that serves, or, for liveness
// probes, one that answers at all (kAlive).
enum class Wanted { kServing, kAlive };

// Repeats gRPC's health check for up to `wait`, and writes "serving" to `out`
// once the server serves; with kAlive also "not serving" once it answers that.
// Each check uses a new client from `connect`, because a client that could not
// connect waits for seconds before it tries again. `clock` is not owned.
// Errors: as `connect`; as the last LoaderClient::CheckHealth, at once if
// waiting cannot change the error (UNAUTHENTICATED, INVALID_ARGUMENT, ...).
using Connect = std::function<absl::StatusOr<std::unique_ptr<LoaderClient>>()>;
absl::Status AwaitHealth(const Connect& connect, absl::Duration wait,
                         Clock* clock, std::ostream* out,
                         Wanted wanted = Wanted::kServing);

// The fingerprint of a configuration and its indexes, by `ballast-server
// inspect fingerprint` of the program in this one's folder, else in PATH.
// Blocks. Errors: FAILED_PRECONDITION (that program fails, and has said why on
// standard error).
absl::StatusOr<v1::Fingerprint> FingerprintOf(const std::string& config);

// OK if the server has the fingerprint of the configuration `config`, `wanted`.
// Errors: FAILED_PRECONDITION (it serves another job; names both and the first
// key that differs), as LoaderClient::Attach.
absl::Status CheckServes(LoaderClient* client, const std::string& config,
                         const v1::Fingerprint& wanted);

// ---- doctor -----------------------------------------------------------------

// Facts about this machine that `ballastctl doctor` looks at. Sizes in bytes;
// 0: unknown.
struct NodeFacts {
  // /dev/shm.
  uint64_t shared_memory = 0;
  uint64_t shared_memory_free = 0;
  // Memory of the first server: its stated sum, and the limit of its machine.
  uint64_t server_memory = 0;
  uint64_t server_machine_memory = 0;
  // Limits of this process, as high as it may raise them.
  uint64_t open_files = 0;
  uint64_t locked_memory = 0;
  uint64_t gpus = 0;
  // Whether these libraries can be loaded by their usual names.
  bool has_nccl = false;
  bool has_nvjpeg = false;
  // Whether the kernel can filter the system calls of helpers (seccomp).
  bool has_seccomp = false;
  // Whether the kernel reports that a time service keeps the clock.
  bool clock_is_kept = false;
  // The glibc that runs this.
  std::string c_library;
  // Whether the processor has SSE 4.2, which Arrow's code needs on x86-64.
  bool has_sse42 = true;
  // Output of `ballast-server inspect helpers` of this program's folder, and
  // its status of wait(2); -1: there is no such program in the folder.
  int helpers_status = -1;
  std::string helpers;
};

// One server's answer, or the reason why there is none.
struct ServerFacts {
  std::string address;
  absl::Status status;        // of Attach
  v1::AttachResponse attach;  // if `status` is OK
  absl::Status health;
  std::vector<v1::GetStatusResponse::Problem> problems;
};

// One line of the doctor's report.
struct Finding {
  enum class Grade { kGood, kWarning, kFault };
  Grade grade = Grade::kGood;
  std::string subject;  // "shared memory", a server's address
  std::string found;
  std::string advice;  // "" if there is nothing to change
};

// Judges the machine and the servers, which must be of one job. Pure.
std::vector<Finding> Diagnose(const NodeFacts& node,
                              const std::vector<ServerFacts>& servers);

// Adds `doctor`, which looks at this machine and at every server, and says what
// to change.
void AddDoctor(CommandLine* line, std::shared_ptr<const ServerOption> server);

// ---- schedule ---------------------------------------------------------------

// `schedule`: the schedule of steps, as `ballast-server plan` prints it.
void AddSchedule(CommandLine* line, std::shared_ptr<const ServerOption> server);

// Writes steps `first` to `first + steps - 1` to `out`: one line of JSON each,
// or tables. Errors: as LoaderClient::GetSchedule.
absl::Status PrintSchedules(LoaderClient* client, uint64_t first,
                            uint64_t steps, bool json, std::ostream* out,
                            v1::Split split = v1::SPLIT_TRAIN);

// Writes the same from WatchSchedule, each step as it arrives; 0 steps: until
// the server ends the watch. Errors: as ScheduleWatcher::Next.
absl::Status WatchSchedules(LoaderClient* client, uint64_t first,
                            uint64_t steps, bool json, std::ostream* out,
                            v1::Split split = v1::SPLIT_TRAIN);

// ---- samples ----------------------------------------------------------------

// `samples`: the samples of steps and their places.
void AddSamples(CommandLine* line, std::shared_ptr<const ServerOption> server);

// Writes the samples of steps `first` to `first + steps - 1` to `out`, one line
// each. Errors: as QueryClient::GetSamples.
absl::Status PrintSamples(QueryClient* client, uint64_t first, uint64_t steps,
                          v1::Split split, bool json, std::ostream* out);

// ---- mixture ----------------------------------------------------------------

// `mixture`: the number of samples that training has taken from each source.
void AddMixture(CommandLine* line, std::shared_ptr<const ServerOption> server);

// One JSON object, or a table with a line above it.
std::string MixtureJson(const v1::GetMixtureResponse& mixture);
std::string MixtureTable(const v1::GetMixtureResponse& mixture);

// ---- pull -------------------------------------------------------------------

// `pull`: a rank's blocks, verified, without a GPU.
void AddPull(CommandLine* line, std::shared_ptr<const ServerOption> server);

struct PullOptions {
  v1::Role role;
  uint64_t step = 0;
  uint64_t steps = 1;
  FailoverOptions failover;
  bool json = false;
};

// Pulls the role's blocks of the steps from `servers` (at least one; the next
// when one fails), checks each against its checksum, its layout and the
// schedule, and writes a line for each to `out`, the same on every run except
// for keys that end in `_ms`. Errors: as AttachAll, ScheduleSource and
// BatchStream; OUT_OF_RANGE if the data end before the first step (if they end
// later, the blocks up to the end are pulled and a line is logged); DATA_LOSS
// for a block that differs from the schedule; UNAVAILABLE for one that was
// overwritten while it was checked.
absl::Status PullBatches(absl::Span<LoaderClient* const> servers,
                         const PullOptions& options, Clock* clock,
                         std::ostream* out);

// ---- fit-cost ---------------------------------------------------------------

// `fit-cost`: cost coefficients from the times that ranks reported.
void AddFitCost(CommandLine* line, std::shared_ptr<const ServerOption> server);

struct FitCostOptions {
  v1::Module module = v1::MODULE_UNSPECIFIED;  // unspecified: every module
  uint64_t from_step = 0;
  bool json = false;
};

// Fits every module for which the server keeps enough timings. Uses the
// schedules of the timings' steps. Writes one line of JSON (keys: the command's
// --help), or a table, warnings and the lines for the configuration. Errors: as
// LoaderClient and AddObservations; NOT_FOUND (no such timing);
// INVALID_ARGUMENT (too few timings for every module).
absl::Status PrintCostFit(LoaderClient* client, const FitCostOptions& options,
                          std::ostream* out);

// ---- balance ----------------------------------------------------------------

// `balance`: the ranks' load and how even it is.
void AddBalance(CommandLine* line, std::shared_ptr<const ServerOption> server);

struct BalanceOptions {
  std::optional<uint64_t> step;  // absent: training's current one
  uint64_t steps = 1;            // with watch, 0: without end
  bool ranks = false;
  bool watch = false;
  bool json = false;
};

// Writes a table per step, or one JSON object per line (keys: the command's
// --help). Errors: as QueryClient.
absl::Status PrintBalance(QueryClient* client, const BalanceOptions& options,
                          std::ostream* out);

// A table of one step: a line per module, and one per rank if `balance` has
// ranks.
std::string BalanceTable(const v1::StepBalance& balance);
// One line of JSON.
std::string BalanceJson(const v1::StepBalance& balance);

// ---- change -----------------------------------------------------------------

// `change`: offers a configuration to a running job, from a step on.
void AddChange(CommandLine* line, std::shared_ptr<const ServerOption> server);

// The agreed change, or with a dry run the offered one: as one JSON object, or
// as lines of text.
std::string ChangeJson(const v1::ChangeResponse& change);
std::string ChangeText(const v1::ChangeResponse& change);

// ---- metrics ----------------------------------------------------------------

// `metrics`: a server's instruments.
void AddMetrics(CommandLine* line, std::shared_ptr<const ServerOption> server);

// Writes the instruments whose names begin with `prefix`, as a table or one
// JSON object (keys: the command's --help). Errors: as QueryClient::GetStats.
absl::Status PrintMetrics(QueryClient* client, const std::string& prefix,
                          bool json, std::ostream* out);

// A table with a line per metric; metrics with labels are listed below the name
// of their family. Histograms show the number of times and their quantiles.
std::string MetricsTable(const v1::GetStatsResponse& stats);

// ---- tier -------------------------------------------------------------------

// `tier`: the servers of a tier of loaders.
void AddTier(CommandLine* line, std::shared_ptr<const ServerOption> server);

// A server of a tier at two moments, or why it did not answer.
struct TierServer {
  std::string address;
  absl::StatusOr<Snapshot> before = absl::UnknownError("not asked");
  absl::StatusOr<Snapshot> now = absl::UnknownError("not asked");
};

// A table with a line for each server that answers, their sums, those that do
// not, and the ranks that wait, the longest first. Pure.
std::string TierText(const std::vector<TierServer>& servers);

// ---- top --------------------------------------------------------------------

// `top`: a live view of a server.
void AddTop(CommandLine* line, std::shared_ptr<const ServerOption> server);

// The view of a server, with its balance by rank: lines that fit `size`. Rates
// are since `before`; "-" without it. Pure.
std::string TopView(const Snapshot& now, const Snapshot* before, ViewSize size);

// The view with colours of a terminal: problems red, headings bold, titles of
// tables dim. Pure.
std::string ColourView(absl::string_view view);

// The view while `server` does not answer. Pure.
std::string OutageView(absl::string_view server, absl::Duration gone,
                       absl::string_view reason, ViewSize size);

struct TopOptions {
  std::string server;  // shown while it does not answer
  absl::Duration interval = absl::Seconds(2);
  uint64_t rounds = 0;   // views; 0: without end
  bool clears = false;   // clears the screen before each view
  bool colours = false;  // ColourView of each view
  // Called before each view, since a terminal's size changes.
  std::function<ViewSize()> size = [] { return ViewSize(); };
};

// Shows the snapshot from `take` every interval. A server that is away at first
// is an error, as is any failure other than of the connection. If the server
// goes away later (UNAVAILABLE, DEADLINE_EXCEEDED), it is asked until it is
// back.
absl::Status RunTop(const std::function<absl::StatusOr<Snapshot>()>& take,
                    const TopOptions& options, Clock* clock, std::ostream* out);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_COMMANDS_H_
