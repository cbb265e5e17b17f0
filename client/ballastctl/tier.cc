#include <algorithm>
#include <iostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ballastctl/commands.h"
#include "client/ballastctl/quantities.h"
#include "client/server_finder.h"
#include "common/net_address.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "common/threads.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"

namespace ballast {
namespace {

constexpr char kTierExamples[] =
    "  ballastctl --server loaders.example:7070 tier\n"
    "  ballastctl --server 10.0.0.5:7070,10.0.0.6:7070 tier --interval 10";

constexpr size_t kMostWaits = 8;     // shown
constexpr size_t kAskedAtOnce = 64;  // servers

using Client = v1::GetStatusResponse::Client;

struct RankWait {
  const Client* client;
  const std::string* server;
};

double WantedWorkersOf(const v1::GetStatsResponse& stats) {
  for (const v1::MetricFamily& family : stats.families()) {
    if (family.name() == "ballast_wanted_workers" &&
        family.metrics_size() == 1) {
      return family.metrics(0).number();
    }
  }
  return 0;
}

void AddWaits(std::vector<RankWait> waits, std::string* text) {
  std::sort(waits.begin(), waits.end(),
            [](const RankWait& a, const RankWait& b) {
              return a.client->seconds() > b.client->seconds();
            });
  for (size_t i = 0; i < std::min(waits.size(), kMostWaits); ++i) {
    const auto& [client, server] = waits[i];
    absl::StrAppend(text, SplitWord(client->role().split()),
                    ModuleName(client->role().module()), " rank ",
                    client->role().dp_rank(), " has waited ",
                    SecondsText(client->seconds()), " for ", OneLine(*server),
                    "\n");
  }
  if (waits.size() > kMostWaits) {
    absl::StrAppend(text, "and ", waits.size() - kMostWaits,
                    " more wait, not as long\n");
  }
}

absl::Status PrintTier(const ServerOption& option, absl::Duration interval) {
  BALLAST_ASSIGN_OR_RETURN(const auto given, GetClients(option));
  std::vector<LoaderClient*> clients;
  for (const auto& client : given) clients.push_back(client.get());
  const ServerFinder finder(clients, ResolveBySystem);
  ServerOption each = option;
  std::vector<std::unique_ptr<QueryClient>> queries;
  std::vector<TierServer> servers(finder.size());
  for (size_t i = 0; i < servers.size(); ++i) {
    each.addresses = finder.client(i)->address();
    servers[i].address = each.addresses;
    // A certificate names the name, not its addresses.
    if (const auto address = ParseNetAddress(clients[0]->address());
        address.ok() && !address->IsLocal() &&
        each.security.tls_server_name.empty() &&
        each.addresses != clients[0]->address()) {
      each.security.tls_server_name = address->host;
    }
    BALLAST_ASSIGN_OR_RETURN(auto query, GetQueryClient(each));
    queries.push_back(std::move(query));
  }
  Clock* const clock = Clock::Real();
  const auto take = [&](absl::StatusOr<Snapshot> TierServer::*moment) {
    // A server that does not answer fails alone.
    RunAll(servers.size(), kAskedAtOnce, [&](size_t i) {
      servers[i].*moment =
          TakeSnapshot(queries[i].get(), clock, /*ranks=*/false);
      return absl::OkStatus();
    }).IgnoreError();
  };
  take(&TierServer::before);
  clock->NewSleeper()->Sleep(interval);
  take(&TierServer::now);
  std::cout << TierText(servers);
  return Flush(std::cout);
}

}  // namespace

std::string TierText(const std::vector<TierServer>& servers) {
  Table table({{"server", Table::kLeft},
               {"step"},
               {"streams"},
               {"waiting"},
               {"sent"},
               {"share"},
               {"busy"},
               {"wanted"},
               {"memory"}});
  std::vector<Figures> figures(servers.size());
  double all_sent = 0;
  for (size_t i = 0; i < servers.size(); ++i) {
    if (!servers[i].now.ok()) continue;
    figures[i] =
        GetFigures(*servers[i].now,
                   servers[i].before.ok() ? &*servers[i].before : nullptr);
    if (figures[i].rates.has_value()) all_sent += figures[i].rates->sent_bytes;
  }
  std::vector<RankWait> waits;
  double workers = 0, wanted = 0;
  size_t answer = 0;
  std::string away;
  for (size_t i = 0; i < servers.size(); ++i) {
    if (!servers[i].now.ok()) {
      absl::StrAppend(&away, "no answer: ", OneLine(servers[i].address), ": ",
                      OneLine(servers[i].now.status().message()), "\n");
      continue;
    }
    ++answer;
    const Snapshot& now = *servers[i].now;
    size_t waiting = 0;
    for (const Client& client : now.status.clients()) {
      if (client.state() != Client::STATE_WAITS_FOR_BLOCK) continue;
      ++waiting;
      waits.push_back({&client, &servers[i].address});
    }
    const double sent =
        figures[i].rates.has_value() ? figures[i].rates->sent_bytes : 0;
    const double wants = WantedWorkersOf(now.stats);
    workers += figures[i].workers;
    wanted += wants;
    table.AddRow(
        {servers[i].address,
         now.status.has_current_step() ? absl::StrCat(now.status.current_step())
                                       : "-",
         absl::StrCat(now.status.open_streams()), absl::StrCat(waiting),
         absl::StrCat(BytesText(sent), "/s"),
         all_sent > 0 ? absl::StrFormat("%.0f %%", 100 * sent / all_sent) : "-",
         absl::StrFormat("%.0f of %.0f", figures[i].workers_busy,
                         figures[i].workers),
         absl::StrFormat("%.0f", wants),
         BytesText(now.status.memory_in_use())});
  }
  std::string text = answer > 0 ? table.ToString() : "";
  absl::StrAppend(&text, answer, answer == 1 ? " server" : " servers", ", ",
                  absl::StrFormat("%.0f workers, %.0f wanted", workers, wanted),
                  "\n", away);
  AddWaits(std::move(waits), &text);
  return text;
}

void AddTier(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  auto interval = std::make_shared<double>(2);
  Command* command = line->AddCommand(
      line->program(), "tier",
      "Shows the servers of a tier of loaders: those at each address that the\n"
      "names of --server have. What each sends and its part of it, over the\n"
      "interval, its workers and how many its ranks want, and which rank "
      "waits\n"
      "for which server.",
      kTierExamples, [server, interval]() -> absl::Status {
        return PrintTier(*server, absl::Seconds(*interval));
      });
  command->AddReal("--interval", interval.get(), "seconds, 0.1 to 3600")
      .Between(0.1, 3600.0)
      .TypeName("SECONDS")
      .ShowDefault();
}

}  // namespace ballast
