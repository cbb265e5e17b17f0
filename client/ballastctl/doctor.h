#ifndef BALLAST_CLIENT_BALLASTCTL_DOCTOR_H_
#define BALLAST_CLIENT_BALLASTCTL_DOCTOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/ballastctl/query_client.h"
#include "common/command_line.h"
#include "proto/loader_service.pb.h"

namespace ballast {
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
};

// One server's answer, or the reason why there is none.
struct ServerFacts {
  std::string address;
  absl::Status status;        // of Attach
  v1::AttachResponse attach;  // if `status` is OK
  absl::Status health;
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

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_DOCTOR_H_
