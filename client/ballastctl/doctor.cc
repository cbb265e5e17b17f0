#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <limits>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/ballastctl/commands.h"
#include "common/helper_program.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "proto/schedule/fingerprint.h"

namespace ballast {
namespace {

using Grade = Finding::Grade;

constexpr uint64_t kGiB = uint64_t{1} << 30;
// A server keeps data files open, and a connection for each rank.
constexpr uint64_t kEnoughFiles = 65536;

std::string Size(uint64_t bytes) {
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / kGiB);
}

Finding SharedMemory(const NodeFacts& node) {
  if (node.shared_memory == 0) {
    return {Grade::kFault, "shared memory", "there is no /dev/shm",
            "mount a tmpfs there, or name one in serve.arena; otherwise blocks "
            "go over the stream"};
  }
  const std::string found =
      absl::StrCat("/dev/shm has ", Size(node.shared_memory), ", ",
                   Size(node.shared_memory_free), " free");
  // Containers start with 64 MiB.
  if (node.shared_memory < kGiB || node.shared_memory_free < kGiB) {
    return {
        Grade::kWarning, "shared memory", found,
        "serve.memory must fit: start the container with --shm-size 16g, or "
        "delete what nobody uses there"};
  }
  return {Grade::kGood, "shared memory", found, ""};
}

Finding ServerMemory(const NodeFacts& node) {
  const std::string found =
      absl::StrCat("the first server keeps to ", Size(node.server_memory),
                   " and may use ", Size(node.server_machine_memory));
  if (node.server_memory <= node.server_machine_memory) {
    return {Grade::kGood, "server memory", found, ""};
  }
  return {
      Grade::kWarning, "server memory", found,
      "lower serve.memory or serve.decode_memory, or raise the limit of its "
      "container or cgroup (docs/deployment.md, \"Memory\")"};
}

Finding OpenFiles(const NodeFacts& node) {
  const std::string found = absl::StrCat(node.open_files, " files may be open");
  if (node.open_files >= kEnoughFiles) {
    return {Grade::kGood, "open files", found, ""};
  }
  return {Grade::kWarning, "open files", found,
          absl::StrCat("raise the limit to ", kEnoughFiles,
                       ": ulimit -Hn, LimitNOFILE= of the systemd unit")};
}

// Blocks in shared memory are pinned, which CUDA does without the limit; NCCL's
// network transports register memory under it.
Finding LockedMemory(const NodeFacts& node) {
  const bool unlimited =
      node.locked_memory == std::numeric_limits<uint64_t>::max();
  const std::string found = unlimited ? "unlimited" : Size(node.locked_memory);
  if (node.gpus == 0 || unlimited || node.locked_memory >= kGiB) {
    return {Grade::kGood, "locked memory", found, ""};
  }
  return {Grade::kWarning, "locked memory", found,
          "NCCL over InfiniBand needs more: ulimit -l unlimited"};
}

void Gpus(const NodeFacts& node, std::vector<Finding>* findings) {
  if (node.gpus == 0) {
    findings->push_back(
        {Grade::kGood, "GPU", "none: trainers here take device=\"cpu\"", ""});
    return;
  }
  findings->push_back(
      {Grade::kGood, "GPU", absl::StrCat(node.gpus, " in this machine"), ""});
  findings->push_back(
      node.has_nccl
          ? Finding{Grade::kGood, "NCCL", "libnccl.so.2 can be loaded", ""}
          : Finding{Grade::kWarning, "NCCL", "the system has no libnccl.so.2",
                    "PyTorch brings its own; other trainers need the package "
                    "libnccl2"});
  findings->push_back(
      node.has_nvjpeg
          ? Finding{Grade::kGood, "nvJPEG", "can be loaded", ""}
          : Finding{Grade::kWarning, "nvJPEG", "the system has none",
                    "only model.decode: device needs it: pip install "
                    "nvidia-nvjpeg, or the CUDA toolkit"});
}

Finding ClockFinding(const NodeFacts& node) {
  if (node.clock_is_kept) {
    return {Grade::kGood, "clock", "kept by a time service", ""};
  }
  return {Grade::kWarning, "clock", "no time service keeps it",
          "TLS certificates and the times of logs depend on it: run chrony or "
          "systemd-timesyncd on the host"};
}

Finding Helpers(const NodeFacts& node) {
  if (node.has_seccomp) {
    return {Grade::kGood, "helpers", "the kernel filters their system calls",
            ""};
  }
  return {Grade::kWarning, "helpers",
          "the kernel has no seccomp: what decodes videos and SentencePiece "
          "text runs with the server's files and network",
          "use a kernel with CONFIG_SECCOMP_FILTER, or trust the data; a "
          "container's seccomp profile must admit seccomp(2) and prctl(2)"};
}

Finding Processor(const NodeFacts& node) {
  if (node.has_sse42) {
    return {Grade::kGood, "processor", "has what the programs are made of", ""};
  }
  return {Grade::kFault, "processor",
          "lacks SSE 4.2: a server ends with SIGILL when it reads Parquet or "
          "an object store",
          "in a virtual machine, give it a newer model of processor "
          "(qemu: -cpu host); otherwise build with --config=noarrow"};
}

// What the loader says of a program that it cannot start.
std::string AdviceOnLoading(const std::string& line) {
  if (line.find("' not found") != line.npos) {
    return "this system's C or C++ library is older than the program: take the "
           "wheel or the tarball, which need glibc 2.34 (RHEL 9, Ubuntu 22.04, "
           "Debian 12), or a newer system";
  }
  return "install the wheel, the tarball or the package whole: the first two "
         "bring their libraries, and find them only in their own folders; the "
         "package is of Debian 12 alone";
}

// The helpers, from the server's report on them.
void HelperPrograms(const NodeFacts& node, std::vector<Finding>* findings) {
  constexpr char kSubject[] = "video, audio, SentencePiece";
  if (node.helpers_status == -1) {
    findings->push_back({Grade::kGood, kSubject,
                         "no ballast-server in this program's folder: checked "
                         "no server of this machine",
                         ""});
    return;
  }
  std::string last;
  size_t read = 0;
  for (const absl::string_view line :
       absl::StrSplit(node.helpers, '\n', absl::SkipEmpty())) {
    const auto helper =
        nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
    if (!helper.is_object() || !helper.contains("reads")) {
      last = std::string(line);
      continue;
    }
    ++read;
    const std::string reads = helper.value("reads", "");
    if (helper.contains("error")) {
      findings->push_back({Grade::kFault, reads, helper.value("error", ""),
                           AdviceOnLoading(last)});
    } else {
      const std::string version = helper.value("version", "");
      findings->push_back(
          {Grade::kGood, reads,
           absl::StrCat("can be read here", version.empty() ? "" : ", by ",
                        version),
           ""});
    }
  }
  if (read > 0) return;
  const bool is_foreign = WIFSIGNALED(node.helpers_status) &&
                          WTERMSIG(node.helpers_status) == SIGILL;
  findings->push_back(
      {Grade::kFault, kSubject,
       absl::StrCat("ballast-server cannot run here: ",
                    is_foreign ? "the processor lacks an instruction (SIGILL)"
                    : last.empty() ? "it said nothing"
                                   : last),
       is_foreign
           ? "take a machine with a newer processor, or build for this one"
           : AdviceOnLoading(last)});
}

Finding Server(const ServerFacts& server, const ServerFacts* first) {
  const std::string subject = absl::StrCat("server ", server.address);
  if (!server.status.ok()) {
    return {Grade::kFault, subject, std::string(server.status.message()),
            "start it, or correct the address; is the port open between the "
            "nodes?"};
  }
  if (!server.attach.refusal().empty()) {
    return {Grade::kFault, subject, server.attach.refusal(),
            "its log says since when"};
  }
  if (!server.health.ok()) {
    return {Grade::kFault, subject, std::string(server.health.message()),
            "ballastctl status says what it waits for"};
  }
  if (first != nullptr) {
    const absl::Status same =
        CheckSameFingerprint(first->attach.fingerprint(), first->address,
                             server.attach.fingerprint(), server.address);
    if (!same.ok()) {
      return {Grade::kFault, subject, std::string(same.message()),
              "give all servers the same configuration, data and index, and "
              "restart those that differ"};
    }
  }
  return {
      Grade::kGood, subject,
      absl::StrCat("serves, fingerprint ", server.attach.fingerprint().hash()),
      ""};
}

// Adds the problems of a server's status.
void AddProblems(const ServerFacts& server, std::vector<Finding>* findings) {
  for (const v1::GetStatusResponse::Problem& problem : server.problems) {
    const bool holds_up =
        problem.kind() == "not_serving" || problem.kind() == "reads_fail";
    findings->push_back(
        {holds_up ? Grade::kFault : Grade::kWarning,
         absl::StrCat("server ", server.address, " (", problem.kind(), ")"),
         problem.subject().empty()
             ? problem.text()
             : absl::StrCat(problem.subject(), ": ", problem.text()),
         ""});
  }
}

}  // namespace

