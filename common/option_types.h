#ifndef BALLAST_COMMON_OPTION_TYPES_H_
#define BALLAST_COMMON_OPTION_TYPES_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace ballast {

// Refuses what is no whole number of `least` to `most` in decimal digits; the
// message says what was found and what is wanted. `option` is shown with the
// type N. Returns `option`.
CLI::Option* WholeNumber(CLI::Option* option, uint64_t least, uint64_t most);

// Refuses what is none of `choices`. `option` is shown with them. Returns
// `option`.
CLI::Option* OneOf(CLI::Option* option, std::vector<std::string> choices);

// Adds an option for a whole number of at least `least` that T can hold. (CLI11
// alone reads -1 as 2^64 - 1.)
template <typename T>
CLI::Option* AddWholeNumber(CLI::App* app, const std::string& name, T& value,
                            const std::string& description,
                            uint64_t least = 0) {
  return WholeNumber(app->add_option(name, value, description), least,
                     std::numeric_limits<T>::max());
}

}  // namespace ballast

#endif  // BALLAST_COMMON_OPTION_TYPES_H_
