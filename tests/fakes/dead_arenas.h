#ifndef BALLAST_TESTS_FAKES_DEAD_ARENAS_H_
#define BALLAST_TESTS_FAKES_DEAD_ARENAS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace ballast {

// Arenas that this process maps although their servers, in this process too,
// have removed them: their lines in /proc/self/maps. Ranks map them `r--s`,
// servers `rw-s`.
std::vector<std::string> DeadArenas();

// Tells when the memory of arenas is free: when they have been removed and no
// process has them mapped. For one thread.
class ArenaWatch {
 public:
  ArenaWatch();
  ~ArenaWatch();
  ArenaWatch(const ArenaWatch&) = delete;
  ArenaWatch& operator=(const ArenaWatch&) = delete;

  // Watches the arenas that are in `folder` now.
  void Watch(const std::string& folder);
  // Blocks until all watched ones are gone. False after `timeout`.
  bool AwaitGone(absl::Duration timeout);

 private:
  const int descriptor_;
  std::set<int> watched_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_DEAD_ARENAS_H_
