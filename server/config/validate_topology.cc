#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/schedule/module.h"
#include "server/config/config_validate.h"
#include "server/config/topology.h"
#include "server/files/path_pattern.h"

// Checks of a topology's modules and servers.

namespace ballast {
namespace {

constexpr int kNoServer = -1;

void CheckModules(const v1::Topology& topology, KeyReport* report) {
  for (const auto& [name, module] : topology.modules()) {
    const std::string key = ChildKey("topology.modules", Shown(name));
    if (!ParseModule(name).has_value()) {
      report->AddFault(key, absl::StrCat("unknown module; ",
                                         SuggestName(name, ModuleNames())));
      continue;
    }
    const std::string tp = ChildKey(key, "tp");
    if (!report->HasFaultWithin(key) && !std::has_single_bit(module.tp())) {
      report->AddFault(
          tp, absl::StrCat("found ", module.tp(), "; wanted a power of two"));
    }
  }
}

void CheckAddress(const v1::Topology::Server& server, const std::string& key,
                  absl::flat_hash_map<std::string, int>* addresses, int index,
                  KeyReport* report) {
  if (report->IsFaulty(key)) return;
  const auto address = ParseConfiguredAddress(server.address());
  if (!address.ok()) {
    return report->AddFault(key, std::string(address.status().message()));
  }
  if (!address->is_unix() && address->port == 0) {
    return report->AddFault(key, absl::StrCat("found ", Shown(server.address()),
                                              "; wanted a port that clients "
                                              "can connect to, from 1"));
  }
  const auto [first, is_new] = addresses->emplace(server.address(), index);
  if (!is_new) {
    report->AddFault(
        key, absl::StrCat("found ", Shown(server.address()),
                          ", which topology.servers[", first->second,
                          "] has too; wanted another one for each server"));
  }
}

// The server that reads for each rank of one module.
class Coverage {
 public:
  Coverage(std::string module, uint32_t dp)
      : module_(std::move(module)), servers_(dp, kNoServer) {}

  // Adds the ranks of the server at `index`, written at `key`.
  void Add(const std::string& text, const std::string& key, int index,
           KeyReport* report) {
    const auto ranks = ParseRankList(text);
    if (!ranks.ok()) {
      is_certain_ = false;
      return report->AddFault(
          key, absl::StrCat("found ", Shown(text), "; wanted ranks, as 0-3,6: ",
                            std::string(ranks.status().message())));
    }
    std::vector<uint32_t> outside;
    std::map<int, std::vector<uint32_t>> taken;
    for (const uint32_t rank : *ranks) {
      if (rank >= servers_.size()) {
        outside.push_back(rank);
      } else if (servers_[rank] != kNoServer) {
        taken[servers_[rank]].push_back(rank);
      } else {
        servers_[rank] = index;
      }
    }
    if (!outside.empty()) {
      report->AddFault(
          key, absl::StrCat("found ", Ranks(outside), " outside ", module_,
                            "; wanted ranks of 0 to ", servers_.size() - 1));
    }
    for (const auto& [other, shared] : taken) {
      report->AddFault(
          key,
          absl::StrCat("found ", Ranks(shared), ", which topology.servers[",
                       other, "] has too; wanted each rank at one server"));
    }
  }

  void ReportUnassigned(KeyReport* report) const {
    std::vector<uint32_t> unassigned;
    for (uint32_t rank = 0; rank < servers_.size(); ++rank) {
      if (servers_[rank] == kNoServer) unassigned.push_back(rank);
    }
    if (unassigned.empty() || !is_certain_) return;
    report->AddFault(
        "topology.servers",
        absl::StrCat("found no server for ", module_, " ", Ranks(unassigned),
                     "; wanted each rank at one server"));
  }

 private:
  static std::string Ranks(const std::vector<uint32_t>& ranks) {
    return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                        Shown(FormatRankList(ranks)));
  }

  std::string module_;
  std::vector<int> servers_;
  // True if every server's list could be parsed.
  bool is_certain_ = true;
};

void CheckServers(const v1::Topology& topology, KeyReport* report) {
  std::map<std::string, Coverage> modules;
  const bool has_modules = !report->HasFaultWithin("topology.modules");
  if (has_modules) {
    for (const auto& [name, module] : topology.modules()) {
      modules.try_emplace(name, name, module.dp());
    }
  }
  absl::flat_hash_map<std::string, int> addresses;
  bool is_certain = has_modules;
  for (int i = 0; i < topology.servers_size(); ++i) {
    const v1::Topology::Server& server = topology.servers(i);
    const std::string key = ItemKey("topology.servers", i);
    if (report->IsFaulty(key)) {
      is_certain = false;
      continue;
    }
    CheckAddress(server, ChildKey(key, "address"), &addresses, i, report);
    const std::string ranks_key = ChildKey(key, "ranks");
    if (report->HasFaultWithin(ranks_key)) is_certain = false;
    // Sorted by name, since the map has no order.
    const std::map<std::string, std::string> ranks(server.ranks().begin(),
                                                   server.ranks().end());
    for (const auto& [name, text] : ranks) {
      const std::string entry = ChildKey(ranks_key, Shown(name));
      const auto module = modules.find(name);
      if (!ParseModule(name).has_value()) {
        is_certain = false;
        report->AddFault(entry, absl::StrCat("unknown module; ",
                                             SuggestName(name, ModuleNames())));
      } else if (has_modules && module == modules.end()) {
        report->AddFault(entry,
                         "found ranks of a module that topology.modules does "
                         "not have; wanted only configured modules");
      } else if (has_modules && !report->IsFaulty(entry)) {
        module->second.Add(text, entry, i, report);
      }
    }
  }
  if (!is_certain) return;
  for (const auto& [name, coverage] : modules) {
    coverage.ReportUnassigned(report);
  }
}

}  // namespace

void ValidateTopology(const v1::Config& config, KeyReport* report) {
  if (report->IsFaulty("topology")) return;
  CheckModules(config.topology(), report);
  // The default server is correct by construction.
  if (report->Has("topology.servers") &&
      !report->IsFaulty("topology.servers")) {
    CheckServers(config.topology(), report);
  }
  if (report->Has("topology.meeting") &&
      !report->IsFaulty("topology.meeting")) {
    const auto meeting = ParseConfiguredAddress(config.topology().meeting());
    if (!meeting.ok()) {
      report->AddFault("topology.meeting",
                       std::string(meeting.status().message()));
    }
  }
}

}  // namespace ballast
