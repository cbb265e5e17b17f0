#ifndef BALLAST_TESTS_FAKES_MEETING_PLACE_H_
#define BALLAST_TESTS_FAKES_MEETING_PLACE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/loader_client.h"
#include "server/serve/service/rendezvous.h"

namespace ballast {

// A server's Rendezvous for ranks that are threads of the test. Thread-safe.
class MeetingPlace {
 public:
  // As LoaderClient::Rendezvous.
  absl::StatusOr<std::string> Meet(const std::string& group, uint32_t rank,
                                   uint32_t size, const std::string& id,
                                   absl::Duration timeout,
                                   const std::string& run);

  // A fake client that meets here, which outlives it.
  std::unique_ptr<LoaderClient> Client();

 private:
  Rendezvous rendezvous_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_MEETING_PLACE_H_
