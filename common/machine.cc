#include "common/machine.h"

#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace ballast {
namespace {

constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

// Files of /proc have no size.
std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

uint64_t ReadNumber(const std::string& path) {
  uint64_t number = 0;
  return absl::SimpleAtoi(absl::StripAsciiWhitespace(ReadAll(path)), &number)
             ? number
             : kNone;  // missing, or the word `max`
}

// The least limit of `group` below `mount` and of the groups above it. In a
// container, which sees its own group as the mount, only this group is visible.
uint64_t LeastLimit(const std::string& mount, absl::string_view group,
                    const std::string& name) {
  uint64_t least = kNone;
  while (true) {
    least = std::min(least, ReadNumber(mount + std::string(group) + name));
    const size_t slash = group.rfind('/');
    if (slash == group.npos) return least;
    group = group.substr(0, slash);
  }
}

uint64_t CgroupLimit(const std::string& root) {
  uint64_t least = kNone;
  for (const absl::string_view line :
       absl::StrSplit(ReadAll(root + "/proc/self/cgroup"), '\n')) {
    // NUMBER:CONTROLLERS:GROUP; version 2 has no controllers.
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    const std::pair<absl::string_view, absl::string_view> rest =
        absl::StrSplit(parts.second, absl::MaxSplits(':', 1));
    const absl::string_view group = absl::StripSuffix(rest.second, "/");
    if (parts.first == "0" && rest.first.empty()) {
      least = std::min(
          least, LeastLimit(root + "/sys/fs/cgroup", group, "/memory.max"));
    }
    for (const absl::string_view controller : absl::StrSplit(rest.first, ',')) {
      if (controller != "memory") continue;
      least = std::min(least, LeastLimit(root + "/sys/fs/cgroup/memory", group,
                                         "/memory.limit_in_bytes"));
    }
  }
  return least;
}

uint64_t TotalMemory(const std::string& root) {
  for (absl::string_view line :
       absl::StrSplit(ReadAll(root + "/proc/meminfo"), '\n')) {
    uint64_t kib = 0;
    if (absl::ConsumePrefix(&line, "MemTotal:") &&
        absl::ConsumeSuffix(&line, "kB") &&
        absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &kib)) {
      return kib << 10;
    }
  }
  // A unit of systemd may hide the file (ProcSubset=pid).
  struct sysinfo machine = {};
  if (!root.empty() || sysinfo(&machine) != 0) return kNone;
  return uint64_t{machine.totalram} * machine.mem_unit;
}

}  // namespace

uint64_t MachineMemory(const std::string& root) {
  const uint64_t least = std::min(TotalMemory(root), CgroupLimit(root));
  return least == kNone ? 0 : least;
}

uint64_t RaiseDescriptorLimit() {
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  struct rlimit raised = limit;
  raised.rlim_cur = raised.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return limit.rlim_cur;
}

void RaiseHardDescriptorLimit() {
  struct rlimit limit = {};
  const uint64_t wanted =
      std::min(kWantedDescriptors, ReadNumber("/proc/sys/fs/nr_open"));
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max >= wanted) return;
  limit.rlim_max = wanted;
  static_cast<void>(setrlimit(RLIMIT_NOFILE, &limit));
}

}  // namespace ballast
