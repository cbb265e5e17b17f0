#ifndef BALLAST_TESTS_FAKES_OLD_INDEX_H_
#define BALLAST_TESTS_FAKES_OLD_INDEX_H_

#include <string>

namespace ballast {

// The index of version 4 of the same samples as `index`, a whole index file of
// the version in force: without marks, hashes and their header.
std::string OldIndexOf(const std::string& index);

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_OLD_INDEX_H_
