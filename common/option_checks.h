#ifndef BALLAST_COMMON_OPTION_CHECKS_H_
#define BALLAST_COMMON_OPTION_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ballast {

// Checks of an option's value. Each returns a message with the value found and
// the one wanted, or "" if the value is valid. Pure.

// Checks for a whole number from `least` to `most` in decimal digits; "-1" is
// not one.
std::string CheckWholeNumber(const std::string& given, uint64_t least,
                             uint64_t most);

// Checks for one of `choices`.
std::string CheckChoice(const std::string& given,
                        const std::vector<std::string>& choices);

}  // namespace ballast

#endif  // BALLAST_COMMON_OPTION_CHECKS_H_
