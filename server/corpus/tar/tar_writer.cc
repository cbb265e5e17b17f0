#include "server/corpus/tar/tar_writer.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "server/corpus/tar/tar_reader.h"

namespace ballast {
namespace {

// Writes `value` in octal; `width` counts the NUL at the end.
void PutOctal(uint64_t value, size_t width, char* out) {
  const std::string digits = absl::StrFormat("%0*o", width - 1, value);
  std::memcpy(out, digits.data(), width - 1);
}

// Fills `prefix` and `name`. Returns false if the name does not fit.
bool PutName(absl::string_view name, TarHeader& header) {
  if (name.size() > sizeof(header.name)) {
    // The leftmost '/' that leaves at most 100 bytes to its right.
    const size_t slash = name.find('/', name.size() - sizeof(header.name) - 1);
    if (slash == absl::string_view::npos || slash == 0 ||
        slash > sizeof(header.prefix) || slash + 1 == name.size()) {
      return false;
    }
    std::memcpy(header.prefix, name.data(), slash);
    name.remove_prefix(slash + 1);
  }
  std::memcpy(header.name, name.data(), name.size());
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TarWriter>> TarWriter::Create(
    const std::string& path) {
  BALLAST_ASSIGN_OR_RETURN(File file, File::Create(path));
  return absl::WrapUnique(new TarWriter(std::move(file)));
}

absl::Status TarWriter::Add(absl::string_view name, absl::string_view bytes) {
  BALLAST_RETURN_IF_ERROR(WriteHeader(name, bytes.size()));
  BALLAST_RETURN_IF_ERROR(file_.Write(bytes));
  return Pad(bytes.size());
}

absl::Status TarWriter::AddFrom(absl::string_view name, int fd, uint64_t offset,
                                uint64_t size) {
  constexpr uint64_t kPiece = uint64_t{1} << 20;
  BALLAST_RETURN_IF_ERROR(WriteHeader(name, size));
  std::string piece(std::min(size, kPiece), '\0');
  for (uint64_t done = 0; done < size;) {
    const ssize_t read = pread(fd, piece.data(), std::min(size - done, kPiece),
                               static_cast<off_t>(offset + done));
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return FileError(errno, "read a member for", file_.path());
    if (read == 0) {
      return absl::DataLossError(absl::StrCat(file_.path(), ": ", name, " has ",
                                              done, " bytes, and had ", size));
    }
    BALLAST_RETURN_IF_ERROR(file_.Write(absl::string_view(piece.data(), read)));
    done += static_cast<uint64_t>(read);
  }
  return Pad(size);
}

absl::Status TarWriter::WriteHeader(absl::string_view name, uint64_t size) {
  TarHeader header = {};
  if (name.empty() || name.find('\0') != absl::string_view::npos ||
      !PutName(name, header)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_.path(), ": member name \"", name,
                     "\" does not fit a ustar header; wanted 1 to 100 bytes, "
                     "or at most 155 and 100 around a '/'"));
  }
  if (size >= uint64_t{1} << 33) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_.path(), ": ", name, " has ", size,
                     " bytes, wanted less than 8 GiB"));
  }
  PutOctal(0644, sizeof(header.mode), header.mode);
  PutOctal(0, sizeof(header.uid), header.uid);
  PutOctal(0, sizeof(header.gid), header.gid);
  PutOctal(size, sizeof(header.size), header.size);
  PutOctal(0, sizeof(header.mtime), header.mtime);
  header.type = kTarFile;
  std::memcpy(header.magic, "ustar", sizeof(header.magic));
  std::memcpy(header.version, "00", sizeof(header.version));
  // Six digits, NUL and space, as is usual.
  PutOctal(TarChecksum(header), sizeof(header.checksum) - 1, header.checksum);
  header.checksum[sizeof(header.checksum) - 1] = ' ';

  return file_.Write(absl::string_view(reinterpret_cast<const char*>(&header),
                                       sizeof(header)));
}

absl::Status TarWriter::Pad(uint64_t size) {
  const size_t tail = size % kTarBlock;
  if (tail == 0) return absl::OkStatus();
  return file_.Write(std::string(kTarBlock - tail, '\0'));
}

absl::Status TarWriter::Finish() {
  return file_.Write(std::string(2 * kTarBlock, '\0'));
}

}  // namespace ballast