std::vector<Finding> Diagnose(const NodeFacts& node,
                              const std::vector<ServerFacts>& servers) {
  std::vector<Finding> findings = {
      SharedMemory(node),
      OpenFiles(node),
      LockedMemory(node),
      ClockFinding(node),
      Helpers(node),
      Processor(node),
      {Grade::kGood, "C library", absl::StrCat("glibc ", node.c_library), ""}};
  HelperPrograms(node, &findings);
  if (node.server_memory != 0 && node.server_machine_memory != 0) {
    findings.push_back(ServerMemory(node));
  }
  Gpus(node, &findings);
  const ServerFacts* first = nullptr;
  for (const ServerFacts& server : servers) {
    findings.push_back(Server(server, first));
    AddProblems(server, &findings);
    if (first == nullptr && server.status.ok()) first = &server;
  }
  return findings;
}

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

// Runs the server in this program's folder, and fills in its report on
// helpers.
void AskForHelpers(NodeFacts* node) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string server = self.parent_path() / "ballast-server";
  if (error || access(server.c_str(), X_OK) != 0) return;
  // As a variable, whatever its name holds.
  setenv("BALLAST_DOCTOR_SERVER", server.c_str(), 1);
  FILE* const pipe =
      popen("exec \"$BALLAST_DOCTOR_SERVER\" inspect helpers 2>&1", "re");
  if (pipe == nullptr) return;
  char part[4096];
  size_t got;
  while ((got = fread(part, 1, sizeof(part), pipe)) > 0) {
    if (node->helpers.size() < sizeof(part) * 16)
      node->helpers.append(part, got);
  }
  node->helpers_status = pclose(pipe);
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
  node.c_library = gnu_get_libc_version();
