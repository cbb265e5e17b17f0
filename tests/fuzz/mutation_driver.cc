// The main program of fuzz targets without libFuzzer: the same command line
// gives the same inputs in the same order on every run.
//
//   -seed_inputs=A,B,.. or @FILE  files that mutation starts from
//   -seed=N -runs=N -max_len=N    as libFuzzer's
//   -max_total_time=SECONDS       an upper bound for slow machines
//
// The input being tried is in TEST_UNDECLARED_OUTPUTS_DIR or TEST_TMPDIR as
// `fuzz_input`, and remains there after a crash.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/fuzz/mutate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace ballast {
namespace {

struct Options {
  uint64_t seed = 1;
  uint64_t runs = 1000;
  uint64_t max_len = 4096;
  uint64_t max_total_time = 3600;
  std::vector<std::string> seed_inputs;
};

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::cerr << path << ": cannot be read" << std::endl;
    std::exit(1);
  }
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<std::string> ReadSeedList(absl::string_view value) {
  std::string list(value);
  if (absl::ConsumePrefix(&value, "@")) list = ReadFile(std::string(value));
  return absl::StrSplit(list, absl::ByAnyChar(",\n"), absl::SkipEmpty());
}

bool ParseOption(absl::string_view argument, Options* options) {
  if (absl::ConsumePrefix(&argument, "-seed_inputs=")) {
    options->seed_inputs = ReadSeedList(argument);
    return true;
  }
  const std::pair<absl::string_view, uint64_t*> numbers[] = {
      {"-seed=", &options->seed},
      {"-runs=", &options->runs},
      {"-max_len=", &options->max_len},
      {"-max_total_time=", &options->max_total_time}};
  for (const auto& [name, value] : numbers) {
    if (absl::ConsumePrefix(&argument, name)) {
      return absl::SimpleAtoi(argument, value);
    }
  }
  return false;
}

std::string InputPath() {
  for (const char* name : {"TEST_UNDECLARED_OUTPUTS_DIR", "TEST_TMPDIR"}) {
    const char* folder = std::getenv(name);
    if (folder != nullptr) return std::string(folder) + "/fuzz_input";
  }
  return "fuzz_input";
}

// A file with the input set last; it outlives a crash of the process.
class CurrentInput {
 public:
  explicit CurrentInput(const std::string& path)
      : descriptor_(
            open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {}
  ~CurrentInput() { close(descriptor_); }
  CurrentInput(const CurrentInput&) = delete;
  CurrentInput& operator=(const CurrentInput&) = delete;

  void Set(absl::string_view input) {
    if (ftruncate(descriptor_, 0) != 0 ||
        pwrite(descriptor_, input.data(), input.size(), 0) !=
            static_cast<ssize_t>(input.size())) {
      std::cerr << "cannot write the current input to a file" << std::endl;
      std::exit(1);
    }
  }

 private:
  const int descriptor_;
};

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (ParseOption(argv[i], &options)) continue;
    std::cerr << "unknown or invalid argument: " << argv[i] << std::endl;
    return 2;
  }
  std::vector<std::string> seeds = {""};
  for (const std::string& path : options.seed_inputs) {
    seeds.push_back(ReadFile(path).substr(0, options.max_len));
  }
  const std::string input_path = InputPath();
  CurrentInput current(input_path);
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::seconds(options.max_total_time);
  Mutator mutator(options.seed, seeds, options.max_len);
  uint64_t run = 0;
  for (; run < options.runs && std::chrono::steady_clock::now() < end; ++run) {
    // Every seed is tried unchanged first.
    const std::string input = run < seeds.size() ? seeds[run] : mutator.Next();
    current.Set(input);
    // A separate copy, so that a read beyond its end is detected.
    const std::vector<uint8_t> bytes(input.begin(), input.end());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::filesystem::remove(input_path);
  std::cout << run << " inputs tried" << std::endl;
  return 0;
}

}  // namespace
}  // namespace ballast

int main(int argc, char** argv) { return ballast::Main(argc, argv); }
