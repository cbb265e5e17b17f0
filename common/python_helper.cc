#include "common/python_helper.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/helper_program.h"
#include "common/python_helper_text.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// Runs the modules that come as frames of name, zero byte and text. `sys` is
// part of the interpreter; every other import comes after the path has lost the
// working directory, which `-c` puts first.
constexpr char kLoader[] = R"(import sys
sys.path = [path for path in sys.path if path.startswith("/")]
import os, struct, types
def read(size):
    data = b""
    while len(data) < size:
        data += os.read(3, size - len(data)) or os._exit(0)
    return data
while True:
    name, _, text = read(struct.unpack("=IIQ", read(16))[2]).partition(b"\0")
    name = name.decode()
    module = sys.modules[name] = types.ModuleType(name)
    package, _, last = name.rpartition(".")
    if package:
        if package not in sys.modules:
            sys.modules[package] = types.ModuleType(package)
            sys.modules[package].__path__ = []
        setattr(sys.modules[package], last, module)
    exec(compile(text, name + ".py", "exec"), module.__dict__)
)";

constexpr uint64_t kMaxReasonBytes = 1 << 16;

}  // namespace

std::vector<std::string> FindPythons() {
  std::vector<std::string> found;
  const char* const path = std::getenv("PATH");
  std::vector<std::string> folders =
      absl::StrSplit(path != nullptr ? path : "", ':', absl::SkipEmpty());
  folders.push_back("/usr/bin");
  for (const std::string& folder : folders) {
    // A relative one would be the working directory's: data, perhaps.
    if (folder[0] != '/') continue;
    const std::string file = absl::StrCat(folder, "/python3");
    if (std::find(found.begin(), found.end(), file) == found.end() &&
        access(file.c_str(), X_OK) == 0) {
      found.push_back(file);
    }
  }
  return found;
}

HelperCounters& GetCounters(PythonUse use) {
  // Never destroyed: helpers may end late.
  static auto* const counters =
      new std::array<HelperCounters, kPythonUseNames.size()>;
  return (*counters)[static_cast<size_t>(use)];
}

absl::StatusOr<HelperChild> StartPython(const std::string& python) {
  // By its name the interpreter of a virtual environment finds its packages.
  // Not -I: it would ignore PYTHONHASHSEED. What else it keeps out, the user's
  // packages and PYTHON* variables, -s and StartHelper keep out, too.
  return StartHelper(
      {.name = python.c_str(),
       .path = python,
       .arguments = {"-s", "-c", kLoader},
       .variables = {"PYTHONHASHSEED=0", "PYTHONSAFEPATH=1",
                     "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1",
                     "MKL_NUM_THREADS=1"}});
}

absl::Status SendModules(HelperProcess* helper,
                         absl::Span<const PythonModule> modules) {
  constexpr absl::string_view kZero("\0", 1);
  const absl::string_view own(reinterpret_cast<const char*>(kPythonHelper),
                              kPythonHelperBytes);
  BALLAST_RETURN_IF_ERROR(helper->Send(0, {"ballast_helper", kZero, own}));
  for (const PythonModule& module : modules) {
    BALLAST_RETURN_IF_ERROR(helper->Send(0, {module.name, kZero, module.text}));
  }
  return absl::OkStatus();
}

absl::Status CloseBox(HelperProcess* helper, uint64_t memory) {
  const uint64_t numbers[] = {memory, static_cast<uint64_t>(helper->process())};
  uint32_t kind = 0;
  std::string answer;
  BALLAST_RETURN_IF_ERROR(helper->Send(
      kCloseBox, {GetBytes(numbers), GetBoxFilter(helper->process())}));
  return helper->Receive(kMaxReasonBytes, &kind, &answer);
}

}  // namespace ballast
