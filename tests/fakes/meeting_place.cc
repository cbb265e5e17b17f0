#include "tests/fakes/meeting_place.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/status_macros.h"
#include "tests/fakes/fake_loader_client.h"

namespace ballast {

absl::StatusOr<std::string> MeetingPlace::Meet(const std::string& group,
                                               uint32_t rank, uint32_t size,
                                               const std::string& id,
                                               absl::Duration timeout,
                                               const std::string& run) {
  v1::RendezvousRequest request;
  request.set_group(group);
  request.set_rank(rank);
  request.set_size(size);
  request.set_id(id);
  request.set_run(run);
  request.set_member(absl::StrCat(rank));
  absl::StatusOr<v1::RendezvousResponse> response;
  absl::Notification answered;
  const uint64_t ticket = rendezvous_.Join(
      request, [&](absl::StatusOr<v1::RendezvousResponse> answer) {
        response = std::move(answer);
        answered.Notify();
      });
  if (!answered.WaitForNotificationWithTimeout(timeout)) {
    if (rendezvous_.Leave(ticket)) {
      return absl::DeadlineExceededError(
          absl::StrCat("not all ranks of ", group, " came"));
    }
    answered.WaitForNotification();
  }
  BALLAST_RETURN_IF_ERROR(response.status());
  return response->id();
}

std::unique_ptr<LoaderClient> MeetingPlace::Client() {
  FakeLoader loader;
  loader.on_rendezvous = [this](const auto&... arguments) {
    return Meet(arguments...);
  };
  return FakeLoaderClient(std::move(loader));
}

}  // namespace ballast
