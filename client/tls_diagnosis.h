#ifndef BALLAST_CLIENT_TLS_DIAGNOSIS_H_
#define BALLAST_CLIENT_TLS_DIAGNOSIS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/channel_security.h"

namespace ballast {

// Finds the TLS fault that keeps a client with `security` from a server, since
// gRPC only reports that it cannot connect. Opens another connection to
// `address` (`host:port`) and tries. Returns UNAUTHENTICATED with the reason
// and what to do: a certificate of another CA, expired or for another host; a
// client certificate that is missing or refused; TLS on one side only. OK:
// there is no TLS fault, or the server is away or does not answer within
// `timeout`. Blocks for at most `timeout`, plus the look-up of the host's name.
absl::Status DiagnoseTls(const std::string& address,
                         const ChannelSecurity& security,
                         absl::Duration timeout);

}  // namespace ballast

#endif  // BALLAST_CLIENT_TLS_DIAGNOSIS_H_
