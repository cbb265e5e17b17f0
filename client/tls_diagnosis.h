#ifndef BALLAST_CLIENT_TLS_DIAGNOSIS_H_
#define BALLAST_CLIENT_TLS_DIAGNOSIS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/channel_security.h"

namespace ballast {

// What about TLS keeps a client that is secured as `security` says from a
// server: gRPC itself only says that it cannot connect. Connects to `address`
// (`host:port`) anew and tries. UNAUTHENTICATED with the reason and what to do:
// a certificate of another CA, expired or for another host; a client's that is
// missing or refused; TLS on one side alone. OK: it is nothing about TLS, or
// the server is not there or does not answer within `timeout`, for which it
// blocks at most, the look-up of the host's name not counted.
absl::Status DiagnoseTls(const std::string& address,
                         const ChannelSecurity& security,
                         absl::Duration timeout);

}  // namespace ballast

#endif  // BALLAST_CLIENT_TLS_DIAGNOSIS_H_
