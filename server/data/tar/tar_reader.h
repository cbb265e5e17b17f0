#ifndef BALLAST_SERVER_DATA_TAR_TAR_READER_H_
#define BALLAST_SERVER_DATA_TAR_TAR_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/files/file.h"

namespace ballast {

// A tar file is a sequence of 512-byte blocks: a header, the member's bytes
// padded with zeros, the next header, …, two blocks of zeros.
inline constexpr uint64_t kTarBlock = 512;

// Member types.
inline constexpr char kTarFile = '0';
inline constexpr char kTarFileOld = '\0';
inline constexpr char kTarFileContiguous = '7';
inline constexpr char kTarGnuLongName = 'L';
inline constexpr char kTarGnuLongLink = 'K';
inline constexpr char kTarGnuSparse = 'S';
inline constexpr char kTarPax = 'x';
inline constexpr char kTarPaxGlobal = 'g';

// A ustar header. Numbers are octal digits ended by a space or NUL.
struct TarHeader {
  char name[100];
  char mode[8];
  char uid[8];
  char gid[8];
  char size[12];
  char mtime[12];
  char checksum[8];
  char type;
  char link_name[100];
  char magic[6];    // "ustar\0"; GNU: "ustar "
  char version[2];  // "00"; GNU: " \0"
  char user[32];
  char group[32];
  char device_major[8];
  char device_minor[8];
  char prefix[155];  // ustar: precedes `name` and a '/'
  char padding[12];
};
static_assert(sizeof(TarHeader) == kTarBlock);

// The sum of the header's bytes as unsigned numbers, with `checksum` as spaces.
inline uint32_t TarChecksum(const TarHeader& header) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&header);
  uint32_t sum = 0;
  for (uint64_t i = 0; i < kTarBlock; ++i) sum += bytes[i];
  for (const char c : header.checksum) sum -= static_cast<unsigned char>(c);
  return sum + uint32_t{' '} * sizeof(header.checksum);
}

// One member of a tar file. All offsets count from the file's start.
struct TarMember {
  // The name that the archive holds: any bytes except NUL.
  std::string name;
  // Offset of its first header, which may be an extended one.
  uint64_t header = 0;
  // Offsets of its bytes and of the next member's header.
  uint64_t data = 0;
  uint64_t size = 0;
  uint64_t end = 0;
  // kTarFile, or another type of the header (a link, a directory, …).
  char type = kTarFile;
};

// Reads the headers of a tar file: ustar, GNU (long names, base-256 numbers)
// and pax (path, size). Members' bytes are skipped, not read. Strict, since the
// file is untrusted: checksums are compared, numbers are digits, sizes are
// within the file, extended headers have at most 1 MiB, names at most 4096
// bytes. Sparse members are refused. Thread-compatible; blocks on the disk.
class TarReader {
 public:
  // Reads the headers in [begin, end) of `file`, which must outlive the reader
  // and be at least `end` long. `whole`: the range is a whole tar file, so it
  // ends with a block of zeros and only zeros follow.
  TarReader(FileView file, uint64_t begin, uint64_t end, bool whole);

  // The next member, or nullopt at the end. Errors: DATA_LOSS (damaged at
  // offset(), with the reason; the reader cannot continue); as File::ReadAt.
  absl::StatusOr<std::optional<TarMember>> Next();

  // Offset of the header read last.
  uint64_t offset() const { return offset_; }

 private:
  // Values of extended headers for the member that follows them.
  struct Extension {
    std::optional<std::string> name;
    std::optional<uint64_t> size;
  };

  absl::StatusOr<TarHeader> ReadHeader();
  absl::StatusOr<std::string> ReadExtension(uint64_t size);
  absl::Status CheckZerosToEnd();
  // False if `type` does not mark an extended header.
  absl::StatusOr<bool> ReadExtended(char type, uint64_t size,
                                    Extension& extension);
  absl::StatusOr<TarMember> TakeMember(const TarHeader& header, uint64_t size,
                                       Extension extension);

  FileView file_;
  uint64_t position_;
  uint64_t end_;
  bool whole_;
  uint64_t offset_;
};

// A number of a header: octal digits (spaces before, spaces or NULs after), or
// GNU's base-256 if the first byte has its high bit set. nullopt if it is
// neither, negative, or 2^63 or more.
std::optional<uint64_t> ParseTarNumber(absl::string_view field);

// Writes a ustar file that depends on the members alone: time, user and group
// are 0, the mode is 0644. Thread-compatible; blocks on the disk.
//
//   BALLAST_ASSIGN_OR_RETURN(auto writer, TarWriter::Create("docs-000.tar"));
//   BALLAST_RETURN_IF_ERROR(writer->Add("000000.json", json));
//   BALLAST_RETURN_IF_ERROR(writer->Finish());
class TarWriter {
 public:
  // Creates `path`, truncating an existing file. Errors: NOT_FOUND (no such
  // directory), PERMISSION_DENIED, ….
  static absl::StatusOr<std::unique_ptr<TarWriter>> Create(
      const std::string& path);

  // Appends a member. Errors: INVALID_ARGUMENT (`name` is empty, holds a NUL
  // byte or does not fit a ustar header, which has room for 100 bytes, or for
  // 155 and 100 around a '/'; 8 GiB or more); as File::Write.
  absl::Status Add(absl::string_view name, absl::string_view bytes);
  // Appends a member of `size` bytes, copied from an open file from `offset`
  // on. Takes a megabyte of memory. Errors: as Add; DATA_LOSS (the file ends
  // before); UNAVAILABLE (it cannot be read).
  absl::Status AddFrom(absl::string_view name, int fd, uint64_t offset,
                       uint64_t size);

  // Writes the end mark. Nothing may be added after it; a file without it is
  // incomplete.
  absl::Status Finish();
  // Waits until the file is on the disk. Errors: as File::Sync.
  absl::Status Sync() { return file_.Sync(); }

 private:
  explicit TarWriter(File file) : file_(std::move(file)) {}

  absl::Status WriteHeader(absl::string_view name, uint64_t size);
  // Fills the last block of a member of `size` bytes.
  absl::Status Pad(uint64_t size);

  File file_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_TAR_TAR_READER_H_
