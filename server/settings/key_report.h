#ifndef BALLAST_SERVER_SETTINGS_KEY_REPORT_H_
#define BALLAST_SERVER_SETTINGS_KEY_REPORT_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ballast {

// A position in a file; both count from 1.
struct KeyLocation {
  int line = 1;
  int column = 1;
};

// The keys of a configuration file, their positions and their faults. A key is
// a path: "batch.micro", "sources[0].name", "topology.modules.vision.dp"; the
// empty path is the whole file. Thread-compatible.
class KeyReport {
 public:
  // Records that the file has `key` at `location`.
  void AddKey(absl::string_view key, KeyLocation location);

  // Returns whether the file contains the key, whatever its value.
  bool Has(absl::string_view key) const;

  // The position of the key, or of the innermost enclosing section if the file
  // does not contain it.
  KeyLocation Locate(absl::string_view key) const;

  // Adds a fault: "found ...; wanted ...". AddFaultAt is for keys that occur
  // more than once.
  void AddFault(absl::string_view key, absl::string_view message);
  void AddFaultAt(KeyLocation location, absl::string_view key,
                  absl::string_view message);

  // Adds a fault for a key that the file lacks: "missing; wanted ...".
  void AddMissing(absl::string_view key, absl::string_view wanted);

  // Returns whether the key or an enclosing section has a fault. Its value is
  // then meaningless, and a check that used it would only report the same fault
  // again.
  bool IsFaulty(absl::string_view key) const;

  // Returns whether the key, an enclosing section or a key inside it has a
  // fault.
  bool HasFaultWithin(absl::string_view key) const;

  // Returns OK, or INVALID_ARGUMENT with one line for each fault, "FILE:LINE:
  // KEY: MESSAGE", in order of line, then column, then discovery.
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

// "PARENT.NAME", or NAME if `parent` is the whole file.
std::string ChildKey(absl::string_view parent, absl::string_view name);
// "PARENT[INDEX]".
std::string ItemKey(absl::string_view parent, int index);

// `text` as shown in a message: escaped to be printable, cut if it is long, and
// "" in quotes if it is empty.
std::string Shown(absl::string_view text);

// A hint for a name that is not in `known`: "did you mean X?" if one of them is
// similar, else "wanted one of ...".
std::string SuggestName(absl::string_view name,
                        const std::vector<std::string>& known);

}  // namespace ballast

#endif  // BALLAST_SERVER_SETTINGS_KEY_REPORT_H_
