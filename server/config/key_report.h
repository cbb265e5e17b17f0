#ifndef BALLAST_SERVER_CONFIG_KEY_REPORT_H_
#define BALLAST_SERVER_CONFIG_KEY_REPORT_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ballast {

// A place in a file; both count from 1.
struct KeyLocation {
  int line = 1;
  int column = 1;
};

// Which keys stand in a configuration file, where, and what is wrong with them.
// A key is a path: "batch.micro", "sources[0].name",
// "topology.modules.vision.dp"; the empty path is the whole file.
// Thread-compatible.
class KeyReport {
 public:
  // Notes that `key` stands at `location`.
  void AddKey(absl::string_view key, KeyLocation location);

  // Whether the file holds the key, with whatever value.
  bool Has(absl::string_view key) const;

  // Where the key stands; for one that does not, where the innermost section
  // around it does.
  KeyLocation Locate(absl::string_view key) const;

  // Adds a fault: "found ...; wanted ...". The one with a location is for a key
  // that stands in the file more than once.
  void AddFault(absl::string_view key, absl::string_view message);
  void AddFaultAt(KeyLocation location, absl::string_view key,
                  absl::string_view message);

  // Adds the fault of a key that is not in the file: "missing; wanted ...".
  void AddMissing(absl::string_view key, absl::string_view wanted);

  // Whether the key, or a section around it, has a fault: its value then means
  // nothing, and a check that uses it would only report the same fault again.
  bool IsFaulty(absl::string_view key) const;

  // Whether the key, a section around it or a key inside it has a fault.
  bool HasFaultWithin(absl::string_view key) const;

  // OK, or INVALID_ARGUMENT with a line a fault, "FILE:LINE: KEY: MESSAGE", in
  // order of line (then column, then of their discovery).
  absl::Status ToStatus(absl::string_view file) const;

 private:
  struct Fault {
    KeyLocation location;
    std::string key;
    std::string message;
  };

  absl::flat_hash_map<std::string, KeyLocation> keys_;
  absl::flat_hash_set<std::string> faulty_;
  absl::flat_hash_set<std::string> around_faults_;  // sections
  std::vector<Fault> faults_;
};

// "PARENT.NAME", or NAME in the whole file.
std::string ChildKey(absl::string_view parent, absl::string_view name);
// "PARENT[INDEX]".
std::string ItemKey(absl::string_view parent, int index);

// `text` as a message can show it: printable, cut when it is long, "" in quotes
// when it is empty.
std::string Shown(absl::string_view text);

// What to say of a name that is none of `known`: "did you mean X?" when one of
// them is near, else "wanted one of ...".
std::string SuggestName(absl::string_view name,
                        const std::vector<std::string>& known);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_KEY_REPORT_H_
