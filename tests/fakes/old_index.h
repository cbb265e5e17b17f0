#ifndef BALLAST_TESTS_FAKES_OLD_INDEX_H_
#define BALLAST_TESTS_FAKES_OLD_INDEX_H_

#include <cstdint>
#include <string>

namespace ballast {

// Corrects the checksums of an index file, as far as its header says where they
// are. Without right checksums nothing else of the file is read.
void SealIndex(std::string* bytes);

// The index of version 6 of the same samples as `index`, a whole index file of
// the version in force that is not hashed: without the header of hashes and the
// times of media.
std::string OldIndexOf(const std::string& index);

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_OLD_INDEX_H_
