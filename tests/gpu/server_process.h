#ifndef BALLAST_TESTS_GPU_SERVER_PROCESS_H_
#define BALLAST_TESTS_GPU_SERVER_PROCESS_H_

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace ballast {

// A server in a process of its own: "NAME=ADDRESS,PID".
struct ServerProcess {
  std::string name;
  std::string address;
  std::string pid;
};

inline ServerProcess ParseServer(const std::string& text) {
  const std::vector<std::string> name = absl::StrSplit(text, '=');
  const std::vector<std::string> rest = absl::StrSplit(name.at(1), ',');
  return {name[0], rest.at(0), rest.at(1)};
}

// What a process has used so far.
struct ProcessUse {
  double seconds = 0;  // of processors, to the nanosecond
  // The same by kind, to the hundredth of a second.
  double user = 0;
  double system = 0;
  double faults = 0;  // pages touched for the first time
};

inline ProcessUse UseOf(const std::string& pid) {
  ProcessUse use;
  const std::string folder = "/proc/" + pid;
  for (const auto& task :
       std::filesystem::directory_iterator(folder + "/task")) {
    std::ifstream file(task.path() / "schedstat");
    double nanoseconds = 0;
    if (file >> nanoseconds) use.seconds += 1e-9 * nanoseconds;
  }
  std::ifstream file(folder + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  // The fields behind the name: state, then numbers. See proc(5).
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string field;
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  for (int number = 3; fields >> field && number <= 15; ++number) {
    if (number == 10) use.faults = std::stod(field);
    if (number == 14) use.user = std::stod(field) / ticks;
    if (number == 15) use.system = std::stod(field) / ticks;
  }
  return use;
}

// Kilobytes of a line of /proc/PID/status.
inline double StatusOf(const std::string& pid, const std::string& key) {
  std::ifstream file("/proc/" + pid + "/status");
  std::string word;
  while (file >> word) {
    if (word != key + ":") continue;
    double value = 0;
    file >> value;
    return value;
  }
  return 0;
}

}  // namespace ballast

#endif  // BALLAST_TESTS_GPU_SERVER_PROCESS_H_
