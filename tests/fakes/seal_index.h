#ifndef BALLAST_TESTS_FAKES_SEAL_INDEX_H_
#define BALLAST_TESTS_FAKES_SEAL_INDEX_H_

#include <string>

namespace ballast {

// Corrects the checksums of an index file, as far as its header says where they
// are. Without right checksums nothing else of the file is read.
void SealIndex(std::string* bytes);

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_SEAL_INDEX_H_
