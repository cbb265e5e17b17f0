#ifndef BALLAST_COMMON_PYTHON_HELPER_H_
#define BALLAST_COMMON_PYTHON_HELPER_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/helper_process.h"

namespace ballast {

// Helpers (helper_process.h) that are written in Python: the server holds their
// texts, so there is no file to install.

// The kind of the frame that closes the box (python_helper.py): no other
// request of a helper has it.
inline constexpr uint32_t kCloseBox = 1;

// Every python3 of PATH's absolute folders, in order, and Debian's.
std::vector<std::string> FindPythons();

// Purpose of a helper process in Python, and its name in metrics.
enum class PythonUse { kTemplates, kRecipes };
inline constexpr std::array<const char*, 2> kPythonUseNames = {"templates",
                                                               "recipes"};
// Starts and ends of all helpers for one use.
HelperCounters& GetCounters(PythonUse use);

// A module that helpers may import by its name.
struct PythonModule {
  absl::string_view name;
  absl::string_view text;
};

// Starts `python`, an interpreter of FindPythons, with the order of its sets
// and the threads of its libraries fixed. The files in its folder are not on
// its path, nor are packages of the user's home. Errors: as StartHelper.
absl::StatusOr<HelperChild> StartPython(const std::string& python);

// Gives a new process its modules, after `ballast_helper` (python_helper.py).
// Each runs once; the last one serves requests and never ends. Errors: as
// HelperProcess::Send.
absl::Status SendModules(HelperProcess* helper,
                         absl::Span<const PythonModule> modules);

// Has the process close its box (helper_program.h) around itself and all its
// threads, limited to `memory` more bytes of address space. Errors: as
// HelperProcess::Receive.
absl::Status CloseBox(HelperProcess* helper, uint64_t memory);

}  // namespace ballast

#endif  // BALLAST_COMMON_PYTHON_HELPER_H_
