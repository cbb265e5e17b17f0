#include "server/schedule/device_share.h"

#include <xxhash.h>

#include <algorithm>
#include <cstddef>

namespace ballast {

DeviceShare::DeviceShare(const v1::Config& config) {
  if (config.model().has_device_share()) {
    share_ = config.model().device_share();
  }
  for (const v1::Source& source : config.sources()) {
    sources_.push_back(XXH3_64bits(source.name().data(), source.name().size()));
  }
}

bool DeviceShare::Has(uint32_t source, uint64_t ordinal, uint32_t crop) const {
  const uint64_t place[2] = {ordinal, crop};
  const uint64_t hash =
      XXH3_64bits_withSeed(place, sizeof(place), sources_[source]);
  // 53 bits, which a double holds exactly: of a share of 0 none is below, of 1
  // all are.
  return static_cast<double>(hash >> 11) < share_ * 0x1p53;
}

void DeviceShare::Limit(uint32_t source, uint64_t ordinal,
                        std::vector<uint32_t>* encoded_bytes) const {
  if (share_ == 1) return;
  for (size_t i = 0; i < encoded_bytes->size(); ++i) {
    uint32_t& bytes = (*encoded_bytes)[i];
    if (bytes != 0 && !Has(source, ordinal, static_cast<uint32_t>(i))) {
      bytes = 0;
    }
  }
  const bool none =
      std::all_of(encoded_bytes->begin(), encoded_bytes->end(),
                  [](const uint32_t bytes) { return bytes == 0; });
  if (none) encoded_bytes->clear();
}

}  // namespace ballast
