#include "server/sample/medium.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/sample/data_fault.h"
#include "server/sample/index_format.h"

namespace ballast {
namespace {

// A file in memory of these bytes.
absl::StatusOr<OwnedFd> GetFile(absl::string_view bytes,
                                const std::string& path) {
  OwnedFd fd(memfd_create("ballast-video", MFD_CLOEXEC));
  if (fd.get() < 0) return FileError(errno, "copy to memory", path);
  while (!bytes.empty()) {
    const ssize_t written = write(fd.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(errno, "copy to memory", path);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return fd;
}

}  // namespace

absl::StatusOr<RawMedium> OpenMedium(MediumKind kind, FileView file,
                                     uint64_t offset, uint64_t size) {
  RawMedium video;
  video.kind = kind;
  video.size = size;
  if (file.object() == nullptr) {
    BALLAST_ASSIGN_OR_RETURN(OwnedFd fd, file.Duplicate());
    video.fd = std::make_shared<const OwnedFd>(std::move(fd));
    video.offset = offset;
    video.state = file.begin();
    return video;
  }
  if (size > kMaxSampleBytes) {
    return DataFaultError(absl::StrCat("a video of ", size,
                                       " bytes in a store; at most ",
                                       kMaxSampleBytes, " are fetched"));
  }
  BALLAST_RETURN_IF_ERROR(file.Load({{offset, size}}));
  BALLAST_ASSIGN_OR_RETURN(const std::string bytes, file.ReadAt(offset, size));
  return MediumInMemory(kind, bytes, file.path());
}

absl::StatusOr<RawMedium> MediumInMemory(MediumKind kind,
                                         absl::string_view bytes,
                                         const std::string& name) {
  if (bytes.size() > kMaxSampleBytes) {
    return DataFaultError(absl::StrCat("a video of ", bytes.size(),
                                       " bytes; at most ", kMaxSampleBytes,
                                       " are copied to memory"));
  }
  RawMedium video;
  video.kind = kind;
  video.size = bytes.size();
  BALLAST_ASSIGN_OR_RETURN(OwnedFd fd, GetFile(bytes, name));
  video.fd = std::make_shared<const OwnedFd>(std::move(fd));
  return video;
}

absl::Status CheckUnchanged(const RawMedium& video) {
  if (!video.state.has_value()) return absl::OkStatus();
  BALLAST_ASSIGN_OR_RETURN(
      const FileState now,
      StateOfDescriptor(video.fd->get(), "the file of a video",
                        ReadFrom::kDisk));
  if (now == *video.state) return absl::OkStatus();
  return absl::UnavailableError(
      "the file of the video changed while it was read; restore it, or index "
      "the source again and restart the servers");
}

absl::StatusOr<uint64_t> HashMedium(const RawMedium& video) {
  if (video.fd == nullptr) {
    std::vector<uint64_t> hashes;
    for (const std::string& picture : video.pictures) {
      hashes.push_back(Checksum(picture));
    }
    return PicturesHash(hashes);
  }
  constexpr uint64_t kChunk = uint64_t{1} << 20;
  std::string chunk(std::min(video.size, kChunk), '\0');
  ContentHash hash;
  for (uint64_t done = 0; done < video.size;) {
    const ssize_t count =
        pread(video.fd->get(), chunk.data(),
              std::min<uint64_t>(chunk.size(), video.size - done),
              static_cast<off_t>(video.offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError(errno, "read", "the file of a video");
    if (count == 0) {
      return absl::UnavailableError(
          absl::StrCat("the file of a video ends after ", done, " of ",
                       video.size, " bytes"));
    }
    hash.Add({chunk.data(), static_cast<size_t>(count)});
    done += static_cast<uint64_t>(count);
  }
  return hash.value();
}

}  // namespace ballast
