#ifndef BALLAST_SERVER_CORPUS_TAR_TAR_FORMAT_H_
#define BALLAST_SERVER_CORPUS_TAR_TAR_FORMAT_H_

#include <cstdint>

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

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_TAR_TAR_FORMAT_H_
