#include "client/ballastctl/doctor.h"

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/ballastctl/diagnosis.h"
#include "common/helper_program.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

uint64_t Limit(int resource) {
  rlimit limit{};
  return getrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0
             ? limit.rlim_max  // RLIM_INFINITY is the largest number
             : 0;
}

bool Loads(std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [](const char* name) {
    // Never closed: NCCL does not survive it.
    return dlopen(name, RTLD_LAZY | RTLD_LOCAL) != nullptr;
  });
}

NodeFacts LookAtNode() {
  NodeFacts node;
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) {
    node.shared_memory = uint64_t{shm.f_blocks} * shm.f_frsize;
    node.shared_memory_free = uint64_t{shm.f_bavail} * shm.f_frsize;
  }
  node.open_files = Limit(RLIMIT_NOFILE);
  node.locked_memory = Limit(RLIMIT_MEMLOCK);
  std::error_code error;
  for (std::filesystem::directory_iterator
           entry("/proc/driver/nvidia/gpus", error),
       end;
       !error && entry != end; entry.increment(error)) {
    ++node.gpus;
  }
  if (node.gpus > 0) {
    node.has_nccl = Loads({"libnccl.so.2"});
    node.has_nvjpeg = Loads({"libnvjpeg.so.13", "libnvjpeg.so.12"});
  }
  node.has_seccomp = CanBoxHelpers();
  timex clock{};
  node.clock_is_kept = adjtimex(&clock) != TIME_ERROR;
  return node;
}

std::vector<ServerFacts> AskServers(
    const std::vector<std::unique_ptr<LoaderClient>>& clients) {
  std::vector<ServerFacts> servers;
  for (const auto& client : clients) {
    ServerFacts& server = servers.emplace_back();
    server.address = client->address();
    auto attach = client->Attach(v1::Role(), v1::Fingerprint());
    server.status = attach.status();
    if (!attach.ok()) continue;
    server.attach = *std::move(attach);
    server.health = client->CheckHealth();
  }
  return servers;
}

// What the first server says of its memory; nothing if it does not.
void AskForMemory(const ServerOption& option, NodeFacts* node) {
  const auto client = MetricsClientOf(option);
  if (!client.ok()) return;
  const auto stats = (*client)->GetStats("ballast_");
  if (!stats.ok()) return;
  for (const v1::MetricFamily& family : stats->families()) {
    if (family.metrics().empty()) continue;
    const auto bytes = static_cast<uint64_t>(family.metrics(0).number());
    if (family.name() == "ballast_stated_memory_bytes") {
      node->server_memory = bytes;
    } else if (family.name() == "ballast_machine_memory_bytes") {
      node->server_machine_memory = bytes;
    }
  }
}

const char* NameOf(Finding::Grade grade) {
  switch (grade) {
    case Finding::Grade::kGood:
      return "ok";
    case Finding::Grade::kWarning:
      return "warning";
    case Finding::Grade::kFault:
      return "fault";
  }
  return "";
}

absl::Status PrintFindings(const std::vector<Finding>& findings, bool json) {
  uint64_t faults = 0;
  for (const Finding& finding : findings) {
    faults += finding.grade == Finding::Grade::kFault ? 1 : 0;
    if (json) {
      const nlohmann::ordered_json line = {{"grade", NameOf(finding.grade)},
                                           {"subject", finding.subject},
                                           {"found", finding.found},
                                           {"advice", finding.advice}};
      std::cout << line.dump(-1, ' ', false,
                             nlohmann::json::error_handler_t::replace)
                << "\n";
      continue;
    }
    std::cout << NameOf(finding.grade) << ": " << finding.subject << ": "
              << finding.found << "\n";
    if (!finding.advice.empty()) std::cout << "  " << finding.advice << "\n";
  }
  std::cout.flush();
  if (!std::cout) {
    return absl::UnavailableError("cannot write to standard output");
  }
  if (faults == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      faults, faults == 1 ? " fault was" : " faults were", " found"));
}

}  // namespace

void AddDoctor(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  auto json = std::make_shared<bool>(false);
  Command* command = line->AddCommand(
      line->program(), "doctor",
      "Looks at this machine and at every server of --server, and says what "
      "to\n"
      "change: memory, limits, clock, seccomp, GPUs, NCCL and nvJPEG;\n"
      "whether each server can be reached from here, serves, and has the\n"
      "configuration and the index of the first. Run it on each node. Exits "
      "with\n"
      "status 1 if a fault was found.",
      "  ballastctl --server 127.0.0.1:7070 doctor\n"
      "  ballastctl --server unix:/run/ballast/a.sock,loader-1:7070 doctor\n"
      "\n"
      "JSON keys, one object a line: grade (\"ok\", \"warning\" or "
      "\"fault\"),\n"
      "subject, found, advice.",
      [server, json]() -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(const auto clients, ClientsOf(*server));
        NodeFacts node = LookAtNode();
        AskForMemory(*server, &node);
        return PrintFindings(Diagnose(node, AskServers(clients)), *json);
      });
  command->AddFlag("--json", json.get(), "one JSON object a line");
}

}  // namespace ballast
