#ifndef BALLAST_SERVER_CORPUS_DESCRIPTOR_LIMIT_H_
#define BALLAST_SERVER_CORPUS_DESCRIPTOR_LIMIT_H_

#include <cstdint>

namespace ballast {

// Raises the process's soft limit of file descriptors (RLIMIT_NOFILE) to its
// hard limit. Returns the limit then in force. Thread-safe.
uint64_t RaiseDescriptorLimit();

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_DESCRIPTOR_LIMIT_H_
