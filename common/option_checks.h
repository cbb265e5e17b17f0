#ifndef BALLAST_COMMON_OPTION_CHECKS_H_
#define BALLAST_COMMON_OPTION_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ballast {

// Checks of an option's value. Each answers what was found and what is wanted,
// or nothing where the value will do. Pure.

// A whole number of `least` to `most` in decimal digits: "-1" is none.
std::string CheckWholeNumber(const std::string& given, uint64_t least,
                             uint64_t most);

// One of `choices`.
std::string CheckChoice(const std::string& given,
                        const std::vector<std::string>& choices);

}  // namespace ballast

#endif  // BALLAST_COMMON_OPTION_CHECKS_H_
