#ifndef BALLAST_COMMON_SOCKET_BYTES_H_
#define BALLAST_COMMON_SOCKET_BYTES_H_

#include <cstddef>

// Whole messages over a stream socket between a server and a program that it
// started (common/embedded_program.h). Uses the C library alone, since such a
// program may not be able to link anything else. Every call is resumed when a
// signal interrupts it.
namespace ballast {

// Reads `size` bytes. Returns false at the end of the stream.
bool ReadAll(int socket, void* to, size_t size);

// Writes `size` bytes. Returns false if the other end is gone.
bool WriteAll(int socket, const void* from, size_t size);

// The most descriptors that travel with a message.
inline constexpr size_t kMostPassedFds = 4;

// As WriteAll; copies of `count` descriptors, at most kMostPassedFds, arrive
// with the first byte. `size` is at least 1.
bool WriteWithFds(int socket, const void* from, size_t size, const int* fds,
                  size_t count);

// As ReadAll of what WriteWithFds wrote. Fills `fds` with descriptors that the
// caller owns, and *count with their number: 0 after a plain message. Those
// above `most` are closed.
bool ReadWithFds(int socket, void* to, size_t size, int* fds, size_t most,
                 size_t* count);

}  // namespace ballast

#endif  // BALLAST_COMMON_SOCKET_BYTES_H_