#if defined(__x86_64__)
  node.has_sse42 = __builtin_cpu_supports("sse4.2") != 0;
#endif
  AskForHelpers(&node);
  timex clock{};
  node.clock_is_kept = adjtimex(&clock) != TIME_ERROR;
  return node;
}

absl::StatusOr<std::vector<ServerFacts>> AskServers(
    const ServerOption& option) {
  BALLAST_ASSIGN_OR_RETURN(const auto clients, GetClients(option));
  BALLAST_ASSIGN_OR_RETURN(const auto queries, GetQueryClients(option));
  std::vector<ServerFacts> servers;
  for (size_t i = 0; i < clients.size(); ++i) {
    const auto& client = clients[i];
    ServerFacts& server = servers.emplace_back();
    server.address = client->address();
    auto attach = client->Attach(v1::Role(), v1::Fingerprint());
    server.status = attach.status();
    if (!attach.ok()) continue;
    server.attach = *std::move(attach);
    server.health = client->CheckHealth();
    // A server without MetricsService says nothing of itself.
    if (const auto status = queries[i]->GetStatus(); status.ok()) {
      server.problems.assign(status->problems().begin(),
                             status->problems().end());
    }
  }
  return servers;
}

// Fills in the memory that the first server reports; leaves 0 without an
// answer.
void AskForMemory(const ServerOption& option, NodeFacts* node) {
  const auto client = GetQueryClient(option);
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

const char* GetName(Finding::Grade grade) {
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
      const nlohmann::ordered_json line = {{"grade", GetName(finding.grade)},
                                           {"subject", finding.subject},
                                           {"found", finding.found},
                                           {"advice", finding.advice}};
      std::cout << line.dump(-1, ' ', false,
                             nlohmann::json::error_handler_t::replace)
                << "\n";
      continue;
    }
    PrintLine(GetName(finding.grade), ": ", finding.subject, ": ",
              finding.found);
    if (!finding.advice.empty()) PrintLine("  ", finding.advice);
  }
  BALLAST_RETURN_IF_ERROR(Flush(std::cout));
  if (faults == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      faults, faults == 1 ? " fault was" : " faults were", " found"));
}

}  // namespace

