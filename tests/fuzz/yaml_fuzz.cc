#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "server/config/config_loader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view yaml(reinterpret_cast<const char*>(data), size);
  const auto loaded = ballast::ParseConfig(yaml, "F", "/d");
  if (!loaded.ok()) {
    // Every error names the file, and none is empty.
    if (loaded.status().message().substr(0, 2) != "F:") std::abort();
    return 0;
  }
  // Fields that callers divide by must not be 0 in a loaded configuration.
  const ballast::v1::Config& config = loaded->config;
  if (config.sources().empty() || config.batch().micro() == 0 ||
      config.batch().global() % config.batch().micro() != 0 ||
      config.topology().servers().empty() || config.serve().listen().empty()) {
    std::abort();
  }
  return 0;
}
