#include "server/plan/step_table.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

static_assert(std::endian::native == std::endian::little);

struct Header {
  char magic[8];
  uint64_t count;
  uint64_t checksum;
};

constexpr char kMagic[] = "BLLSTEPS";

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

uint64_t Checksum(const std::vector<uint64_t>& starts) {
  return XXH3_64bits(starts.data(), starts.size() * sizeof(uint64_t));
}

}  // namespace

std::vector<uint64_t> LoadStepTable(const std::string& path) {
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(path, error);
  const File file(std::fopen(path.c_str(), "rb"), &std::fclose);
  Header header;
  if (error || file == nullptr ||
      std::fread(&header, sizeof header, 1, file.get()) != 1 ||
      std::memcmp(header.magic, kMagic, sizeof header.magic) != 0 ||
      header.count == 0 ||
      header.count != (bytes - sizeof header) / sizeof(uint64_t)) {
    return {};
  }
  std::vector<uint64_t> starts(header.count);
  if (std::fread(starts.data(), sizeof(uint64_t), starts.size(), file.get()) !=
          starts.size() ||
      Checksum(starts) != header.checksum || starts[0] != 0 ||
      std::adjacent_find(starts.begin(), starts.end(),
                         [](uint64_t a, uint64_t b) { return a >= b; }) !=
          starts.end()) {
    return {};
  }
  return starts;
}

absl::Status SaveStepTable(const std::string& path,
                           const std::vector<uint64_t>& starts) {
  const std::string part = absl::StrCat(path, ".part.", getpid());
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof header.magic);
  header.count = starts.size();
  header.checksum = Checksum(starts);
  File file(std::fopen(part.c_str(), "wb"), &std::fclose);
  bool is_written = file != nullptr &&
                    std::fwrite(&header, sizeof header, 1, file.get()) == 1 &&
                    std::fwrite(starts.data(), sizeof(uint64_t), starts.size(),
                                file.get()) == starts.size() &&
                    std::fflush(file.get()) == 0;
  const int error = errno;
  file.reset();
  if (is_written && std::rename(part.c_str(), path.c_str()) == 0) {
    return absl::OkStatus();
  }
  const int cause = is_written ? errno : error;
  std::remove(part.c_str());
  return absl::UnavailableError(
      absl::StrCat("cannot write ", path, ": ", std::strerror(cause)));
}

}  // namespace ballast
