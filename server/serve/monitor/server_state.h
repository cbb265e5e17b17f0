#ifndef BALLAST_SERVER_SERVE_MONITOR_SERVER_STATE_H_
#define BALLAST_SERVER_SERVE_MONITOR_SERVER_STATE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/instruments.h"
#include "common/mutex.h"
#include "proto/metrics_service.pb.h"
#include "server/delivery/ahead_fetcher.h"
#include "server/delivery/delivery_instruments.h"
#include "server/delivery/file_sample_builder.h"
#include "server/delivery/loader.h"
#include "server/delivery/stall_watchdog.h"
#include "server/files/storage.h"
#include "server/serve/monitor/balance_board.h"
#include "server/serve/monitor/problem_board.h"
#include "server/serve/monitor/timing_store.h"
#include "server/serve/relay/connection_places.h"

namespace ballast {

// The Pulls of a server and the state of each. Thread-safe.
class ClientBoard {
 public:
  using State = v1::GetStatusResponse::Client::State;

  struct Client {
    v1::Role role;
    std::string peer;
    // The block that the client got last or is getting; before the first block,
    // the one that it requested.
    uint64_t step = 0;
    uint32_t micro_batch = 0;
    State state = v1::GetStatusResponse::Client::STATE_HOLDS_BACK;
    std::chrono::steady_clock::time_point since;
    uint64_t held_bytes = 0;
    bool shared_memory = false;
    uint64_t blocks = 0;
  };

  // Each has its own lock, so that clients do not wait for each other.
  struct Place {
    mutable Mutex mutex;
    Client client ABSL_GUARDED_BY(mutex);
  };

  // Keeps a client on the board until it is destroyed. For one thread at a
  // time.
  class Entry {
   public:
    // `board` must outlive this.
    Entry(ClientBoard* board, Client client);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    // Replaces the board's record of the client.
    void Set(const Client& client);

   private:
    ClientBoard* const board_;
    std::list<Place>::iterator place_;
  };

  std::vector<Client> List() const;

 private:
  mutable Mutex mutex_;
  std::list<Place> places_ ABSL_GUARDED_BY(mutex_);
};

// At most `most` clients for GetStatus: largest lag after the leading client of
// their split first; among equals, longest in their state first.
std::vector<v1::GetStatusResponse::Client> ByLag(
    const std::vector<ClientBoard::Client>& clients,
    std::chrono::steady_clock::time_point now, size_t most);

// Collects metric families. Thread-compatible.
//
//   FamilyList list;
//   list.Begin("ballast_sent_bytes_total", kCounter, "Bytes of blocks sent.");
//   list.Add(12, {{"way", "stream"}});
class FamilyList {
 public:
  using Labels = std::vector<std::pair<absl::string_view, std::string>>;
  static constexpr auto kCounter = v1::MetricFamily::TYPE_COUNTER;
  static constexpr auto kGauge = v1::MetricFamily::TYPE_GAUGE;
  static constexpr auto kHistogram = v1::MetricFamily::TYPE_HISTOGRAM;

  // Starts the family `name`: metrics added from now on belong to it.
  void Begin(absl::string_view name, v1::MetricFamily::Type type,
             absl::string_view help);
  void Add(double number, const Labels& labels = {});
  void Add(const DurationHistogram::Snapshot& histogram,
           const Labels& labels = {});

  // The families that have metrics, in the order of their Begin.
  std::vector<v1::MetricFamily> Take() &&;

 private:
  v1::MetricFamily::Metric* AddMetric(const Labels& labels);

  std::vector<v1::MetricFamily> families_;
};

// A server's state, for MetricsService, /metrics and the page. Thread-safe.
// Holds each lock that it needs only for a moment.
class ServerState {
 public:
  // Limit of clients that Status lists.
  static constexpr size_t kListed = 1024;
  // Limit of problems that Status lists.
  static constexpr size_t kMostProblems = 64;
  // Connections that were refused within this time are a problem.
  static constexpr absl::Duration kRefusedLately = absl::Minutes(1);
  // A certificate that ends within this time is a problem.
  static constexpr absl::Duration kRenewBefore = absl::Hours(7 * 24);

  // The objects that the state is read from. Nothing is owned; all must outlive
  // this.
  struct Sources {
    std::string name;  // the server's name for itself
    const Loader* loader = nullptr;
    const FileSampleBuilder* builder = nullptr;
    const Scheduler* scheduler = nullptr;  // of train; null: it never changes
    const StallWatchdog* stalls = nullptr;
    const ClientBoard* clients = nullptr;
    const TimingStore* timings = nullptr;
    const BalanceBoard* balance = nullptr;
    const BuildInstruments* build = nullptr;
    const PullInstruments* pull = nullptr;
    // Null if no source is in a store.
    const Storage* storage = nullptr;
    const AheadFetcher* ahead_fetcher = nullptr;
    uint64_t memory = 0;         // serve.memory
    uint64_t stated_memory = 0;  // StatedMemory of the server's parts
    Clock* clock = nullptr;      // times the stalls
    const ProblemBoard* problems = nullptr;
    const ConnectionPlaces* connections = nullptr;
    // serve.arena is not `off`, and the server listens at a Unix socket.
    bool wants_shared_memory = false;
    // When the certificate in use ends, and its file; null without TLS.
    std::function<std::pair<absl::Time, std::string>()> certificate = nullptr;
    // The sources whose images may pass through encoded.
    std::vector<v1::GetStatusResponse::EncodedImages> encoded_images = {};
    std::vector<v1::LeftOut> left_out = {};
    std::string costs = "";  // GetStatusResponse.costs
  };
  explicit ServerState(Sources sources);

  // The server's name for itself.
  const std::string& name() const { return sources_.name; }

  v1::GetStatusResponse Status() const;

  // Every family of docs/metrics.md, in its order, except families that have no
  // metrics now.
  std::vector<v1::MetricFamily> Metrics() const;

 private:
  void AddBadData(v1::GetStatusResponse* status) const;
  // The conditions that need a person, as GetStatusResponse.problems.
  Problems FindProblems(const std::vector<ClientBoard::Client>& clients) const;
  void AddStorage(v1::GetStatusResponse* status) const;
  void AddVideos(v1::GetStatusResponse* status) const;

  const Sources sources_;
  const std::chrono::steady_clock::time_point start_;
  const double start_seconds_;  // since 1970
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_MONITOR_SERVER_STATE_H_
