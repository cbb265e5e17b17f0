#ifndef BALLAST_TESTS_FAKES_OLD_INDEX_H_
#define BALLAST_TESTS_FAKES_OLD_INDEX_H_

#include <cstdint>
#include <string>

namespace ballast {

// The index of version 6 of the same samples as `index`, a whole index file of
// the version in force that is not hashed: without the header of hashes and the
// times of media.
std::string OldIndexOf(const std::string& index);

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_OLD_INDEX_H_
