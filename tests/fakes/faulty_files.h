#ifndef BALLAST_TESTS_FAKES_FAULTY_FILES_H_
#define BALLAST_TESTS_FAKES_FAULTY_FILES_H_

#include <cstdint>
#include <string>

namespace ballast {

// Makes reads of files fail as a disk or a file server does: a test that links
// this has its own open and pread in place of the C library's, whichever code
// calls them. Thread-safe.

// The next `times` reads of files whose path holds `path` fail with `number`,
// an errno. Bytes in memory count as absent meanwhile.
void FailReads(const std::string& path, int number, uint64_t times);

// Every descriptor that is open now for a file whose path holds `path` fails
// with ESTALE from now on; those that are opened later work.
void MakeHandlesStale(const std::string& path);

// Reads that have failed since the start.
uint64_t FailedReads();

// Ends all faults.
void HealFiles();

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_FAULTY_FILES_H_
