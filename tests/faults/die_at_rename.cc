// Preloaded into a server (LD_PRELOAD): kills it at a write of one file, which
// is done by renaming. BALLAST_DIE_AT names a file whose content says when:
// "PATH NUMBER before|after" kills it before or after the rename number NUMBER,
// from 1, to PATH, counted from the first rename that finds the file.

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

int seen = 0;

// Whether this rename is the one.
bool DiesAt(const char* to, bool before) {
  const char* order = std::getenv("BALLAST_DIE_AT");
  if (order == nullptr) return false;
  std::FILE* file = std::fopen(order, "r");
  if (file == nullptr) return false;
  char path[512], when[16];
  int number = 0;
  const int read = std::fscanf(file, "%511s %d %15s", path, &number, when);
  std::fclose(file);
  if (read != 3 || std::strcmp(path, to) != 0) return false;
  if (before) ++seen;
  return seen == number && (std::strcmp(when, "before") == 0) == before;
}

}  // namespace

extern "C" int rename(const char* from, const char* to) noexcept {
  using Rename = int (*)(const char*, const char*);
  static const auto real = reinterpret_cast<Rename>(dlsym(RTLD_NEXT, "rename"));
  if (DiesAt(to, /*before=*/true)) kill(getpid(), SIGKILL);
  const int result = real(from, to);
  if (DiesAt(to, /*before=*/false)) kill(getpid(), SIGKILL);
  return result;
}
