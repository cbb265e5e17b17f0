#ifndef BALLAST_TESTS_FAKES_OLD_INDEX_H_
#define BALLAST_TESTS_FAKES_OLD_INDEX_H_

#include <cstdint>
#include <string>

namespace ballast {

// The index of `version` 4 or 5 of the same samples as `index`, a whole index
// file of the version in force without videos: without the header of videos; of
// version 4 also without marks, hashes and their header.
std::string OldIndexOf(const std::string& index, uint32_t version);

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_OLD_INDEX_H_
