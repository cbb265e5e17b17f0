#ifndef BALLAST_TESTS_FAKES_FAULTY_FILES_H_
#define BALLAST_TESTS_FAKES_FAULTY_FILES_H_

#include <cstdint>
#include <string>

namespace ballast {

// Makes reads of files fail as a disk or a file server does. A test that links
// this uses its open and pread instead of the C library's, whichever code calls
// them. Thread-safe.

// Makes the next `times` reads of files whose path contains `path` fail with
// `number`, an errno. Bytes in memory count as absent meanwhile.
void FailReads(const std::string& path, int number, uint64_t times);

// Makes every descriptor that is open now for a file whose path contains `path`
// fail with ESTALE from now on. Descriptors opened later work.
void MakeHandlesStale(const std::string& path);

// Number of reads that have failed since the start.
uint64_t FailedReads();

// Ends all faults.
void HealFiles();

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_FAULTY_FILES_H_
