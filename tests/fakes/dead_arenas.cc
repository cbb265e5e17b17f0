#include "tests/fakes/dead_arenas.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/time/clock.h"

namespace ballast {

std::vector<std::string> DeadArenas() {
  std::ifstream maps("/proc/self/maps");
  std::vector<std::string> dead;
  for (std::string line; std::getline(maps, line);) {
    if (absl::StrContains(line, ".arena") &&
        absl::StrContains(line, "(deleted)")) {
      dead.push_back(line);
    }
  }
  return dead;
}

ArenaWatch::ArenaWatch() : descriptor_(inotify_init1(IN_CLOEXEC)) {}

ArenaWatch::~ArenaWatch() { close(descriptor_); }

void ArenaWatch::Watch(const std::string& folder) {
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".arena") continue;
    // Sent at the end of the last mapping, if the file was removed before.
    watched_.insert(
        inotify_add_watch(descriptor_, file.path().c_str(), IN_DELETE_SELF));
  }
}

bool ArenaWatch::AwaitGone(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  while (!watched_.empty()) {
    const absl::Duration left = std::max(end - absl::Now(), absl::Duration());
    pollfd ready = {descriptor_, POLLIN, 0};
    if (poll(&ready, 1, absl::ToInt64Milliseconds(left)) <= 0) return false;
    alignas(inotify_event) char events[4096];
    const ssize_t size = read(descriptor_, events, sizeof(events));
    for (ssize_t at = 0; at < size;) {
      const auto* event = reinterpret_cast<const inotify_event*>(events + at);
      watched_.erase(event->wd);
      at += sizeof(inotify_event) + event->len;
    }
    if (size <= 0) return false;
  }
  return true;
}

}  // namespace ballast
