#include "server/config/topology.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "server/config/rank_list.h"

namespace ballast {
namespace {

const v1::Topology::Module* FindSizes(const v1::Config& config,
                                      v1::Module module) {
  const auto& modules = config.topology().modules();
  const auto found = modules.find(std::string(ModuleName(module)));
  return found == modules.end() ? nullptr : &found->second;
}

const google::protobuf::FieldDescriptor* CoefficientsField(v1::Module module) {
  return v1::Balance::Cost::descriptor()->FindFieldByName(
      std::string(ModuleName(module)));
}

}  // namespace

uint32_t Grid(const v1::Topology& topology) {
  uint32_t grid = 1;
  for (const auto& [name, module] : topology.modules()) {
    grid = std::lcm(grid, std::max(module.dp(), 1u));
  }
  return grid;
}

std::vector<v1::Module> Modules(const v1::Config& config) {
  std::vector<v1::Module> modules;
  for (const ModuleKind& kind : kModuleKinds) {
    if (FindSizes(config, kind.module) != nullptr) {
      modules.push_back(kind.module);
    }
  }
  return modules;
}

const v1::Topology::Module* FindLanguage(const v1::Config& config) {
  return FindSizes(config, v1::MODULE_LANGUAGE);
}

const v1::Balance::Coefficients& GetCoefficients(const v1::Balance::Cost& cost,
                                                 v1::Module module) {
  return static_cast<const v1::Balance::Coefficients&>(
      cost.GetReflection()->GetMessage(cost, CoefficientsField(module)));
}

v1::Balance::Coefficients* MutableCoefficients(v1::Balance::Cost* cost,
                                               v1::Module module) {
  return static_cast<v1::Balance::Coefficients*>(
      cost->GetReflection()->MutableMessage(cost, CoefficientsField(module)));
}

uint32_t DpSize(const v1::Config& config, v1::Module module) {
  const v1::Topology::Module* sizes = FindSizes(config, module);
  return sizes == nullptr ? 0 : sizes->dp();
}

uint32_t PpSize(const v1::Config& config, v1::Module module) {
  const v1::Topology::Module* sizes = FindSizes(config, module);
  return sizes == nullptr ? 0 : sizes->pp();
}

uint32_t PackAlign(const v1::Config& config, v1::Module module) {
  const v1::Topology::Module* sizes = FindSizes(config, module);
  if (sizes == nullptr) return 1;
  if (config.packing().align() != 0) return config.packing().align();
  const uint32_t context = sizes->cp() > 1 ? 2 * sizes->cp() : 1;
  const uint32_t tensor = sizes->sequence_parallel() ? sizes->tp() : 1;
  return context * tensor;
}

absl::StatusOr<ServerOfRank> FindServerOfRank(const v1::Config& config,
                                              v1::Module module) {
  const auto& servers = config.topology().servers();
  if (servers.size() < 2) return ServerOfRank();
  const std::string name(ModuleName(module));
  ServerOfRank server_of_rank(DpSize(config, module), 0);
  for (int s = 0; s < servers.size(); ++s) {
    const auto found = servers[s].ranks().find(name);
    if (found == servers[s].ranks().end()) continue;
    BALLAST_ASSIGN_OR_RETURN(const std::vector<uint32_t> ranks,
                             ParseRankList(found->second));
    for (const uint32_t rank : ranks) {
      if (rank >= server_of_rank.size()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "topology.servers[", s, "].ranks.", name, ": found rank ", rank,
            "; wanted ranks below ", server_of_rank.size()));
      }
      server_of_rank[rank] = s;
    }
  }
  return server_of_rank;
}

absl::StatusOr<size_t> FindServer(const v1::Config& config,
                                  const std::vector<std::string>& listen) {
  const auto& servers = config.topology().servers();
  if (servers.size() == 1) return 0;
  std::optional<size_t> match;
  std::vector<std::string> addresses;
  for (int i = 0; i < servers.size(); ++i) {
    const std::string& address = servers[i].address();
    addresses.push_back(address);
    if (std::find(listen.begin(), listen.end(), address) == listen.end()) {
      continue;
    }
    if (match.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("this server listens on ", absl::StrJoin(listen, ", "),
                       ", which is both topology.servers[", *match, "] and [",
                       i, "]; wanted the address of one of them"));
    }
    match = i;
  }
  if (!match.has_value()) {
    return absl::NotFoundError(absl::StrCat(
        "this server listens on ", absl::StrJoin(listen, ", "),
        ", which is none of topology.servers (", absl::StrJoin(addresses, ", "),
        "); wanted the address of one of them"));
  }
  return *match;
}

}  // namespace ballast
