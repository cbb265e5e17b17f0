#include "server/data/tar/tar_reader.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/aligned_buffer.h"
#include "common/status_macros.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

constexpr uint64_t kMaxExtension = uint64_t{1} << 20;
constexpr uint64_t kMaxName = 4096;

absl::Status Damaged(absl::string_view reason) {
  return AsDataFault(absl::DataLossError(absl::StrCat("tar: ", reason)));
}

// The bytes before the first NUL.
template <size_t size>
absl::string_view Text(const char (&field)[size]) {
  return absl::string_view(field, strnlen(field, size));
}

template <size_t size>
std::optional<uint64_t> Number(const char (&field)[size]) {
  return ParseTarNumber(absl::string_view(field, size));
}

bool IsZero(absl::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](char c) { return c == '\0'; });
}

bool IsZero(const TarHeader& header) {
  return IsZero(absl::string_view(reinterpret_cast<const char*>(&header),
                                  sizeof(header)));
}

// `prefix` has other meanings in GNU and older headers.
std::string Name(const TarHeader& header) {
  const bool posix = std::memcmp(header.magic, "ustar\0", 6) == 0;
  if (!posix || header.prefix[0] == '\0') return std::string(Text(header.name));
  return absl::StrCat(Text(header.prefix), "/", Text(header.name));
}

// Values of a pax extended header that we use.
struct PaxRecords {
  std::optional<std::string> path;
  std::optional<uint64_t> size;
};

// Parses decimal digits, and nothing else, up to 2^63-1.
std::optional<uint64_t> ParseDecimal(absl::string_view digits) {
  int64_t value = 0;
  if (digits.empty() ||
      digits.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(digits, &value)) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(value);
}

// Reads records "LENGTH KEY=VALUE\n", where LENGTH counts the whole record. The
// last of several records with the same key holds. Other keys are ignored,
// except keys of sparse files, which change the meaning of the member's bytes.
// Errors: DATA_LOSS (malformed records, a size that is no number, a sparse
// file).
absl::StatusOr<PaxRecords> ParsePaxRecords(absl::string_view bytes) {
  PaxRecords records;
  while (!bytes.empty()) {
    const size_t space = bytes.find(' ');
    const std::optional<uint64_t> length =
        ParseDecimal(bytes.substr(0, space == bytes.npos ? 0 : space));
    if (!length || *length > bytes.size() || *length < space + 2 ||
        bytes[*length - 1] != '\n') {
      return Damaged("pax header with a damaged record");
    }
    const absl::string_view record =
        bytes.substr(space + 1, *length - space - 2);
    bytes.remove_prefix(*length);
    const size_t equals = record.find('=');
    if (equals == record.npos) {
      return Damaged("pax header with a record without '='");
    }
    const absl::string_view key = record.substr(0, equals);
    const absl::string_view value = record.substr(equals + 1);
    if (key == "path") {
      records.path = std::string(value);
    } else if (key == "size") {
      records.size = ParseDecimal(value);
      if (!records.size) {
        return Damaged("pax header whose size is no number");
      }
    } else if (absl::StartsWith(key, "GNU.sparse.")) {
      return Damaged("sparse members are not supported");
    }
  }
  return records;
}

// Links, devices, directories and pipes have no bytes, whatever their size.
bool HasData(char type) { return type < '1' || type > '6'; }

}  // namespace

std::optional<uint64_t> ParseTarNumber(absl::string_view field) {
  if (field.empty()) return std::nullopt;
  const auto first = static_cast<unsigned char>(field.front());
  uint64_t value = 0;
  if ((first & 0x80) != 0) {
    if (first != 0x80) return std::nullopt;  // negative, or over 2^88
    for (const char c : field.substr(1)) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return value;
  }
  const size_t begin = field.find_first_not_of(' ');
  if (begin == field.npos) return std::nullopt;
  field.remove_prefix(begin);
  const size_t digits =
      std::min(field.find_first_not_of("01234567"), field.size());
  // A header's fields hold at most 12 digits: 36 bits.
  if (digits == 0 || digits > 12) return std::nullopt;
  for (const char c : field.substr(0, digits)) value = value << 3 | (c - '0');
  for (const char c : field.substr(digits)) {
    if (c != ' ' && c != '\0') return std::nullopt;
  }
  return value;
}

TarReader::TarReader(FileView file, uint64_t begin, uint64_t end, bool whole)
    : file_(file), position_(begin), end_(end), whole_(whole), offset_(begin) {}

