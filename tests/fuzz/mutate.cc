#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ballast {
namespace {

constexpr uint64_t kNumbers[] = {
    0,      1,      2,      16,      0x7f,  0x80,       0xff,       0x100,
    0x7fff, 0x8000, 0xffff, 0x10000, 65500, 0x7fffffff, 0x80000000, 0xffffffff};

}  // namespace

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

}  // namespace ballast
