#ifndef BALLAST_TESTS_FAKES_SEAL_INDEX_H_
#define BALLAST_TESTS_FAKES_SEAL_INDEX_H_

#include <string>

namespace ballast {

// Makes the checksums of an index file right, without which nothing else of it
// is looked at, as far as its header says where they lie.
void SealIndex(std::string* bytes);

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_SEAL_INDEX_H_