absl::StatusOr<TarHeader> TarReader::ReadHeader() {
  offset_ = position_;
  if (end_ - position_ < kTarBlock) return Damaged("ends inside a header");
  TarHeader header;
  BALLAST_RETURN_IF_ERROR(file_.ReadAt(position_, sizeof(header),
                                       reinterpret_cast<char*>(&header)));
  position_ += kTarBlock;
  if (IsZero(header)) return header;
  const std::optional<uint64_t> checksum = Number(header.checksum);
  if (!checksum) return Damaged("no header, its checksum is no number");
  if (*checksum != TarChecksum(header)) {
    return Damaged(absl::StrCat("header with a checksum of ", *checksum,
                                ", its bytes sum to ", TarChecksum(header)));
  }
  return header;
}

absl::StatusOr<std::string> TarReader::ReadExtension(uint64_t size) {
  if (size > kMaxExtension) {
    return Damaged(absl::StrCat("extended header of ", size,
                                " bytes, at most 1 MiB is read"));
  }
  if (size > end_ - position_) return Damaged("ends inside an extended header");
  BALLAST_ASSIGN_OR_RETURN(std::string bytes, file_.ReadAt(position_, size));
  position_ += std::min(AlignUp(size, kTarBlock), end_ - position_);
  return bytes;
}

absl::Status TarReader::CheckZerosToEnd() {
  std::vector<char> buffer(uint64_t{1} << 16);
  for (uint64_t at = position_; at < end_; at += buffer.size()) {
    const uint64_t size = std::min<uint64_t>(buffer.size(), end_ - at);
    BALLAST_RETURN_IF_ERROR(file_.ReadAt(at, size, buffer.data()));
    const auto byte = std::find_if(buffer.begin(), buffer.begin() + size,
                                   [](char c) { return c != '\0'; });
    if (byte != buffer.begin() + size) {
      offset_ = at + (byte - buffer.begin());
      return Damaged("bytes after the end mark; are these several tar files?");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> TarReader::ReadExtended(char type, uint64_t size,
                                             Extension& extension) {
  const bool pax = type == kTarPax || type == kTarPaxGlobal;
  if (!pax && type != kTarGnuLongName && type != kTarGnuLongLink) return false;
  BALLAST_ASSIGN_OR_RETURN(std::string bytes, ReadExtension(size));
  // Up to the first NUL.
  if (type == kTarGnuLongName) extension.name = bytes.c_str();
  if (!pax) return true;
  BALLAST_ASSIGN_OR_RETURN(PaxRecords records, ParsePaxRecords(bytes));
  if (type == kTarPaxGlobal && (records.path || records.size)) {
    return Damaged("global pax header that sets a path or size");
  }
  if (records.path) extension.name = std::move(records.path);
  if (records.size) extension.size = records.size;
  return true;
}

absl::StatusOr<TarMember> TarReader::TakeMember(const TarHeader& header,
                                                uint64_t size,
                                                Extension extension) {
  TarMember member;
  const bool file =
      header.type == kTarFileOld || header.type == kTarFileContiguous;
  member.type = file ? kTarFile : header.type;
  if (member.type == kTarGnuSparse) {
    return Damaged("sparse members are not supported");
  }
  member.name = extension.name ? *std::move(extension.name) : Name(header);
  if (member.name.empty()) return Damaged("member without a name");
  if (member.name.size() > kMaxName) {
    return Damaged(absl::StrCat("member name of ", member.name.size(),
                                " bytes, wanted at most ", kMaxName));
  }
  member.size = HasData(member.type) ? extension.size.value_or(size) : 0;
  member.data = position_;
  if (member.size > end_ - position_) {
    return Damaged(absl::StrCat("member \"", Printable(member.name), "\" of ",
                                member.size,
                                " bytes reaches past the end; was it cut?"));
  }
  // The last member's padding may be cut off: its bytes are complete.
  position_ += std::min(AlignUp(member.size, kTarBlock), end_ - position_);
  member.end = position_;
  return member;
}

absl::StatusOr<std::optional<TarMember>> TarReader::Next() {
  Extension extension;
  const uint64_t begin = position_;
  if (begin == end_) {
    offset_ = begin;
    if (!whole_) return std::nullopt;
    return Damaged("ends without an end mark; was it cut?");
  }
  while (true) {
    BALLAST_ASSIGN_OR_RETURN(const TarHeader header, ReadHeader());
    if (IsZero(header)) {
      if (!whole_ || offset_ != begin) {
        return Damaged("end mark where a member was expected");
      }
      BALLAST_RETURN_IF_ERROR(CheckZerosToEnd());
      position_ = begin;  // a call after the end finds it again
      return std::nullopt;
    }
    const std::optional<uint64_t> size = Number(header.size);
    if (!size) return Damaged("header whose size is no number");
    BALLAST_ASSIGN_OR_RETURN(const bool extended,
                             ReadExtended(header.type, *size, extension));
    if (extended) continue;
    BALLAST_ASSIGN_OR_RETURN(TarMember member,
                             TakeMember(header, *size, std::move(extension)));
    member.header = begin;
    return member;
  }
}

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
