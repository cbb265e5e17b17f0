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

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace ballast {
namespace {

// An endless, deterministic sequence of inputs. Each is one of `seeds` with one
// to eight changes of kinds that break parsers: bits, bytes and lengths in
// either byte order; pieces removed, repeated or taken from another seed;
// truncation. Thread-compatible.
class Mutator {
 public:
  // At least one seed. Inputs have at most `max_size` bytes.
  Mutator(uint64_t seed, std::vector<std::string> seeds, size_t max_size);

  std::string Next();

 private:
  // A number in [0, below); 0 if `below` is 0.
  uint64_t Draw(uint64_t below);
  void Change(std::string* input);
  void WriteNumber(std::string* input);

  uint64_t state_;
  const std::vector<std::string> seeds_;
  const size_t max_size_;
};

constexpr uint64_t kNumbers[] = {
    0,      1,      2,      16,      0x7f,  0x80,       0xff,       0x100,
    0x7fff, 0x8000, 0xffff, 0x10000, 65500, 0x7fffffff, 0x80000000, 0xffffffff};

Mutator::Mutator(uint64_t seed, std::vector<std::string> seeds, size_t max_size)
    : state_(seed), seeds_(std::move(seeds)), max_size_(max_size) {}

// SplitMix64.
uint64_t Mutator::Draw(uint64_t below) {
  uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  z ^= z >> 31;
  return below == 0 ? 0 : z % below;
}

std::string Mutator::Next() {
  std::string input = seeds_[Draw(seeds_.size())];
  for (uint64_t left = 1 + Draw(8); left > 0; --left) Change(&input);
  if (input.size() > max_size_) input.resize(max_size_);
  return input;
}

// Writes a number of one, two or four bytes in either byte order; half the time
// near the beginning, where headers are.
void Mutator::WriteNumber(std::string* input) {
  const size_t size = size_t{1} << Draw(3);
  if (input->size() < size) return;
  const size_t places = input->size() - size + 1;
  const size_t at = Draw(2) ? Draw(places) : Draw(std::min<size_t>(places, 64));
  const uint64_t value = kNumbers[Draw(std::size(kNumbers))];
  const bool big = Draw(2);
  for (size_t i = 0; i < size; ++i) {
    (*input)[at + i] = static_cast<char>(value >> 8 * (big ? size - 1 - i : i));
  }
}

void Mutator::Change(std::string* input) {
  const size_t at = Draw(input->size());
  const size_t most = Draw(4) ? 16 : input->size();
  const size_t length = Draw(std::min(most, input->size() - at) + 1);
  switch (Draw(8)) {
    case 0:
      if (!input->empty()) (*input)[at] ^= static_cast<char>(1 << Draw(8));
      return;
    case 1:
      if (!input->empty()) (*input)[at] = static_cast<char>(Draw(256));
      return;
    case 2:
    case 3:
      return WriteNumber(input);
    case 4:
      input->erase(at, length);
      return;
    case 5:
      input->insert(Draw(input->size() + 1), input->substr(at, length));
      return;
    case 6: {
      const std::string& other = seeds_[Draw(seeds_.size())];
      const size_t from = Draw(other.size());
      input->insert(at, other.substr(from, Draw(64) + 1));
      return;
    }
    default:
      // Rarely, since it leaves little to parse.
      if (Draw(4) == 0) input->resize(at);
      return;
  }
}

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
