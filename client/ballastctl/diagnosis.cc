#include "client/ballastctl/diagnosis.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

}  // namespace

std::vector<Finding> Diagnose(const NodeFacts& node,
                              const std::vector<ServerFacts>& servers) {
  std::vector<Finding> findings = {SharedMemory(node), OpenFiles(node),
                                   LockedMemory(node), ClockFinding(node),
                                   Helpers(node)};
  if (node.server_memory != 0 && node.server_machine_memory != 0) {
    findings.push_back(ServerMemory(node));
  }
  Gpus(node, &findings);
  const ServerFacts* first = nullptr;
  for (const ServerFacts& server : servers) {
    findings.push_back(Server(server, first));
    if (first == nullptr && server.status.ok()) first = &server;
  }
  return findings;
}

}  // namespace ballast