void AddDoctor(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  auto json = std::make_shared<bool>(false);
  Command* command = line->AddCommand(
      line->program(), "doctor",
      "Looks at this machine, and at every server of --server if it is given,\n"
      "and says what to change: memory, limits, clock, seccomp, processor,\n"
      "GPUs, NCCL and nvJPEG; whether a server of this machine can read "
      "video,\n"
      "audio and SentencePiece models (ballast-server inspect helpers);\n"
      "whether each server can be reached from here, serves, reads its data, "
      "and\n"
      "has the configuration and the index of the first. Run it on each node.\n"
      "Exits with status 1 if a fault was found.",
      "  ballastctl doctor\n"
      "  ballastctl --server unix:/run/ballast/a.sock,loader-1:7070 doctor\n"
      "\n"
      "JSON keys, one object a line: grade (\"ok\", \"warning\" or "
      "\"fault\"),\n"
      "subject, found, advice.",
      [server, json]() -> absl::Status {
        NodeFacts node = LookAtNode();
        std::vector<ServerFacts> servers;
        if (!server->addresses.empty()) {
          AskForMemory(*server, &node);
          BALLAST_ASSIGN_OR_RETURN(servers, AskServers(*server));
        }
        return PrintFindings(Diagnose(node, servers), *json);
      });
  command->RunsWithout("--server");
  command->AddFlag("--json", json.get(), "one JSON object a line");
}

namespace {

constexpr absl::Duration kBetween = absl::Milliseconds(200);

bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

absl::Status AwaitHealth(const Connect& connect, absl::Duration wait,
                         Clock* clock, std::ostream* out, Wanted wanted) {
  const char* found = "serving";
  const absl::Time start = clock->Now();
  while (true) {
    BALLAST_ASSIGN_OR_RETURN(const auto client, connect());
    const absl::Status status = client->CheckHealth();
    if (status.ok()) break;
    if (wanted == Wanted::kAlive && AnswersWithoutServing(status)) {
      found = "not serving";
      break;
    }
    const absl::Duration left = wait - (clock->Now() - start);
    if (!MayPass(status) || left <= absl::ZeroDuration()) return status;
    clock->NewSleeper()->Sleep(std::min(kBetween, left));
  }
  *out << found << "\n";
  return Flush(*out);
}

void AddHealth(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  auto wait = std::make_shared<uint64_t>(0);
  auto config = std::make_shared<std::string>();
  auto alive = std::make_shared<bool>(false);
  Command* command = line->AddCommand(
      line->program(), "health",
      "Asks whether a server serves, by gRPC health checking, which needs no\n"
      "token. Prints `serving` and exits with status 0, or says why not and\n"
      "exits with 1: for probes, where TLS or a Unix socket keeps others out.\n"
      "With --alive a server that answers `not serving` also exits with 0.\n"
      "With --config the server must serve that configuration and its "
      "indexes,\n"
      "which `ballast-server inspect fingerprint` reads here: a server of "
      "another\n"
      "job is a fault, and the first key that differs is named.",
      "  ballastctl --server unix:/run/ballast/a.sock health\n"
      "  ballastctl --server 127.0.0.1:7070 health --wait 60 "
      "--config mine.yaml\n"
      "  ballastctl --server 127.0.0.1:7070 health --alive",
      [server, wait, alive, config]() -> absl::Status {
        std::ostringstream found;
        BALLAST_RETURN_IF_ERROR(AwaitHealth(
            [server] { return GetClient(*server); },
            absl::Seconds(static_cast<int64_t>(*wait)), Clock::Real(), &found,
            *alive ? Wanted::kAlive : Wanted::kServing));
        if (!config->empty()) {
          BALLAST_ASSIGN_OR_RETURN(const v1::Fingerprint wanted,
                                   FingerprintOf(*config));
          BALLAST_ASSIGN_OR_RETURN(const auto client, GetClient(*server));
          BALLAST_RETURN_IF_ERROR(CheckServes(client.get(), *config, wanted));
        }
        std::cout << found.str();
        return Flush(std::cout);
      });
  command
      ->AddText("--config", config.get(),
                "the configuration whose job the server must serve")
      .TypeName("FILE");
  command
      ->AddWholeNumber("--wait", wait.get(),
                       "seconds to ask again in, until it serves", 0)
      .TypeName("SECONDS");
  command->AddFlag("--alive", alive.get(),
                   "succeed if the server answers, serving or not: for "
                   "liveness probes");
}

}  // namespace ballast
