#include "common/socket_bytes.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace ballast {

bool ReadAll(int socket, void* to, size_t size) {
  char* next = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = read(socket, next, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    next += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool WriteAll(int socket, const void* from, size_t size) {
  const char* next = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t put = send(socket, next, size, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    next += put;
    size -= static_cast<size_t>(put);
  }
  return true;
}

bool WriteWithFds(int socket, const void* from, size_t size, const int* fds,
                  size_t count) {
  iovec bytes = {const_cast<void*>(from), size};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int) * kMostPassedFds)] = {};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = room;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(header), fds, sizeof(int) * count);
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent <= 0) return false;
  return WriteAll(socket, static_cast<const char*>(from) + sent,
                  size - static_cast<size_t>(sent));
}

bool ReadWithFds(int socket, void* to, size_t size, int* fds, size_t most,
                 size_t* count) {
  *count = 0;
  iovec bytes = {to, size};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int) * kMostPassedFds)];
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof(room);
  ssize_t got;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t arrived = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < arrived; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      if (*count < most) {
        fds[(*count)++] = fd;
      } else {
        close(fd);
      }
    }
  }
  return ReadAll(socket, static_cast<char*>(to) + got,
                 size - static_cast<size_t>(got));
}

}  // namespace ballast
