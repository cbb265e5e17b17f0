#ifndef BALLAST_TESTS_FUZZ_MUTATE_H_
#define BALLAST_TESTS_FUZZ_MUTATE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ballast {

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

}  // namespace ballast

#endif  // BALLAST_TESTS_FUZZ_MUTATE_H_
