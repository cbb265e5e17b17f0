#ifndef BALLAST_CLIENT_BALLASTCTL_ORDER_CLIENT_H_
#define BALLAST_CLIENT_BALLASTCTL_ORDER_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/channel_security.h"
#include "proto/order_service.pb.h"

namespace ballast {

// A client of one server's OrderService (proto/order_service.proto).
// Thread-safe. Errors: as MetricsClient.
class OrderClient {
 public:
  // Does not connect yet.
  explicit OrderClient(const std::string& address,
                       const ChannelSecurity& security = {});
  ~OrderClient();

  absl::StatusOr<v1::GetMixtureResponse> GetMixture(uint64_t step,
                                                    v1::Split split);
  // The samples from number `first` of the step on, as many as one answer
  // holds.
  absl::StatusOr<v1::GetSamplesResponse> GetSamples(uint64_t step,
                                                    v1::Split split,
                                                    uint32_t first);

 private:
  struct Connection;  // defined in the .cc file: keeps gRPC's headers out of
                      // the commands

  const std::unique_ptr<const Connection> connection_;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_ORDER_CLIENT_H_
