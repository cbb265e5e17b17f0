#ifndef BALLAST_SERVER_SCHEDULE_DEVICE_SHARE_H_
#define BALLAST_SERVER_SCHEDULE_DEVICE_SHARE_H_

#include <cstdint>
#include <vector>

#include "proto/config.pb.h"

namespace ballast {

// The images of a job that travel encoded, of those that the index and the
// model allow to: model.device_share of them, the rest being left to the
// servers. A hash of the source's name, the sample's number in its index and
// the image's in its sample decides, so an image travels one way in all epochs
// and on all servers, wherever the files are. Immutable.
class DeviceShare {
 public:
  // `config` is a loaded one. Without the key all of them do.
  explicit DeviceShare(const v1::Config& config);

  // Whether crop `crop` of sample `ordinal` of source number `source` is among
  // them. An image that may travel encoded is one crop.
  bool Has(uint32_t source, uint64_t ordinal, uint32_t crop) const;

  // Sets to 0 what is not among them in `encoded_bytes`, one for each crop of
  // the sample; clears it if nothing is left.
  void Limit(uint32_t source, uint64_t ordinal,
             std::vector<uint32_t>* encoded_bytes) const;

 private:
  double share_ = 1;
  std::vector<uint64_t> sources_;  // hashes of their names
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_DEVICE_SHARE_H_
